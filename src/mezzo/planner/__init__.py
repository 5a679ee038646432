"""Planning: from a graph and options to verdicts, levels, casts and reasons. Pure; knows no IR.

Imports: `analysis`, `plugins`, `io` and below.
Only `lower` places casts; only `check` calls a plan legal. A strategy is one file of `strategies/`.
"""
