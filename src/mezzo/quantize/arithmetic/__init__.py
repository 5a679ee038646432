"""Quantization arithmetic, bit for bit: parameters, weights, kernels, GPTQ, corrections.

Imports: `contracts` and below.
A new way to round weights is one file.
"""
