"""Models on data: answers against answers, ranges, the standards that answers are held to.

Imports: `conversion`, `numerics` and below.
Add one file per question that is asked of a model and data.
"""
