"""mezzo --version: mezzo and what it stands on, without importing any of it."""

from importlib.metadata import PackageNotFoundError, version

import typer

from mezzo import __version__
from mezzo.cli.console import print_text

_PACKAGES = ("onnx", "onnx-ir", "numpy", "scipy", "onnxruntime")


def print_versions(is_wanted: bool) -> None:
    """Print one package per line, name first, and end the program, if asked to."""
    if not is_wanted:
        return
    print_text("\n".join([f"mezzo {__version__}", *(f"{name} {_find_version(name)}" for name in _PACKAGES)]))
    raise typer.Exit()


def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "is not installed"
