"""Distributions that are installed into a folder: what pip leaves there, and nothing else."""

import textwrap
from collections.abc import Mapping
from pathlib import Path


def install(
    folder: Path, name: str, points: Mapping[str, Mapping[str, str]], files: Mapping[str, str], version: str = "1.0"
) -> None:
    """Lay out a package's files and its metadata. `points`: places by name by group of entry points."""
    module = name.replace("-", "_")
    metadata = folder / f"{module}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    sections = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in named.items()) for group, named in points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(sections))
    for place, text in files.items():
        path = folder / module / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
