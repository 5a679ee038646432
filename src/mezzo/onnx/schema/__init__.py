"""Types and shapes from ONNX schemas: port roles, legal dtypes, custom and contrib operators, shape inference.

Imports: `protos` and below.
What a schema does not say of an operator is a row of `special.py` or `contrib.py`.
"""
