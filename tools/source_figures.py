"""Counts what a checkout's package costs its readers: modules, lines, syntax nodes, long functions, repeated names.

    python tools/source_figures.py [CHECKOUT...]

Nodes are statements and expressions of Python's syntax tree. A private function has one caller where its name is read
once in the package. A class name is repeated where several modules define it. Private words are those that a reader
of the field's literature would not look for, in comments, docstrings and names.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from package_graph import count_layers, cycles, imports, top_packages, without_inits

_LONG = 60  # lines of a function
_SHORT = 80  # lines of a module that one other module imports
# Words that plain English has a term for, and the term.
PRIVATE_WORDS = {
    "beside": "next to, compared with",
    "told": "reported",
    "stands": "is",
    "nobody": "no caller, nothing",
    "whoever": "the caller",
    "somebody": "a user, a caller",
}


def measure(package: Path) -> Mapping[str, str]:
    """The figures of one package, by what they count."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lines = sum(text.count("\n") for text in texts.values())
    every = [node for tree in trees.values() for node in ast.walk(tree)]
    nodes = sum(isinstance(node, ast.stmt | ast.expr) for node in every)
    functions = [node for node in every if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [node for node in functions if (node.end_lineno or node.lineno) - node.lineno >= _LONG]
    private = [node.name for node in functions if node.name.startswith("_") and not node.name.startswith("__")]
    words = Counter(word for text in texts.values() for word in re.findall(r"\w+", text))
    classes = Counter(node.name for node in every if isinstance(node, ast.ClassDef))
    graph = imports(package)
    top = top_packages(graph)
    readers = Counter(read for reads in graph.values() for read in reads)
    small = [path for path, text in texts.items() if text.count("\n") < _SHORT and path.name != "__init__.py"]
    names = {path: ".".join(path.relative_to(package).with_suffix("").parts) for path in small}
    return {
        "modules": f"{len(texts):,}",
        "lines": f"{lines:,}",
        "syntax nodes": f"{nodes:,}",
        "nodes a line": f"{nodes / lines:.2f}",
        f"functions over {_LONG} lines": f"{len(long):,}",
        "private functions with one caller": f"{sum(words[name] == 2 for name in private):,} of {len(private):,}",
        f"modules under {_SHORT} lines that one imports": f"{sum(readers[name] == 1 for name in names.values()):,}",
        "class names that several modules define": f"{sum(count > 1 for count in classes.values()):,}",
        "private words": ", ".join(f"{word} {words[word]}" for word in PRIVATE_WORDS),
        "packages": f"{len(top)}",
        "layers": f"{count_layers(top)}",
        "imports among packages": f"{sum(map(len, top.values()))}",
        "import cycles of files": f"{len(cycles(without_inits(graph)))}",
        "most files in a folder": f"{max(Counter(path.parent for path in texts if path.stem != '__init__').values())}",
    }


def main(checkouts: Sequence[str]) -> None:
    columns = [measure(Path(checkout) / "src" / "mezzo") for checkout in checkouts or ["."]]
    print(f"| | {' | '.join(checkouts or ['.'])} |\n|---|{'---|' * len(columns)}")
    for name in columns[0]:
        print(f"| {name} | {' | '.join(column[name] for column in columns)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
