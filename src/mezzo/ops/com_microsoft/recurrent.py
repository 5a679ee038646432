"""Networks that carry a state over time steps, and its rounding errors with it."""

from mezzo.core.facts import Cost, OpFacts, Risk, facts

SOURCE = "ONNX Runtime 1.31 operator schemas, domain com.microsoft"

FACTS: tuple[OpFacts, ...] = (
    facts("AttnLSTM", Cost.RECURRENT, Risk.RECURSION),
    facts("DynamicTimeWarping", Cost.OTHER, Risk.RECURSION, Risk.STEP, Risk.SUM),
    facts("GatedDeltaNet", Cost.RECURRENT, Risk.RECURSION),
    facts("LinearAttention", Cost.RECURRENT, Risk.RECURSION),
)
