"""Number formats: dtypes, rounding, quantization parameters, the order of precisions, the words for all of them.

Imports: `common`.
A new float or integer format is a row of `dtypes.FORMATS`.
"""
