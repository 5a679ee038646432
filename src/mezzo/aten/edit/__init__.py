"""Edits of programs: casts, scales and quantization that a plan asks for."""
