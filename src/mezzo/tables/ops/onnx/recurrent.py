"""Recurrent networks, which accumulate rounding errors in their state over time steps."""

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = (
    "ONNX 1.23 operator documentation, opsets 1 to 28; the activations are attributes and need not"
    " be bounded"
)

FACTS: tuple[OpFacts, ...] = (
    facts("GRU", Cost.RECURRENT, Risk.RECURSION, transfer=Transfer.RECURRENT),
    facts("LSTM", Cost.RECURRENT, Risk.RECURSION, transfer=Transfer.RECURRENT),
    # Its state is a running sum of outer products, decayed by exp(g) at each step.
    facts("LinearAttention", Cost.RECURRENT, Risk.RECURSION),
    facts("RNN", Cost.RECURRENT, Risk.RECURSION, transfer=Transfer.RECURRENT),
)
