"""What people read: records (`records/`), texts (`text/`), pages (`html/`), pictures (`views/`). Writes nothing itself.

Imports: `numerics`, `planner` and below.
A new record is one file of `records/`; a new text of it one file of `text/`.
"""
