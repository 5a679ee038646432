"""Quantization arithmetic, bit for bit: parameters, weights, integer kernels, GPTQ rounding, corrections.

Imports: `contracts` and below.
A new way to round weights is one file.
"""
