"""Calibrators: from an observed tensor to the range that its integers cover, one file each, found by discovery.

Imports: `quantize/observers`, `quantize/arithmetic` and below; never another calibrator.
Add one file with a subclass of `Calibrator`, whose name is the file's.
"""
