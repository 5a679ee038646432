"""Tokens, strings and text generation."""

from mezzo.tables.facts import Cost, OpFacts, Risk, facts

SOURCE = "ONNX Runtime 1.32 operator schemas, domain com.microsoft"

FACTS: tuple[OpFacts, ...] = (
    # The searches run a decoder subgraph and choose tokens; token numbers may come in as floats.
    facts("BeamSearch", Cost.CONTROL, Risk.STEP, Risk.POSITION),
    # Integers only.
    facts("BifurcationDetector", Cost.OTHER),
    facts("GreedySearch", Cost.CONTROL, Risk.STEP, Risk.POSITION),
    # It hashes the bytes of its input.
    facts("MurmurHash3", Cost.OTHER, Risk.BITS, Risk.TEXT),
    # Integers only.
    facts("NGramHashMapping", Cost.OTHER),
    facts("Sampling", Cost.CONTROL, Risk.STEP, Risk.POSITION, Risk.RANDOM),
    # Integers only.
    facts("SpeculativePrefixCommit", Cost.OTHER),
    facts("Tokenizer", Cost.OTHER, Risk.TEXT),
    # Integers only.
    facts("VarlenNGramHashMapping", Cost.OTHER),
    facts("WhisperBeamSearch", Cost.CONTROL, Risk.STEP, Risk.POSITION),
)
