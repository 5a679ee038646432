"""Output for people: records (`records/`), texts (`text/`), HTML pages (`html/`), graph views
(`views/`). Writes no files.

Imports: `numerics`, `planner` and below. A new record is one file of `records/`; its text is one
file of `text/`.
"""
