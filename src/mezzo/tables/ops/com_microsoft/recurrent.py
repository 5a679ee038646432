"""Recurrent networks, which accumulate rounding errors in their state over time steps."""

from mezzo.tables.facts import Cost, OpFacts, Risk, facts

SOURCE = "ONNX Runtime 1.32 operator schemas, domain com.microsoft"

FACTS: tuple[OpFacts, ...] = (
    facts("AttnLSTM", Cost.RECURRENT, Risk.RECURSION),
    # The replays copy parts of states, which they find by their place in bytes or elements.
    facts("ConvStateReplay", Cost.OTHER, Risk.BITS),
    facts("DynamicTimeWarping", Cost.OTHER, Risk.RECURSION, Risk.STEP, Risk.SUM),
    facts("GatedDeltaNet", Cost.RECURRENT, Risk.RECURSION),
    facts("GatedDeltaNetStateReplay", Cost.OTHER, Risk.BITS),
    facts("LinearAttention", Cost.RECURRENT, Risk.RECURSION),
    facts("Mamba2Verify", Cost.RECURRENT, Risk.RECURSION),
)
