"""Fourier transforms."""

from mezzo.core.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch.fft and torch.stft; growth of transforms: Parseval's theorem, a transform "
    "of n samples is up to n times the largest one"
)

FACTS: tuple[OpFacts, ...] = (
    facts("_fft_c2c", Cost.OTHER, Risk.SUM),
    facts("_fft_c2r", Cost.OTHER, Risk.SUM),
    facts("_fft_r2c", Cost.OTHER, Risk.SUM),
    facts("fft_fft", Cost.OTHER, Risk.SUM),
    facts("fft_fft2", Cost.OTHER, Risk.SUM),
    facts("fft_fftfreq", Cost.GENERATOR, Risk.POSITION),
    facts("fft_fftn", Cost.OTHER, Risk.SUM),
    facts("fft_fftshift", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("fft_hfft", Cost.OTHER, Risk.SUM),
    facts("fft_ifft", Cost.OTHER, Risk.SUM),
    facts("fft_ifft2", Cost.OTHER, Risk.SUM),
    facts("fft_ifftn", Cost.OTHER, Risk.SUM),
    facts("fft_ifftshift", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("fft_ihfft", Cost.OTHER, Risk.SUM),
    facts("fft_irfft", Cost.OTHER, Risk.SUM),
    facts("fft_irfft2", Cost.OTHER, Risk.SUM),
    facts("fft_irfftn", Cost.OTHER, Risk.SUM),
    facts("fft_rfft", Cost.OTHER, Risk.SUM),
    facts("fft_rfft2", Cost.OTHER, Risk.SUM),
    facts("fft_rfftfreq", Cost.GENERATOR, Risk.POSITION),
    facts("fft_rfftn", Cost.OTHER, Risk.SUM),
    facts("istft", Cost.OTHER, Risk.SUM),
    facts("stft", Cost.OTHER, Risk.SUM),
)
