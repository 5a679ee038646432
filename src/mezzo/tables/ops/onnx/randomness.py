"""Random numbers. The same seed gives other numbers in another dtype."""

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = (
    "ONNX 1.23 operator documentation, opsets 1 to 28; ONNX leaves the generator to the runtime"
)

FACTS: tuple[OpFacts, ...] = (
    facts("Bernoulli", Cost.GENERATOR, Risk.RANDOM, is_bounded=True, transfer=Transfer.RANDOM),
    facts("Multinomial", Cost.GENERATOR, Risk.RANDOM, is_bounded=True),
    facts(
        "RandomNormal",
        Cost.GENERATOR,
        Risk.RANDOM,
        numbers=("mean", "scale"),
        transfer=Transfer.RANDOM,
    ),
    facts(
        "RandomNormalLike",
        Cost.GENERATOR,
        Risk.RANDOM,
        numbers=("mean", "scale"),
        transfer=Transfer.RANDOM,
    ),
    facts(
        "RandomUniform",
        Cost.GENERATOR,
        Risk.RANDOM,
        numbers=("high", "low"),
        transfer=Transfer.RANDOM,
    ),
    facts(
        "RandomUniformLike",
        Cost.GENERATOR,
        Risk.RANDOM,
        numbers=("high", "low"),
        transfer=Transfer.RANDOM,
    ),
)
