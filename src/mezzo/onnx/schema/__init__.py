"""Types and shapes from ONNX schemas: legal dtypes, custom and contrib operators, shape inference.

Imports: `protos` and below.
Facts on operators that schemas lack are rows of `special.py` or `contrib.py`.
"""
