"""Graph data structures of the planner: nodes, values, uses, scopes, array columns, selectors,
traversals and minimum cuts.

Imports: `common`, `formats`. Independent of ONNX and PyTorch.
Add here what the graphs of all dialects share.
"""
