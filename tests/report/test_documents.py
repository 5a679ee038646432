"""The account is one document for every command: complete, as its schema says, and readable by any JSON parser."""

import json
import math
import re
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from samples import (
    BROKEN,
    MEASURED,
    PROTECTED,
    RANGES,
    SAME,
    SENSITIVITY,
    SUMMARY,
    make_plan,
)

from mezzo.common.machine import Machine
from mezzo.contracts.plans import Accumulation
from mezzo.formats.dtypes import DType
from mezzo.numerics import measures
from mezzo.report.records.account import (
    describe_comparison,
    describe_conversion,
    describe_ranges,
    describe_sensitivity,
    describe_tuning,
    schema,
)
from mezzo.report.records.documents import encode, number, to_json
from mezzo.report.records.groups import NamedNode
from mezzo.tables.quantized_kernels import Storage

NAMES = ("in.onnx", "out.onnx")


MACHINE = Machine("x86_64", ("avx2", "amx_bf16"))
DOCUMENTS: dict[str, Any] = {
    "convert": describe_conversion(*NAMES, make_plan(), SUMMARY),
    "convert with data": describe_conversion(*NAMES, make_plan(PROTECTED), SUMMARY, MEASURED, machine=MACHINE),
    "convert without floats": describe_conversion(*NAMES, make_plan(), replace(SUMMARY, opset_before=None)),
    "compare": describe_comparison(*NAMES, SAME, settings=[("max_error", "1e-3")]),
    "compare broken": describe_comparison(*NAMES, BROKEN, accumulation=Accumulation(DType.BFLOAT16, 128)),
    "compare natively": describe_comparison(*NAMES, replace(SAME, run="native", metric=None, outputs=(), layers=())),
    "ranges": describe_ranges("in.onnx", RANGES),
    "sensitivity": describe_sensitivity("in.onnx", SENSITIVITY, notes=["a note"]),
    "tune": describe_tuning(*NAMES, make_plan(), SUMMARY, MEASURED),
    "tune that found nothing": describe_tuning(*NAMES, make_plan(), SUMMARY, measures.Measured()),
}


def strict_json(text: str) -> object:
    """Parse as other languages do: NaN and Infinity are no JSON."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_is_as_the_schema_says(name):
    jsonschema.Draft202012Validator(schema()).validate(strict_json(json.dumps(DOCUMENTS[name])))


def test_schema_is_a_schema_and_knows_no_field_it_does_not_tell():
    jsonschema.Draft202012Validator.check_schema(schema())
    for place, part in _objects(schema(), "#"):
        if part.get("type") == "object" and "properties" in part:
            assert part["additionalProperties"] is False, place
            assert sorted(part["required"]) == sorted(part["properties"]), place
            missing = [name for name, field in part["properties"].items() if not field.get("description")]
            assert not missing, f"{place}: {missing} have no description"


def test_schema_names_every_type_that_a_node_may_run_in():
    assert schema()["$defs"]["dtype"]["enum"] == [str(dtype) for dtype in DType]


def _objects(part: object, place: str):
    if isinstance(part, dict):
        yield place, part
        for name, inner in part.items():
            yield from _objects(inner, f"{place}/{name}")
    if isinstance(part, list):
        for number_, inner in enumerate(part):
            yield from _objects(inner, f"{place}/{number_}")


@pytest.mark.parametrize("place", ["", "errors", "search", "decisions/0", "ranges/values/0", "frontier/1"])
def test_schema_refuses_a_document_with_a_field_too_many_or_too_few(place):
    validator = jsonschema.Draft202012Validator(schema())
    for change in (lambda part: part.update(stranger=1), lambda part: part.pop(next(iter(part)))):
        document = json.loads(json.dumps(DOCUMENTS["tune"]))
        part = document
        for step in filter(None, place.split("/")):
            part = part[int(step) if step.isdigit() else step]
        change(part)
        assert not validator.is_valid(document)


def test_every_document_has_the_same_sections_in_the_same_order():
    assert len({tuple(document) for document in DOCUMENTS.values()}) == 1
    assert tuple(DOCUMENTS["tune"]) == tuple(schema()["properties"])


@pytest.mark.parametrize(
    ("measure", "definition"),
    [
        (measures.DataSource, "data"),
        (measures.Interval, "interval"),
        (measures.FormatRange, "format_range"),
        (measures.ValueRange, "value_range"),
        (measures.Ranges, "ranges"),
        (measures.Deviation, "deviation"),
        (measures.Verdict, "verdict"),
        (measures.MetricResult, "metric"),
        (measures.UnitError, "unit_error"),
        (measures.Sensitivity, "sensitivity"),
        (measures.NodeCost, "node_cost"),
        (measures.CostTable, "costs"),
        (measures.FrontierPoint, "frontier_point"),
        (measures.SearchRecord, "search"),
    ],
)
def test_nothing_measured_is_left_out(measure, definition):
    assert is_dataclass(measure)
    missing = {field.name for field in fields(measure)} - schema()["$defs"][definition]["properties"].keys()
    assert not missing


def test_measured_numbers_stand_where_the_schema_says():
    document = DOCUMENTS["tune"]
    assert document["data"] == {"name": "calib.npz", "batches": 4, "samples": 128, "seed": None}
    squares = document["ranges"]["values"][1]
    assert squares["maximum"] == 2.5e6 and squares["formats"]["f16"]["beyond"] == 0.75
    assert list(squares["formats"]) == ["f16", "bf16"]
    assert document["ranges"]["limits"]["f16"] == {
        "largest": 65504, "smallest_normal": 6.10351562e-05, "smallest": 5.96046448e-08,
    }  # fmt: skip
    assert document["errors"]["verdict"]["error"]["estimate"] == 3.1e-4
    assert document["errors"]["begins"] is None and DOCUMENTS["compare broken"]["errors"]["begins"] == "layer_7"
    assert document["sensitivity"]["units"][0]["error"] == "inf"
    assert [point["weight"] for point in document["frontier"]] == [0, 1e8, 1e9, 1e11, "inf"]
    assert document["costs"]["nodes"][0] == {"node": "mm", "high": 4e6, "low": 2e6}
    assert document["search"]["held_out_error"] == 8.1e-4
    assert document["notes"] == ["a note of the plan", "the last quarter was held out", "y was compared as f32"]


def test_decisions_are_those_of_the_plan():
    document = DOCUMENTS["convert with data"]
    assert [node["name"] for node in document["decisions"]] == ["input x", "mm", "sum", "sm", "sq"]
    assert document["decisions"][2]["precision"] == {"compute": "f16", "accumulate": "f32", "output": "f16"}
    assert document["decisions"][4]["cause"] == "sub"
    assert document["conversion"]["precisions"] == {"f16": 2, "f32": 2}
    assert [(group["rule"], group["nodes"]) for group in document["conversion"]["stayed_high"]] == [
        ("data-overflow", ["sq"]),
        ("softmax", ["sm"]),
    ]


def test_emulation_says_what_was_rounded():
    emulations = {name: (document["errors"] or {}).get("emulation") for name, document in DOCUMENTS.items()}
    assert emulations["tune"] == {"formats": ["f16"], "accumulate": None, "tile": None}
    assert emulations["compare broken"] == {"formats": ["f16"], "accumulate": "bf16", "tile": 128}
    assert emulations["compare natively"] is None


def test_models_have_their_roles():
    roles = {name: [model["role"] for model in document["models"]] for name, document in DOCUMENTS.items()}
    assert roles["convert"] == roles["tune"] == ["source", "result"]
    assert roles["compare"] == ["reference", "candidate"] and roles["ranges"] == roles["sensitivity"] == ["model"]
    assert [model["size_bytes"] for model in DOCUMENTS["tune"]["models"]] == [4_000_000, 2_100_000]


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (0.1, 0.1),
        (1 / 3, 0.333333333),
        (123456789012.0,) * 2,
    ],
)
def test_numbers_that_json_lacks_are_words(value, spelled):
    assert number(value) == spelled


def test_numbers_keep_what_tells_fp32_numbers_apart():
    np = pytest.importorskip("numpy")
    bits = np.random.default_rng(7).integers(0, 0x7F800000, 2000, dtype=np.uint32)
    values = bits.view(np.float32)
    assert all(np.float32(number(float(value))) == value for value in values), "seed 7"


def test_documents_of_numpy_numbers_are_json():
    np = pytest.importorskip("numpy")
    odd = replace(
        RANGES.values[0], minimum=np.float32(-1), maximum=np.float32("inf"), count=np.int64(3), has_nan=np.bool_(True)
    )
    document = describe_ranges("m", replace(RANGES, values=(odd,)))
    jsonschema.Draft202012Validator(schema()).validate(strict_json(json.dumps(document)))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_layout_changes_nothing_and_gives_a_row_a_line(name):
    text = to_json(DOCUMENTS[name])
    assert strict_json(text) == json.loads(json.dumps(DOCUMENTS[name]))
    for node in DOCUMENTS[name]["decisions"]:
        assert f"    {json.dumps(node)}" in [line.rstrip(",") for line in text.splitlines()]


@pytest.mark.parametrize(
    "odd", [{}, {"a": {}}, {"a": []}, {"a": {"b": [[]]}}, {"a": [1, 2]}, {"a": {"b": {"c": [{}]}}}]
)
def test_layout_holds_for_any_document(odd):
    assert json.loads(to_json(odd)) == odd


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (measures.Interval(0.5, 0.0, math.inf), {"estimate": 0.5, "low": 0.0, "high": "inf", "confidence": 0.95}),
        (measures.Load(0.25, 2.0), {"before": 0.25, "after": 2.0}),
        (NamedNode("mm", "MatMul"), ["mm", "MatMul"]),
        (Storage(DType.INT8), ["i8", False]),
        ({DType.FLOAT16: (1, None)}, {"f16": [1, None]}),
        (frozenset({DType.FLOAT32, DType.BFLOAT16}), ["bf16", "f32"]),
        (Path("a") / "b", str(Path("a") / "b")),
        (math.sqrt, "sqrt"),
    ],
)
def test_records_are_encoded_by_their_fields(value, encoded):
    assert encode(value) == encoded


def test_layout_refuses_numbers_that_json_lacks():
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"a": math.nan})


def test_names_stay_as_the_model_has_them():
    name = 'a\x1b[31m"\udc80\u202e\n'
    units = (replace(SENSITIVITY.units[0], name=name),)
    text = json.dumps(describe_sensitivity(name, replace(SENSITIVITY, units=units)))
    assert text.isascii() and text.isprintable()
    assert json.loads(text)["sensitivity"]["units"][0]["name"] == name


def test_same_input_gives_the_same_bytes():
    twice = [json.dumps(describe_tuning(*NAMES, make_plan(), SUMMARY, MEASURED)) for _ in range(2)]
    assert twice[0] == twice[1]


def test_versions_are_named():
    versions = DOCUMENTS["convert with data"]["versions"]
    assert re.match(r"\d+\.\d+", versions["numpy"]) and versions["machine"]["features"] == ["avx2", "amx_bf16"]
    assert DOCUMENTS["ranges"]["versions"]["machine"] is None


def test_schema_of_accounts_knows_every_element_type() -> None:
    assert set(schema()["$defs"]["dtype"]["enum"]) == {str(dtype) for dtype in DType}
