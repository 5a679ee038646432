"""Training: joint graphs, rematerialization, memory of the backward pass, gradient reduction.

Imports: everything but `cli`, and PyTorch.
A new control of training is a field of `controls.py` and one file.
"""
