"""Model files: opened at wire level so that large weights stay on disk, streamed when written; all hostile input.

Imports: `protos` and below.
A new storage of weights is a payload in `blobs.py`.
"""
