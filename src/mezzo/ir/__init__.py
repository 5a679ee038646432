"""The graph that the planner sees: nodes, values, uses, scopes, the same as arrays, selectors and minimum cuts.

Imports: `common`, `formats`. Knows no ONNX and no PyTorch.
Add here what any dialect's graph has.
"""
