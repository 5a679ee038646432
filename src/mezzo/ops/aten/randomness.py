"""Random draws. The same seed gives other numbers in another dtype."""

from mezzo.core.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = "PyTorch 2.13 documentation, torch, random sampling, and notes on reproducibility"

FACTS: tuple[OpFacts, ...] = (
    # They draw a mask, and scale what it leaves.
    facts("_fused_dropout", Cost.MOVEMENT, Risk.RANDOM, transfer=Transfer.MOVE),
    facts("_sample_dirichlet", Cost.GENERATOR, Risk.RANDOM),
    facts("_standard_gamma", Cost.GENERATOR, Risk.RANDOM),
    facts("alpha_dropout", Cost.MOVEMENT, Risk.RANDOM, transfer=Transfer.MOVE),
    facts("bernoulli", Cost.GENERATOR, Risk.RANDOM, is_bounded=True, transfer=Transfer.RANDOM),
    facts("binomial", Cost.GENERATOR, Risk.RANDOM),
    facts("cauchy", Cost.GENERATOR, Risk.RANDOM),
    facts("exponential", Cost.GENERATOR, Risk.RANDOM),
    facts("feature_alpha_dropout", Cost.MOVEMENT, Risk.RANDOM, transfer=Transfer.MOVE),
    facts("fractional_max_pool2d", Cost.REDUCTION, Risk.RANDOM),
    facts("fractional_max_pool3d", Cost.REDUCTION, Risk.RANDOM),
    facts("geometric", Cost.GENERATOR, Risk.RANDOM),
    facts("log_normal", Cost.GENERATOR, Risk.RANDOM),
    facts("multinomial", Cost.GENERATOR, Risk.RANDOM, is_bounded=True),
    facts("native_dropout", Cost.MOVEMENT, Risk.RANDOM, transfer=Transfer.MOVE),
    facts("normal", Cost.GENERATOR, Risk.RANDOM, transfer=Transfer.RANDOM),
    facts("normal_functional", Cost.GENERATOR, Risk.RANDOM, transfer=Transfer.RANDOM),
    facts("poisson", Cost.GENERATOR, Risk.RANDOM),
    facts("rand", Cost.GENERATOR, Risk.RANDOM, transfer=Transfer.RANDOM),
    facts("rand_like", Cost.GENERATOR, Risk.RANDOM, transfer=Transfer.RANDOM),
    facts("randint", Cost.GENERATOR, Risk.RANDOM),
    facts("randint_like", Cost.GENERATOR, Risk.RANDOM),
    facts("randn", Cost.GENERATOR, Risk.RANDOM, transfer=Transfer.RANDOM),
    facts("randn_like", Cost.GENERATOR, Risk.RANDOM, transfer=Transfer.RANDOM),
    facts("random", Cost.GENERATOR, Risk.RANDOM),
    facts("randperm", Cost.GENERATOR, Risk.RANDOM),
    facts("uniform", Cost.GENERATOR, Risk.RANDOM, transfer=Transfer.RANDOM),
)
