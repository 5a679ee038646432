"""Targets, one file each, found by discovery."""
