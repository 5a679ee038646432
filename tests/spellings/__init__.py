"""Equivalent spellings: the same mathematics written in many ways, to judge what is known about a model without data.

An idiom (`cases.Idiom`) is a function that a low format gets wrong though FP32 computes it well. `draft` and `phrases`
write it in spellings drawn from a seed: other operators, opsets, axes, constants, operand orders, bodies, functions.
Inputs are what an engineer takes for granted: unit normal floats, ids within the table, masks of 0 and 1, unless the
model's own prologue says otherwise. `controls` holds models that look like the others and are harmless.
"""
