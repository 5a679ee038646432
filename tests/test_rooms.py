"""The count of rooms that docs/figures.md gives: floors and circles of packages small enough to count by hand."""

import subprocess
import sys
from pathlib import Path

import pytest

_TOOL = Path(__file__).parents[1] / "tools" / "rooms.py"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            {
                "base.py": "",
                "low/one.py": "from mezzo.base import x",
                "high/two.py": "def late():\n    from mezzo.low import one",
                "high/three.py": "import mezzo.high.two, os",
            },
            "7 files in 3 rooms, 3 floors, 2 arrows; 0 circles of files",
        ),
        (
            {
                "a.py": "from mezzo.b import x",
                "b.py": "if TYPE_CHECKING:\n    import mezzo.a",
                "c.py": "import mezzo.a",
            },
            "4 files in 3 rooms, 1 circles among them, 3 arrows; 1 circles of files",
        ),
        (
            {"a/__init__.py": "from mezzo.a.one import x", "a/one.py": "import mezzo.a"},
            "3 files in 1 rooms, 1 floors, 0 arrows; 0 circles of files",
        ),
    ],
)
def test_floors_and_circles_are_counted(tmp_path: Path, files: dict[str, str], told: str) -> None:
    for name, text in files.items():
        path = tmp_path / "src" / "mezzo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in (path.parent, tmp_path / "src" / "mezzo"):
            (folder / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, _TOOL, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == f"{tmp_path}: {told}"


def test_source_figures_are_those_of_a_package_small_enough_to_count(tmp_path: Path) -> None:
    package = tmp_path / "src" / "mezzo"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("class A:\n    pass\n\n\ndef _once():\n    return 1  # beside it\n\n\nx = _once()\n")
    (package / "b.py").write_text("from mezzo.a import x\n\n\nclass A:\n    y = x\n")
    command = [sys.executable, str(_TOOL.with_name("source_figures.py")), str(tmp_path)]
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
        "floors": "2",
        "arrows": "1",
        "circles of files": "0",
        "most files in a folder": "2",
    }
