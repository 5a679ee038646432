"""Fusion patterns, one file per family, found by discovery."""
