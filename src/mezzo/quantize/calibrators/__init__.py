"""Calibrators choose the range of an observed tensor's integers; one file each, discovered.

Imports: `quantize/observers`, `quantize/arithmetic` and below; never another calibrator.
Add one file with a subclass of `Calibrator`, whose name is the file's, with "-"
for "_".
"""
