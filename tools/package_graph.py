"""The import graph of mezzo's packages: layers and import cycles. Late imports and those for type checking count."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

Graph = dict[str, set[str]]
# Where a statement holds other statements.
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")


def imports(package: Path) -> Graph:
    """The modules of a package that each of its modules imports, without the package's name in front."""
    return graph_of(package.name, parsed(package))


def parsed(package: Path) -> dict[str, ast.Module]:
    """Every module of a package by its name without the package's, parsed."""
    trees = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        trees[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def graph_of(package: str, trees: Mapping[str, ast.Module]) -> Graph:
    """The imports among the parsed modules of a package."""
    prefix = f"{package}."
    graph: Graph = {}
    for module, tree in trees.items():
        names = {name.removeprefix(prefix) for name in _imported(tree) if name.startswith(prefix)}
        # `from mezzo.contracts import graph` names a module, `from mezzo.ir.graph import Graph` a class inside one.
        graph[module] = {name if name in trees else name.rpartition(".")[0] for name in names} & trees.keys() - {module}
    return graph


def _imported(tree: ast.AST) -> Iterable[str]:
    for node in imports_below(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_below(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements below a node, in functions too. Expressions, nine nodes of ten, hold none."""
    for block in _BLOCKS:
        for node in getattr(tree, block, ()):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node
            else:
                yield from imports_below(node)


def top_packages(modules: Mapping[str, set[str]]) -> Graph:
    """The top packages that each top package imports; the whole package's own files are left out."""
    graph: Graph = {}
    for module, imported in modules.items():
        top = module.partition(".")[0]
        if top and top != "__main__":
            graph.setdefault(top, set()).update({name.partition(".")[0] for name in imported} - {top, ""})
    return graph


def without_inits(modules: Mapping[str, set[str]]) -> Graph:
    """The graph of files alone: a package's `__init__` re-exports names, and would close cycles that no file has."""
    inits = {name.rpartition(".")[0] for name in modules}
    return {name: imported - inits for name, imported in modules.items() if name not in inits}


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Import cycles without common nodes: each is removed once it is found, until none is left."""
    remaining = dict(graph)
    result: list[list[str]] = []
    while True:
        try:
            TopologicalSorter({name: imported & remaining.keys() for name, imported in remaining.items()}).prepare()
        except CycleError as error:
            cycle = list(dict.fromkeys(error.args[1]))
            result.append(cycle)
            remaining = {name: imported for name, imported in remaining.items() if name not in cycle}
        else:
            return result


def count_layers(graph: Mapping[str, set[str]]) -> int:
    """The length of the longest chain of imports. Raises CycleError."""
    layer: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        layer[name] = 1 + max((layer[imported] for imported in graph[name]), default=0)
    return max(layer.values(), default=0)
