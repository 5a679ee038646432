"""What comes with mezzo and what other packages add, found by name."""
