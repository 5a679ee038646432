"""Builds the wheel and the sdist of these sources."""

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


# What lies about in a working folder and is nobody's source.
_CACHES = shutil.ignore_patterns(".git", ".venv*", "out", "dist", ".*_cache", ".hypothesis", "__pycache__")
# Left by work there, and not to be shipped.
LEFT_BEHIND = ("out/result.onnx", "dist/old.whl", ".venv/pyvenv.cfg", "src/mezzo/__pycache__/old.pyc")


@dataclass(frozen=True, slots=True)
class Built:
    """`wheel` is made from `sdist`, `direct` from the sources themselves, which are a copy."""

    sources: Path
    sdist: Path
    wheel: Path
    direct: Path


def build(folder: Path) -> Built:
    """Build into an empty folder, without network: what builds has to be installed already."""
    for module in ("build", "hatchling"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f'{module} is not installed; pip install "mezzo[package]"')
    sources = folder / "sources"  # a copy: two builds of the same, whatever others do to the folder meanwhile
    shutil.copytree(ROOT, sources, ignore=_CACHES)
    for name in LEFT_BEHIND:
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text("left behind", encoding="utf-8")
    for place, what in (("both", ()), ("direct", ("--wheel",))):
        command = [
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            "--outdir",
            str(folder / place),
            *what,
            str(sources),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    (sdist,) = (folder / "both").glob("*.tar.gz")
    (wheel,) = (folder / "both").glob("*.whl")
    (direct,) = (folder / "direct").glob("*.whl")
    return Built(sources, sdist, wheel, direct)
