"""Scripts beside the package (examples, benchmarks, tools) import what is there. No other test runs all of them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(path for folder in ("examples", "benchmarks", "tools") for path in (ROOT / folder).rglob("*.py"))


def file_of(module: str) -> Path | None:
    """The file of a module of the package."""
    path = ROOT / "src" / Path(*module.split("."))
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)


def names_of(module: str) -> set[str]:
    """What a module binds at its top, under conditions too, or holds as modules of its own."""
    path = file_of(module)
    assert path is not None, module
    bound = {one.stem if one.is_file() else one.name for one in path.parent.iterdir() if path.name == "__init__.py"}
    pending: list[ast.stmt] = [*ast.parse(path.read_text(encoding="utf-8")).body]
    while pending:
        match pending.pop():
            case ast.If(body=body, orelse=other) | ast.Try(body=body, orelse=other):
                pending += [*body, *other]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                bound |= {(alias.asname or alias.name).split(".")[0] for alias in aliases}
            case ast.Assign(targets=targets):
                bound |= {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                bound.add(name)
    return bound


def missing_from(text: str) -> Iterator[str]:
    """What a script imports of the package that is not there."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "mezzo":
            has = names_of(node.module) if file_of(node.module) else set()
            late = "__getattr__" in has  # names of `import mezzo` are loaded when they are asked for
            yield from (f"{node.module}.{one.name}" for one in node.names if not late and one.name not in has)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.split(".")[0] == "mezzo" and not file_of(one.name))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_imports_what_the_package_has(path: Path) -> None:
    assert [*missing_from(path.read_text(encoding="utf-8"))] == []


def test_what_is_not_there_is_found() -> None:
    assert [*missing_from("from mezzo.common.sizes import format_size, no_such")] == ["mezzo.common.sizes.no_such"]
    assert [*missing_from("import mezzo.no_such\nfrom mezzo.gone import any")] == ["mezzo.no_such", "mezzo.gone.any"]
