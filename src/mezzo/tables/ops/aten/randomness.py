"""Random numbers. The same seed gives other numbers in another dtype."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = "PyTorch 2.13 documentation, torch, random sampling, and notes on reproducibility"

FACTS: tuple[OpFacts, ...] = (
    # They draw a mask, and scale what it leaves.
    facts("_fused_dropout", Cost.MOVEMENT, Risk.RANDOM, like="Dropout", transfer=Transfer.MOVE),
    facts("_sample_dirichlet", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    facts("_standard_gamma", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    facts("alpha_dropout", Cost.MOVEMENT, Risk.RANDOM, like="Dropout", transfer=Transfer.MOVE),
    facts("binomial", Cost.GENERATOR, Risk.RANDOM, like="Bernoulli"),
    facts("cauchy", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    facts("exponential", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    facts(
        "feature_alpha_dropout", Cost.MOVEMENT, Risk.RANDOM, like="Dropout", transfer=Transfer.MOVE
    ),
    facts("fractional_max_pool2d", Cost.REDUCTION, Risk.RANDOM, like="MaxPool"),
    facts("fractional_max_pool3d", Cost.REDUCTION, Risk.RANDOM, like="MaxPool"),
    facts("geometric", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    facts("log_normal", Cost.GENERATOR, Risk.RANDOM, like="RandomNormal"),
    facts("native_dropout", Cost.MOVEMENT, Risk.RANDOM, like="Dropout", transfer=Transfer.MOVE),
    facts("normal", Cost.GENERATOR, Risk.RANDOM, like="RandomNormal", transfer=Transfer.RANDOM),
    facts(
        "normal_functional",
        Cost.GENERATOR,
        Risk.RANDOM,
        like="RandomNormal",
        transfer=Transfer.RANDOM,
    ),
    facts("poisson", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    facts("rand", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform", transfer=Transfer.RANDOM),
    facts(
        "rand_like", Cost.GENERATOR, Risk.RANDOM, like="RandomUniformLike", transfer=Transfer.RANDOM
    ),
    facts("randint", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    facts("randint_like", Cost.GENERATOR, Risk.RANDOM, like="RandomUniformLike"),
    facts("randn", Cost.GENERATOR, Risk.RANDOM, like="RandomNormal", transfer=Transfer.RANDOM),
    facts(
        "randn_like", Cost.GENERATOR, Risk.RANDOM, like="RandomNormalLike", transfer=Transfer.RANDOM
    ),
    facts("random", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    facts("randperm", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    facts("uniform", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform", transfer=Transfer.RANDOM),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "bernoulli": "Bernoulli",
    "multinomial": "Multinomial",
}
