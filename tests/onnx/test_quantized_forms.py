"""Quantized forms, as edits put them into models: text in, edits by name, typed text out, one file per case.

A case is comment lines, options (`low`: what counts as low already; `sparse`: a weight to hold sparse), and the
sections `before`, `edits` (as `quantized_cases` reads them) and `after`.

    python tests/onnx/test_quantized_forms.py --write

writes what is expected anew. Read what it wrote: the tests only hold it.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import onnx
import onnx.checker
import onnx.parser
import pytest
from quantized_cases import carry_out, make_sparse

import mezzo
from mezzo.formats.dtypes import DType
from mezzo.onnx.run.session import Engine, native_session

_FOLDER = Path(__file__).parent / "quantized"


class Case(NamedTuple):
    """One file."""

    path: Path
    head: str
    options: dict[str, str]
    sections: dict[str, str]

    def model(self) -> onnx.ModelProto:
        model = onnx.parser.parse_model(self.sections["before"])
        if "sparse" in self.options:
            make_sparse(model.graph, self.options["sparse"])
        return model

    def result(self) -> onnx.ModelProto:
        return carry_out(self.model(), self.sections["edits"], DType(self.options.get("low", "int8")))


def read_case(path: Path) -> Case:
    """Parse a file."""
    head, *parts = path.read_text(encoding="utf-8").split("--- ")
    options = dict(line.split(": ") for line in head.splitlines() if not line.startswith("#"))
    sections = dict(part.split("\n", 1) for part in parts)
    assert list(sections) == ["before", "edits", "after"], f"{path} has the sections {list(sections)}"
    return Case(path, head, options, sections)


CASES = [read_case(path) for path in sorted(_FOLDER.glob("*.txt"))]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.path.stem)


@each_case
def test_edits_make_what_the_file_says(case: Case) -> None:
    assert mezzo.show(case.result()) == case.sections["after"]


@each_case
def test_result_is_valid_and_loads(case: Case) -> None:
    result = case.result()
    onnx.checker.check_model(result, full_check=True)
    assert result.SerializeToString(deterministic=True) == case.result().SerializeToString(deterministic=True)
    if "bf16" not in case.sections["after"]:  # ONNX Runtime has no kernels for it
        native_session(result, Engine.ONNXRUNTIME)


def _write() -> None:
    for case in CASES:
        parts = {**case.sections, "after": mezzo.show(case.result())}
        text = case.head + "".join(f"--- {name}\n{part}" for name, part in parts.items())
        case.path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    assert sys.argv[1:] == ["--write"], __doc__
    _write()
