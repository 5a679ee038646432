"""Normal form: rewrites that bring exporters' spellings of one network to one form, and folds for quantized kernels.

Imports: `edit`, `schema`, `files`, `protos` and below.
A pass is one file, called by `normalize.py` until none changes the model.
"""
