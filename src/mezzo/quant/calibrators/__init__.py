"""Ways to choose the range of a tensor, one file each, found by discovery."""
