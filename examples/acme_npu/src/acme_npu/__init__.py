"""What ACME's NPU runs. mezzo finds it by the entry points in pyproject.toml."""
