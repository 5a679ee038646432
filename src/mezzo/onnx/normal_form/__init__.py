"""Normal form: simplification of exported models to one form, and folding for quantized kernels.

Imports: `edit`, `schema`, `files`, `protos` and below.
A pass is one file, called by `normalize.py` until none changes the model.
"""
