"""Fourier transforms."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, Risk, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch.fft and torch.stft; growth of transforms: Parseval's"
    " theorem, a transform of n samples is up to n times the largest one"
)

FACTS: tuple[OpFacts, ...] = (
    facts("_fft_c2c", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("_fft_c2r", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("_fft_r2c", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_fft", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_fft2", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_fftfreq", Cost.GENERATOR, Risk.POSITION, like="Range"),
    facts("fft_fftn", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_hfft", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_ifft", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_ifft2", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_ifftn", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_ihfft", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_irfft", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_irfft2", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_irfftn", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_rfft", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_rfft2", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("fft_rfftfreq", Cost.GENERATOR, Risk.POSITION, like="Range"),
    facts("fft_rfftn", Cost.OTHER, Risk.SUM, like="DFT"),
    facts("istft", Cost.OTHER, Risk.SUM, like="STFT"),
    facts("stft", Cost.OTHER, Risk.SUM, like="STFT"),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "fft_fftshift": "Slice",
    "fft_ifftshift": "Slice",
}
