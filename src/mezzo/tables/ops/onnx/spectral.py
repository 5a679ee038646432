"""Fourier transforms, windows and mel filters."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, facts

SOURCE = (
    "ONNX 1.23 operator documentation, opsets 17 to 28; growth of transforms: Parseval's theorem, a"
    " transform of n samples is up to n times the largest one"
)

FACTS: tuple[OpFacts, ...] = (
    facts("BlackmanWindow", Cost.GENERATOR, Risk.PERIODIC, is_bounded=True),
    facts("DFT", Cost.OTHER, Risk.SUM, function=Function.FOURIER),
    facts("HammingWindow", Cost.GENERATOR, Risk.PERIODIC, is_bounded=True),
    facts("HannWindow", Cost.GENERATOR, Risk.PERIODIC, is_bounded=True),
    # It places its triangles by frequencies in hertz.
    facts("MelWeightMatrix", Cost.GENERATOR, Risk.POSITION, is_bounded=True),
    facts("STFT", Cost.OTHER, Risk.SUM, function=Function.FOURIER),
)
