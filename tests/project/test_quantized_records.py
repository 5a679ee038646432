"""Rows of quantized kernels against what runtimes said: tests/onnx/quantized_records, written by
tools/quantized_records.py with the version and the machine's features.
"""

import re
from functools import cache
from pathlib import Path

import pytest
from probe.ask_quantized import claiming, ways
from probe.quantized_cases import quantized_forms
from probe.quantized_forms import Form, Way

from mezzo.plugins import discovery

FOLDER = Path(__file__).parent / "quantized_records"
RECORDED = [path.stem for path in sorted(FOLDER.glob("*.tsv"))]
by_target = pytest.mark.parametrize("name", RECORDED)

# What runs on integers and has no row, by what the text of its form holds, and why.
LEFT_OUT: dict[str, dict[str, str]] = {
    "onnxruntime-cpu": {
        "bias float": "it quantizes a bias by itself where a Quantize follows, and runs in floats where none does",
        "> Add at": "the same",
        " i8 weight by axis": "symmetric weights serve every runtime",
        " u8 weight": "the same",
        "Gemm(12 x 32 i8": "S8 fails for a MatMul with a bias at opset 21, which is run as this",
        "Gemm transB=1(12 x 32 i8": "the same",
        "MatMul(2 x 12 x 32 i8": "at opset 21: output_dtype INT8 does not match y_zero_point type UINT8",
        "Pad(": "a Conv behind it takes it in; nothing else reads it on integers",
    },
    "openvino-cpu": {
        "> Softplus": "only with floats behind it",
        "> Relu at": "it runs where a Quantize follows, and not where floats do",
        **dict.fromkeys(
            ("Abs(", "BatchNormalization(", "Clip(", "Elu(", "HardSwish(", "Neg(", "Relu(", "Sigmoid(", "Tanh("),
            "floats inside, between eight bits that are read and made: nothing is gained, and what is read is rounded",
        ),
        "Div(": "a quotient of what is stored in steps",
        "Max(": "floats inside",
        "Min(": "the same",
        "Erf(": "floats inside",
        "Exp(": "the same",
        "Pad(": "what it pads with is no attribute, and may be anything",
        "Concat ": "the row tells what goes wrong beside U8 with zero at zero and one range",
    },
}

# Whose rows take no data in S8: what a form with such data says alone is not what it says beside others.
WITHOUT_S8 = {"openvino-cpu": "right as it stands, and wrong once a Concat is somewhere behind it"}
_S8_DATA = re.compile(r" i8( symmetric)?[,)]")


@cache
def forms() -> tuple[tuple[Form, Way], ...]:
    return tuple({(str(form), way): (form, way) for form in quantized_forms() for way in ways(form)}.values())


@cache
def record(name: str) -> dict[tuple[str, str], str]:
    lines = (FOLDER / f"{name}.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return {(form, way): said for form, way, said in (line.split("\t") for line in lines)}


@by_target
def test_record_is_of_every_form_in_every_way(name):
    assert record(name).keys() == {(str(form), way.value) for form, way in forms()}


@by_target
def test_what_a_row_claims_runs_on_integers_and_answers_right(name):
    target, said = discovery.target(name), record(name)
    wrong = {
        (str(form), way.value): said[str(form), way.value]
        for form, way in forms()
        if claiming(target, form, way) is not None and said[str(form), way.value] != "runs"
    }
    assert not wrong


@by_target
def test_what_runs_on_integers_has_a_row(name):
    target, said = discovery.target(name), record(name)
    unclaimed = [
        str(form)
        for form, way in forms()
        if said[str(form), way.value] == "runs" and not any(claiming(target, form, one) for one in Way)
    ]
    reasons = LEFT_OUT[name]
    if name in WITHOUT_S8:
        assert any(_S8_DATA.search(text) for text in unclaimed), f"{WITHOUT_S8[name]}: out of date"
        unclaimed = [text for text in unclaimed if not _S8_DATA.search(text)]
    assert not [text for text in unclaimed if not any(part in text for part in reasons)]
    assert not [part for part in reasons if not any(part in text for text in unclaimed)], "reasons that are out of date"


@by_target
def test_every_row_was_asked_about(name):
    target = discovery.target(name)
    asked = {id(row) for form, way in forms() if (row := claiming(target, form, way)) is not None}
    assert [row for row in target.quantized if id(row) not in asked] == []


@by_target
def test_rows_are_of_the_version_that_was_asked(name):
    head = (FOLDER / f"{name}.tsv").read_text(encoding="utf-8").splitlines()[0]
    versions = {row.since.split()[-1] for row in discovery.target(name).quantized}
    assert len(versions) == 1 and versions <= set(head.replace("-", " ").split()), head
