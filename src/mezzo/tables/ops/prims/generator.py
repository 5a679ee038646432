"""Counters, constants, seeds and random numbers."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = "PyTorch 2.13 torch/_prims/__init__.py and torch/_inductor/inductor_prims.py"

FACTS: tuple[OpFacts, ...] = (
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
    facts("normal", Cost.GENERATOR, Risk.RANDOM, like="RandomNormal", transfer=Transfer.RANDOM),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "empty": "ConstantOfShape",
    "empty_permuted": "ConstantOfShape",
    "empty_strided": "ConstantOfShape",
    "full": "ConstantOfShape",
    "full_like": "ConstantOfShape",
    "iota": "Range",
    "scalar_tensor": "ConstantOfShape",
}
