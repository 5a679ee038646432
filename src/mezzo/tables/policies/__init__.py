"""Presets, one file each, found by discovery. A preset speaks of costs and risks, never of operator names."""
