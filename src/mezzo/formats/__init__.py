"""Number formats: dtypes, rounding, quantization parameters, the order of precisions, names of
formats.

Imports: `common`.
A new float or integer format is a row of `dtypes.FORMATS`.
"""
