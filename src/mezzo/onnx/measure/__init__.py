"""Measures ONNX models: ranges by operators woven into the graph, layers compared, the lab.

Imports: `emulate`, `run`, `read` and below.
A new measurement is a method of `lab.py` and a file here.
"""
