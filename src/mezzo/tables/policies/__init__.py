"""Preset policies, one file each, found by discovery. A preset uses costs and risks, never operator
names."""
