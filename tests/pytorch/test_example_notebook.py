"""The notebook in examples/torch: every cell runs, and what a cell ends with shows itself."""

import ast
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs mezzo[torch]")

import torch

NOTEBOOK = Path(__file__).parents[2] / "examples" / "torch" / "seeing.ipynb"


def run(source: str, names: dict[str, Any]) -> object:
    """Run a cell: the value of its last line, None where that is no expression."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, str(NOTEBOOK), "exec"), names)
        return None
    tree.body.pop()
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    shown: object = eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)
    return shown


def test_every_cell_runs_and_results_show_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    torch._dynamo.reset()
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells), "a notebook is kept without outputs"
    module = ModuleType("seeing")  # Dynamo looks names up where a function says that it is of
    monkeypatch.setitem(sys.modules, "seeing", module)
    shown = [run("".join(cell["source"]), module.__dict__) for cell in cells]
    pages = [one._repr_html_() for one in shown if hasattr(one, "_repr_html_")]
    assert len(pages) == 4 and all("<table" in page and "<script" not in page for page in pages)
    assert "1.up/addmm" in pages[2] and "the error begins at 0.up" in pages[3]
    assert "layers: emulated as planned" in capsys.readouterr().out
    assert (tmp_path / "block.html").read_text().startswith("<!DOCTYPE html>")
    torch._dynamo.reset()
