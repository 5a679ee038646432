"""The lab of the PyTorch front end: eager, emulated, FP64, paired and instrumented runs."""
