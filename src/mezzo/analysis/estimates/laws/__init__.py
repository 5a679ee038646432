"""Laws of operators: an estimate of the result from those of the operands, and the error that each operand may have.

Imports: what `analysis` may.
A new operator's law is a row in the file of its family.
"""
