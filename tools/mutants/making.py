"""Makes mutants of a file: every place changed by every one of mutmut's operators that fits it."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src" / "mezzo"


@dataclass(frozen=True)
class Mutant:
    """One change of a file. `before` and `after` are the changed lines; `is_inside` a function, or else it runs at
    import. `code` is the whole file.
    """

    module: str
    line: int
    last_line: int
    is_inside: bool
    before: str
    after: str
    code: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before}  ->  {self.after}"


def mutants_of(path: Path) -> list[Mutant]:
    """Every mutant of a file, in its order. Types, log lines and assertions, which speak to ourselves, stay."""
    text = path.read_text(encoding="utf-8")
    wrapper = MetadataWrapper(cst.parse_module(text))
    finder = _Finder()
    wrapper.visit(finder)
    bodies = _bodies(ast.parse(text))
    starts = [0, *accumulate(len(line) for line in text.splitlines(keepends=True))]
    found, seen = [], {text}
    for node, mutated, place in finder.found:
        begin, end = (starts[at.line - 1] + at.column for at in (place.start, place.end))
        if text[begin:end] == wrapper.module.code_for_node(node):
            code = text[:begin] + wrapper.module.code_for_node(mutated) + text[end:]
        else:  # it has an indentation or parentheses of its own: slow, and always right
            code = wrapper.module.deep_replace(node, mutated).code
        if code in seen:
            continue
        seen.add(code)
        at = place.start.line, place.start.column
        is_inside = any(first <= at < last for first, last in bodies)
        found.append(Mutant(name_of(path), at[0], place.end.line, is_inside, *_difference(text, code), code))
    return sorted(found, key=lambda mutant: mutant.line)


class _Finder(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[cst.CSTNode, cst.CSTNode, CodeRange]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.Import | cst.ImportFrom | cst.Assert):
            return False
        if isinstance(node, cst.If) and _root(node.test) == "TYPE_CHECKING":
            return False
        if isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString | cst.ConcatenatedString):
            return False
        if isinstance(node, cst.Call) and _root(node.func) in ("len", "isinstance", "super", "_log"):
            return False
        place = self.get_metadata(PositionProvider, node, None)
        for kind, operator in mutation_operators:
            if isinstance(node, kind) and isinstance(place, CodeRange):
                self.found += [(node, mutated, place) for mutated in operator(node)]
        return True


def _root(node: cst.CSTNode) -> str:
    while isinstance(node, cst.Attribute):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


def _bodies(tree: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where the bodies of functions begin and end; what stands between goes with the function's code."""
    return [
        ((node.body[0].lineno, node.body[0].col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]


def _difference(before: str, after: str) -> tuple[str, str]:
    """The lines that differ, on one line each."""
    old, new = before.splitlines(), after.splitlines()
    first = _common(zip(old, new, strict=False))
    last = min(_common(zip(old[:first:-1], new[:first:-1], strict=False)), len(old) - first - 1)
    parts = old[first : len(old) - last], new[first : len(new) - last]
    return " ".join(map(str.strip, parts[0])), " ".join(map(str.strip, parts[1]))


def _common(pairs: Iterator[tuple[str, str]]) -> int:
    """How many pairs at the beginning are of two that are alike."""
    count = 0
    for one, other in pairs:
        if one != other:
            break
        count += 1
    return count


def name_of(path: Path) -> str:
    """The module that a file is."""
    name = path.relative_to(SOURCE.parent).with_suffix("").as_posix().replace("/", ".")
    return name.removesuffix(".__init__")


def path_of(module: str) -> Path:
    """The file that a module is."""
    plain = SOURCE.parent / f"{module.replace('.', '/')}.py"
    return plain if plain.exists() else plain.with_suffix("") / "__init__.py"


def means_the_same(mutant: Mutant) -> bool:
    """Whether only the spelling differs, or `strict=True`, which asserts something to ourselves."""
    if not re.search(r"strict=|\d[eE]\d", mutant.before):  # which is all that is ever spelled otherwise
        return False
    return _meaning(mutant.code) == _meaning(path_of(mutant.module).read_text(encoding="utf-8"))


def _meaning(code: str) -> str:
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "strict"]
    return ast.dump(tree)
