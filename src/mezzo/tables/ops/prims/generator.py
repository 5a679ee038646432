"""Counters, constants, seeds and random numbers."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = "PyTorch 2.13 torch/_prims/__init__.py and torch/_inductor/inductor_prims.py"

FACTS: tuple[OpFacts, ...] = (
    facts("empty", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
    facts("empty_permuted", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
    facts("empty_strided", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
    facts("full", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
    facts("full_like", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
    facts("inductor_lookup_seed", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    facts("inductor_rand_eager_offset", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    facts("inductor_rand_eager_offsets", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    facts("inductor_randint", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    # Uniform or normal, as an attribute says.
    facts(
        "inductor_random",
        Cost.GENERATOR,
        Risk.RANDOM,
        like="RandomUniform",
        transfer=Transfer.RANDOM,
    ),
    facts("inductor_seed", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    facts("inductor_seeds", Cost.GENERATOR, Risk.RANDOM, like="RandomUniform"),
    facts(
        "iota",
        Cost.GENERATOR,
        Risk.POSITION,
        like="Range",
        function=Function.RANGE,
        transfer=Transfer.RANGE,
    ),
    facts("normal", Cost.GENERATOR, Risk.RANDOM, like="RandomNormal", transfer=Transfer.RANDOM),
    facts("scalar_tensor", Cost.GENERATOR, like="ConstantOfShape", transfer=Transfer.FILL),
)
