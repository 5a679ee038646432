"""Preset policies, one file each: rules by cost and risk, never by operator name."""
