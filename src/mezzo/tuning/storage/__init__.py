"""Search for the storage of weights in low-bit blocks, within a budget of error or of bytes.

Imports: as of `tuning`. `sensitivity.py` measures what each storage of each weight costs in error,
`knapsack.py` chooses, `search.py` runs what was chosen, `tuner.py` verifies the converted model.
"""
