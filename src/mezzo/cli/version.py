"""mezzo --version: mezzo and what it stands on, without importing any of it."""

from importlib.metadata import PackageNotFoundError, version

import typer

from mezzo import __version__

_PACKAGES = ("onnx", "onnx-ir", "numpy", "scipy", "onnxruntime")


def print_versions(is_wanted: bool) -> None:
    """Print one package per line, name first, and end the program, if asked to."""
    if not is_wanted:
        return
    print("mezzo", __version__)
    for package in _PACKAGES:
        print(package, _find_version(package))
    raise typer.Exit()


def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "is not installed"
