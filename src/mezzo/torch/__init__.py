"""mezzo for PyTorch users. It imports torch; `import mezzo` does not."""

from mezzo.torch.regions import Region, keep, precision

__all__ = ["Region", "keep", "precision"]
