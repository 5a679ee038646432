"""Where the examples are, how a test gets one, and how far another program's answer may be from the references."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "neighbours"
INSTALLED = ROOT / "out" / "neighbours"
REMEDY = "make neighbours-test installs it"

# Unit roundoffs: the largest relative error of one rounding.
FP16, BF16 = 2.0**-11, 2.0**-8

# Fewer than 64 roundings lie between an input and an output of the small models here. Their errors have no common sign,
# so they add up as the root of their number, and the norms that stand between keep them from growing.
ROUNDINGS = 64**0.5


def example(path: str) -> ModuleType:
    """A script of examples/neighbours as a module. Skips where a package it stands on is missing."""
    # Not the folder above: its folders are named like packages, and would be found in their place.
    if (shared := str(EXAMPLES / "shared")) not in sys.path:
        sys.path.append(shared)
    name = "neighbours_" + path.removesuffix(".py").replace("/", "_").replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        pytest.skip(f"needs the Python package {error.name}: {REMEDY}")
    return module
