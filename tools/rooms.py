"""Counts the rooms of a checkout: folders and files of the package, the floors they stand on, and who imports whom.

    python tools/rooms.py [CHECKOUT...]

A room is a folder or a file of src/mezzo; a room stands one floor above the highest of those that it imports, late
imports and those for types counted. Circles of files are counted without packages' faces.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

Graph = dict[str, set[str]]


def imports(package: Path) -> Graph:
    """What each module of a package imports of it, by names without the package's own."""
    trees = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        trees[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text(encoding="utf-8"))
    found: Graph = {}
    for module, tree in trees.items():
        names = {name.removeprefix(f"{package.name}.") for name in _named(tree) if name.startswith(f"{package.name}.")}
        # `from mezzo.contracts import graph` names a module, `from mezzo.ir.graph import Graph` something inside one.
        found[module] = {name if name in trees else name.rpartition(".")[0] for name in names} & trees.keys() - {module}
    return found


def _named(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms(modules: Mapping[str, set[str]]) -> Graph:
    """Which rooms each room imports; the package's own face is none."""
    found: Graph = {module.partition(".")[0]: set() for module in modules if module}
    for module, read in modules.items():
        room = module.partition(".")[0]
        if room:
            found[room] |= {other.partition(".")[0] for other in read} - {room, ""}
    return found


def among_files(modules: Mapping[str, set[str]]) -> Graph:
    """Which files import which. Packages' faces, which hand names on, are left out."""
    faces = {name.rpartition(".")[0] for name in modules}
    return {name: read - faces for name, read in modules.items() if name not in faces}


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Ways round through nodes that import each other: one is told, its nodes are left out, and so on until none is."""
    left = dict(graph)
    found: list[list[str]] = []
    while True:
        try:
            TopologicalSorter({name: read & left.keys() for name, read in left.items()}).prepare()
        except CycleError as error:
            ring = list(dict.fromkeys(error.args[1]))
            found.append(ring)
            left = {name: read for name, read in left.items() if name not in ring}
        else:
            return found


def floors(graph: Mapping[str, set[str]]) -> int:
    """How many floors there are. Raises CycleError: circles leave it open."""
    floor: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        floor[name] = 1 + max((floor[read] for read in graph[name]), default=0)
    return max(floor.values(), default=0)


def main() -> int:
    """Print a line for each checkout."""
    for checkout in sys.argv[1:] or ["."]:
        modules = imports(Path(checkout, "src", "mezzo"))
        top = rooms(modules)
        among_rooms, rings = circles(top), circles(among_files(modules))
        told = f"{len(among_rooms)} circles among them" if among_rooms else f"{floors(top)} floors"
        print(
            f"{checkout}: {len(modules)} files in {len(top)} rooms, {told}, {sum(map(len, top.values()))} arrows; "
            f"{len(rings)} circles of files"
        )
        for ring in rings:
            print("  " + " -> ".join(ring))
    return 0


if __name__ == "__main__":
    sys.exit(main())
