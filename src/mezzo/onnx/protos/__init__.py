"""Helpers over ONNX protos: traversal of subgraphs, attributes, entries of graphs, payloads,
constants, names, node order, metadata, casts to low formats and back.

Imports: `common`, `formats` and ONNX.
Add here what any part of the ONNX front end needs of one node or graph.
"""
