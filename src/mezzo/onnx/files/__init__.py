"""Reading and writing of untrusted model files: large weights stay on disk and are streamed.

Imports: `protos` and below.
A new storage of weights is a payload in `blobs.py`.
"""
