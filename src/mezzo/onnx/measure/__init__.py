"""Measurement of ONNX models: value ranges by operators inserted into the graph, comparison of
two models layer by layer, and the lab that combines both.

Imports: `emulate`, `run`, `read` and below.
A new measurement is a method of `lab.py` and a file here.
"""
