"""The lab of the PyTorch front end: programs run eagerly, in true rounding, in FP64, side by side and measured."""
