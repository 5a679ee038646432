"""Transfer laws of operators: moments of the result from those of the operands, and tolerances of
the operands from that of the result.

Imports: as `analysis`.
A new operator's law is a row in the file of its family.
"""
