"""Says what an installation of mezzo is for, in MB: each package that the base install brings, and why.

    python -m venv fresh && fresh/bin/pip install . && fresh/bin/python benchmarks/install_size.py
    python benchmarks/install_size.py --of mezzo onnx-ir

What is counted are the files that each package's own record lists, compiled modules with them, in blocks as a disk
holds them. A package that several ask for is counted once, with the first that asks. Extras of packages are left out,
and so is what pip itself brings.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from mezzo.common.packages import PACKAGES

_BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Row:
    """One package: its size on a disk, who asks for it, and what it is there for where mezzo itself asks."""

    name: str
    version: str
    size_bytes: int
    asked_by: str

    @property
    def purpose(self) -> str:
        """What it is for."""
        purposes = {_normal(package.name): package.purpose for package in PACKAGES.values()}
        return purposes[self.name] if self.asked_by == "mezzo" and self.name in purposes else f"for {self.asked_by}"


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--of", nargs="+", default=["mezzo"], metavar="PACKAGE", help="installed packages to start from"
    )
    rows = measure(parser.parse_args().of)
    print("| package | MB | what for |\n|---|---|---|")
    for row in sorted(rows, key=lambda row: -row.size_bytes):
        print(f"| {row.name} {row.version} | {row.size_bytes / 1e6:.1f} | {row.purpose} |")
    print(f"| all | {math.fsum(row.size_bytes for row in rows) / 1e6:.0f} | |")


def measure(names: Sequence[str]) -> list[Row]:
    """Walk from the packages to all that they ask for, nearest first."""
    rows: dict[str, Row] = {}
    unseen = [(name, "you") for name in names]
    while unseen:
        name, asked_by = unseen.pop(0)
        if _normal(name) in rows:
            continue
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise SystemExit(f"{name}, for {asked_by}, is not installed here; install mezzo afresh") from None
        rows[_normal(name)] = Row(_normal(name), found.version, _size(found), asked_by)
        unseen += [(needed, _normal(name)) for needed in _needed(found)]
    return list(rows.values())


def _needed(found: metadata.Distribution) -> Iterator[str]:
    for line in found.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name


def _size(found: metadata.Distribution) -> int:
    """Bytes of a package's files on a disk; of an editable install what stands in its folder is not counted."""
    held = [Path(str(found.locate_file(file))) for file in found.files or ()]
    compiled = f".cpython-{sys.version_info[0]}{sys.version_info[1]}.pyc"
    sizes = [path.stat().st_size for path in held if path.is_file()]
    listed = set(held)
    for path in listed:
        cached = path.parent / "__pycache__" / (path.stem + compiled)
        if path.suffix == ".py" and cached not in listed and cached.is_file():
            sizes.append(cached.stat().st_size)
    return sum(-(-size // _BLOCK_BYTES) * _BLOCK_BYTES for size in sizes)


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


if __name__ == "__main__":
    main()
