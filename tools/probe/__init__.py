"""Questions for runtimes: which operators they run in low precision or on integers, asked by small models."""
