"""Transfer laws of operators: moments of the result from those of the operands, and tolerances of
the operands from that of the result.

Imports: as `analysis`.
A new law is a member of `mezzo.tables.facts.Transfer`, and a row of `LAWS` in the file of its
family.
"""
