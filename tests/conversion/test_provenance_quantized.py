"""What a quantized file tells of how it was made: every node, in INT8, in the float beside it and in FP32; and what
becomes of it when it is false.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.api.convert import describe_origin
from mezzo.conversion.recall import read_record
from mezzo.formats.dtypes import DType
from mezzo.onnx.opening import open_model

_KEY = "mezzo.provenance"
_WIDE = 256
BOTH = pytest.mark.parametrize(
    ("to", "target"), [("int8", "onnxruntime-cpu"), ("int8", "openvino-cpu"), ("int8,bf16", "openvino-cpu")]
)


def blocks(count: int) -> onnx.ModelProto:
    """So many blocks in a row: two products with weights, a Relu between, and a Softmax, which stays in floats."""
    inner = "\n".join(
        f"[b{n}_mm] h{n} = MatMul(x{n}, w{n})\n[b{n}_relu] r{n} = Relu(h{n})\n"
        f"[b{n}_last] p{n} = MatMul(r{n}, w{n})\n[b{n}_soft] x{n + 1} = Softmax<axis=-1>(p{n})"
        for n in range(count)
    )
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[N,{_WIDE}] x0) => (float[N,{_WIDE}] x{count}) {{{inner}}}'
    )
    random = np.random.default_rng(3)
    # So large that what a block makes varies by half of its size, also of probabilities, which are small.
    sizes = [_WIDE**-0.5, *(1.2 for _ in range(1, count))]
    held = {f"w{n}": random.standard_normal((_WIDE, _WIDE), np.float32) * size for n, size in enumerate(sizes)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in held.items())
    return model


def data() -> dict[str, np.ndarray]:
    return {"x0": np.random.default_rng(4).standard_normal((32, _WIDE), np.float32)}


def convert(to: str, target: str, count: int = 2) -> mezzo.Converted:
    return mezzo.convert(blocks(count), to=to, target=target, data=data())


def told(model: onnx.ModelProto) -> str:
    (text,) = (entry.value for entry in model.metadata_props if entry.key == _KEY)
    return text


def with_text(model: onnx.ModelProto, text: str) -> onnx.ModelProto:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    next(entry for entry in changed.metadata_props if entry.key == _KEY).value = text
    return changed


@BOTH
def test_a_result_tells_of_each_node_what_it_runs_in_and_why(to: str, target: str) -> None:
    done = convert(to, target)
    recalled, fault = read_record(open_model(done.model))
    assert recalled is not None, fault
    assert {name: (e.precision, e.rule, e.because, e.cause) for name, e in recalled.planned.items()} == {
        entry.name: (entry.precision, entry.rule, entry.because, entry.cause) for entry in done.plan.nodes
    }
    assert any(entry.precision.compute is DType.QUANTIZED8 for entry in recalled.planned.values())


@BOTH
def test_converting_twice_gives_the_same_bytes_as_once(to: str, target: str) -> None:
    once = convert(to, target).model
    again = mezzo.convert(once, to=to, target=target, data=data())
    assert again.model.SerializeToString() == once.SerializeToString()


@BOTH
def test_a_plan_of_the_result_is_the_plan_that_made_it(to: str, target: str) -> None:
    """No data is needed, and nothing is said of ranges: the file has its scales."""
    done = convert(to, target)
    planned = mezzo.plan(done.model, to=to, target=target)
    for entry in done.plan.nodes:
        again = planned.by_name[entry.name]
        is_typed = entry.precision.compute is DType.BFLOAT16  # as in any file with floats that are low
        assert again.precision == entry.precision and again.rule == ("typed" if is_typed else entry.rule)
        assert entry.because in again.because
    assert not any("no data told" in note for note in planned.notes)


def test_another_format_is_decided_anew_and_says_so() -> None:
    planned = mezzo.plan(convert("int8,bf16", "openvino-cpu").model, to="bf16", target="openvino-cpu")
    assert any("--to bf16 is other than the int8,bf16 that it was made for" in note for note in planned.notes)


def test_a_replayed_plan_is_told_as_the_conversion_was(tmp_path: Path) -> None:
    done = convert("int8", "openvino-cpu")
    mezzo.save_plan(done.plan, tmp_path / "plan.json")
    replayed = mezzo.convert(blocks(2), plan=tmp_path / "plan.json")
    assert json.loads(told(replayed.model))["rows"] == json.loads(told(done.model))["rows"]


def test_the_file_says_in_two_lines_what_made_it() -> None:
    made, running = describe_origin(convert("int8", "openvino-cpu").model)
    assert "convert, to int8" in made and "target openvino-cpu, " in made and made.endswith(", data given")
    assert running.startswith("6 operators run in int8, 2 do not: ")


def test_nothing_is_told_where_it_is_not_wanted() -> None:
    done = mezzo.convert(blocks(1), to="int8", data=data(), provenance=False)
    assert not [entry for entry in done.model.metadata_props if entry.key == _KEY]


def test_nothing_is_told_where_ranges_are_found_at_run_time() -> None:
    """Such products have other operators in the file, by which nobody would find them again."""
    done = mezzo.convert(blocks(1), to="int8", calibrator="none")
    assert not [entry for entry in done.model.metadata_props if entry.key == _KEY]


def test_a_repeated_block_costs_few_bytes_a_node() -> None:
    """About 35 for a row, which names whom it follows by distance, and the names of its Quantize and Dequantize."""
    few, many = (len(told(convert("int8", "openvino-cpu", count).model)) for count in (4, 24))
    assert (many - few) / (4 * 20) < 100


def _say(change: Callable[[dict[str, list[object]]], None]) -> Callable[[str], str]:
    def changed(text: str) -> str:
        document = json.loads(text)
        change(document)
        return json.dumps(document)

    return changed


def _quantize_all(document: dict[str, list[object]]) -> None:
    document["rows"] = [["int8", *row[1:]] for row in document["rows"] if isinstance(row, list)]


def _other_format(document: dict[str, list[object]]) -> None:
    document["rows"] = [["i32", *row[1:]] for row in document["rows"] if isinstance(row, list)]


def _less_added(document: dict[str, list[object]]) -> None:
    document["added"] = document["added"][1:]


def _more_added(document: dict[str, list[object]]) -> None:
    document["added"] = [*document["added"], "nobody"]


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (_quantize_all, "is quantized in what it tells, and reads nothing quantized in the file"),
        (_other_format, "it tells of a format that no model is converted to: i32"),
        (_more_added, "node 'nobody' is not in the file"),
        (_less_added, "it tells of 10 nodes, and the file has 11"),
    ],
)
def test_what_is_false_is_not_heeded(change: Callable[[dict[str, list[object]]], None], because: str) -> None:
    model = convert("int8", "openvino-cpu").model
    changed = with_text(model, _say(change)(told(model)))
    recalled, fault = read_record(open_model(changed))
    assert recalled is None and fault is not None and because in fault
    assert because in " ".join(describe_origin(changed))


def test_a_float_file_cannot_say_that_it_is_quantized() -> None:
    floats = mezzo.convert(blocks(1), to="bf16", target="openvino-cpu").model
    document = json.loads(told(floats))
    document["low"], document["rows"] = "int8", [["int8", *row[1:]] for row in document["rows"]]
    recalled, fault = read_record(open_model(with_text(floats, json.dumps(document))))
    assert recalled is None and fault is not None
