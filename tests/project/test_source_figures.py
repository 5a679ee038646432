"""The figures of the source that docs/figures/the-code.md gives: packages small enough to count by hand."""

import subprocess
import sys
from pathlib import Path

import pytest
from package_graph import count_layers, cycles, imports, top_packages, without_inits

_TOOLS = Path(__file__).parents[2] / "tools"


@pytest.mark.parametrize(
    ("files", "imported", "cycles_of_files", "layers"),
    [
        (
            {
                "base.py": "",
                "low/one.py": "from mezzo.base import x",
                "high/two.py": "def late():\n    from mezzo.low import one",
                "high/three.py": "import mezzo.high.two, os",
            },
            {"base": set(), "low": {"base"}, "high": {"low"}},
            [],
            3,
        ),
        (
            {
                "a.py": "from mezzo.b import x",
                "b.py": "if TYPE_CHECKING:\n    import mezzo.a",
                "c.py": "import mezzo.a",
            },
            {"a": {"b"}, "b": {"a"}, "c": {"a"}},
            [["a", "b"]],
            None,
        ),
        ({"a/__init__.py": "from mezzo.a.one import x", "a/one.py": "import mezzo.a"}, {"a": set()}, [], 1),
    ],
)
def test_layers_and_cycles_are_counted(
    tmp_path: Path,
    files: dict[str, str],
    imported: dict[str, set[str]],
    cycles_of_files: list[list[str]],
    layers: int | None,
) -> None:
    package = tmp_path / "mezzo"
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in (path.parent, package):
            (folder / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")
    graph = imports(package)
    top = top_packages(graph)
    assert top == imported
    assert [sorted(cycle) for cycle in cycles(without_inits(graph))] == cycles_of_files
    if layers is not None:
        assert count_layers(top) == layers


def test_source_figures_are_those_of_a_package_small_enough_to_count(tmp_path: Path) -> None:
    package = tmp_path / "src" / "mezzo"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("class A:\n    pass\n\n\ndef _once():\n    return 1  # beside it\n\n\nx = _once()\n")
    (package / "b.py").write_text("from mezzo.a import x\n\n\nclass A:\n    y = x\n")
    command = [sys.executable, str(_TOOLS / "source_figures.py"), str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cells = dict(line.strip("| ").split(" | ") for line in printed.splitlines()[2:])
    assert cells == {
        "modules": "3",
        "lines": "14",
        "syntax nodes": "14",
        "nodes a line": "1.00",
        "functions over 60 lines": "0",
        "private functions with one caller": "1 of 1",
        "modules under 80 lines that one imports": "1",
        "class names that several modules define": "1",
        "private words": "beside 1, told 0, stands 0, nobody 0, whoever 0, somebody 0",
        "packages": "2",
        "layers": "2",
        "imports among packages": "1",
        "import cycles of files": "0",
        "most files in a folder": "2",
    }
