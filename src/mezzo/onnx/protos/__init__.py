"""Helpers over ONNX protos: attributes, constants, names, node order, metadata, casts to low
formats and back.

Imports: `common`, `formats` and ONNX.
Add here what any part of the ONNX front end needs of one node or graph.
"""
