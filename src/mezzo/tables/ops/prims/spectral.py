"""Fourier transforms."""

from mezzo.tables.facts import Cost, OpFacts, Risk, facts

SOURCE = (
    "PyTorch 2.13 torch/_prims/__init__.py; growth of transforms: Parseval's theorem, a transform"
    " of n samples is up to n times the largest one"
)

FACTS: tuple[OpFacts, ...] = (
    facts("fft_c2c", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_c2r", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_r2c", Cost.OTHER, Risk.SUM, like="DFT"),
)
