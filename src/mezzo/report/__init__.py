"""Output for people: records, texts, HTML pages and graph views. Writes no files.

Imports: `numerics`, `planner` and below. A new record is one file of `records/`; its text is one
file of `text/`.
"""
