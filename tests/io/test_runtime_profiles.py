"""Profiles that runtimes write, read back as layers; and files that are none, or hostile, each with its one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from mezzo.common.errors import InputError
from mezzo.contracts.timings import LayerTime
from mezzo.formats.dtypes import DType
from mezzo.io import runtime_profiles
from mezzo.io.layer_types import is_conversion, type_called
from mezzo.io.runtime_profiles import read_profiles, read_trace


def event(name: str, ts: float, dur: float, op: str = "", inputs: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    arguments = {"op_name": op, "input_type_shape": [{kind: [1, 2]} for kind in inputs], **more} if op else {}
    return {"cat": "Node" if op else "Session", "ph": "X", "name": name, "ts": ts, "dur": dur, "args": arguments}


# Two runs, of which the first is left out; a body inside an If, whose own time is that of its body.
TRACE = [
    event("model_run", 0, 90),
    event("conv_kernel_time", 1, 80, "QLinearConv", ("uint8", "float")),
    event("model_run", 100, 60),
    event("conv_kernel_time", 101, 10, "QLinearConv", ("uint8", "float")),
    event("x_DequantizeLinear_kernel_time", 112, 4, "DequantizeLinear", ("uint8", "float")),
    event("fc_kernel_time", 120, 6, "DynamicQuantizeMatMul", ("float", "int8")),
    event("choose_kernel_time", 130, 20, "If", ("bool",)),
    event("body_kernel_time", 131, 3, "Mul", ("float16", "float16")),
    event("body_kernel_time", 135, 5, "Mul", ("float16", "float16")),
    event("model_run", 200, 60),
    event("conv_kernel_time", 201, 12, "QLinearConv", ("uint8", "float")),
    event("x_DequantizeLinear_kernel_time", 213, 4, "DequantizeLinear", ("uint8", "float")),
    event("fc_kernel_time", 220, 6, "DynamicQuantizeMatMul", ("float", "int8")),
    event("_kernel_time", 231, 2, "Shape", (), node_index="7", output_type_shape=[{"int64": [2]}]),
]
PROFILE = [
    {"count": 625},
    {"name": "Reformatting CopyNode for Input Tensor 0 to Conv_0", "timeMs": 36.6, "averageMs": 0.06, "percentage": 9},
    {"name": "Conv_0 + Relu_1", "timeMs": 41.4, "averageMs": 0.07, "medianMs": 0.05, "percentage": 1.3},
    {"name": "Fc_4", "timeMs": 10.0, "averageMs": 0.016, "percentage": 1.3},
]
INFORMATION = {
    "Layers": [
        {
            "Name": "Reformatting CopyNode for Input Tensor 0 to Conv_0",
            "LayerType": "Reformat",
            "Inputs": [{"Name": "x", "Dimensions": [1, 3], "Format/Datatype": "Row major linear FP32"}],
        },
        {
            "Name": "Conv_0 + Relu_1",
            "LayerType": "CaskConvolution",
            "Inputs": [{"Format/Datatype": "Thirty-two wide channel vectorized row major Int8 format"}],
            "Outputs": [{"Format/Datatype": "Half"}],
        },
    ],
    "Bindings": ["x", "y"],
}


def save(folder: Path, document: object, name: str = "profile.json") -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def layer(
    name: str, op: str, dtype: DType | None, time_us: float, calls: float = 1.0, *, conversion: bool = False
) -> LayerTime:
    return LayerTime(name=name, op=op, dtype=dtype, is_conversion=conversion, time_ns=time_us * 1e3, calls=calls)


def test_kernels_of_onnx_runtime_have_their_time_per_run_and_the_type_that_they_compute_in(tmp_path: Path) -> None:
    profile = read_trace(save(tmp_path, TRACE))
    assert (profile.tool, profile.runs) == ("ONNX Runtime", 2)
    assert profile.layers == (
        layer("conv", "QLinearConv", DType.UINT8, 11),
        layer("x_DequantizeLinear", "DequantizeLinear", DType.UINT8, 4, conversion=True),
        layer("fc", "DynamicQuantizeMatMul", DType.INT8, 6),  # it rounds its first operand itself
        layer("body", "Mul", DType.FLOAT16, 4),
        layer("Shape 7", "Shape", DType.INT64, 1, 0.5),
    )


@pytest.mark.parametrize(
    ("given", "dtype"),
    [(("float", "int8"), DType.INT8), (("float", "float"), DType.UINT8), (("float",), DType.UINT8)],
)
def test_kernel_that_rounds_its_data_counts_as_eight_bits(given: tuple[str, ...], dtype: DType, tmp_path: Path) -> None:
    """A weight that is packed when the model is loaded is no operand that the profile tells of."""
    trace = [event("model_run", 0, 90), event("fc_kernel_time", 1, 80, "DynamicQuantizeMatMul", given)]
    assert read_trace(save(tmp_path, trace)).layers == (layer("fc", "DynamicQuantizeMatMul", dtype, 80),)


def test_single_run_is_not_left_out(tmp_path: Path) -> None:
    profile = read_trace(save(tmp_path, TRACE[:2]))
    assert (profile.runs, profile.layers) == (1, (layer("conv", "QLinearConv", DType.UINT8, 80),))


def test_layers_of_trtexec_have_types_where_its_layer_information_is_there(tmp_path: Path) -> None:
    times, about = save(tmp_path, PROFILE), save(tmp_path, INFORMATION, "layers.json")
    (alone,), (informed,) = read_profiles([times]), read_profiles([about, times])
    assert (alone.tool, alone.runs) == ("trtexec", 625)
    assert [(each.op, each.dtype) for each in alone.layers] == [("", None)] * 3
    reformat = "Reformatting CopyNode for Input Tensor 0 to Conv_0"
    assert [(each.name, each.op, each.dtype, each.is_conversion) for each in informed.layers] == [
        (reformat, "Reformat", DType.FLOAT32, True),
        ("Conv_0 + Relu_1", "CaskConvolution", DType.INT8, False),
        ("Fc_4", "", None, False),
    ]
    # The median where the tool tells one.
    assert [each.time_ns for each in informed.layers] == pytest.approx([6e4, 5e4, 1.6e4])  # one product of FP64


@pytest.mark.parametrize(
    ("words", "dtype"),
    [
        ("float", DType.FLOAT32), ("uint8", DType.UINT8), ("bf16", DType.BFLOAT16), ("boolean", DType.BOOL),
        ("Channel major FP16 format where channel % 8 == 0", DType.FLOAT16), ("Half", DType.FLOAT16),
        ("Row major Int8 format", DType.INT8), ("BFloat16", DType.BFLOAT16), ("FP8", DType.FLOAT8E4M3FN),
        ("dynamic", None), ("", None),
    ],
)  # fmt: skip
def test_words_of_runtimes_for_types_are_known(words: str, dtype: DType | None) -> None:
    assert type_called(words) is dtype


@pytest.mark.parametrize("op", ["Cast", "Reorder", "Reformat", "DequantizeLinear", "MemcpyToHost", "Convert"])
def test_what_only_changes_type_or_layout_is_a_conversion(op: str) -> None:
    assert is_conversion(op) and not is_conversion("Conv")


DEEP = "[" * 100_000
ASK = "give the file that ONNX Runtime's profiling writes, or trtexec's --exportProfile"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("", "is not JSON (Expecting value: line 1 column 1 (char 0)): did the program end normally?"),
        ('[{"ph": "X"},\n', "is not JSON (Expecting value: line 2 column 1 (char 14)): did the program end normally?"),
        (DEEP, "is not JSON (it is nested more than 64 levels deep)"),
        ("3", "is a JSON int"),
        ([], "has no layer with a time"),
        ([{"ph": "X"}], "has no run of a model"),
        ([1, None, "a"], "has no layer with a time"),
        ([event("model_run", 0, 1)], "has no run of a model"),
        ([event("model_run", 0, 1), event("a_kernel_time", 1, -1, "Conv")], "has 'dur' '-1' where a time belongs"),
        ([event("model_run", 0, 1), event("a_kernel_time", 1, 1e30, "Conv")], "has 'dur' '1e+30' where a time belongs"),
        ('[{"name": "a", "averageMs": NaN}]', "is not JSON (it holds a number that is NaN)"),
        ('[{"name": "a", "averageMs": Infinity}]', "is not JSON (it holds a number that is Infinity)"),
        ([{"name": "a", "averageMs": True}], "has 'averageMs' 'True' where a time belongs"),
        ([{"name": "a", "averageMs": "1" * 100}], f"has 'averageMs' '{'1' * 40}' where a time belongs"),
        ([{"name": "a"}], "has 'averageMs' 'None' where a time belongs"),
        ({"a": 1}, "is a JSON object without a list of 'Layers'"),
        ({"Layers": ["a", "b"]}, "has the names of layers alone; give trtexec --profilingVerbosity=detailed"),
    ],
)
def test_file_that_is_no_profile_gets_one_line(tmp_path: Path, document: object, said: str) -> None:
    path = save(tmp_path, document)
    with pytest.raises(InputError) as caught:
        read_profiles([path])
    line = str(caught.value)
    assert said in line and line.startswith(f"profile {str(path)!r} ") and len(line) < 500


def test_layer_information_alone_has_no_times(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is trtexec's layer information, which has no times; give the file of"):
        read_profiles([save(tmp_path, INFORMATION)])


def test_file_of_another_program_is_named_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "net.npz").write_bytes(b"PK\3\4" + bytes(30))
    with pytest.raises(InputError, match=f"not a profile; {ASK}"):
        read_profiles([tmp_path / "net.npz"])


def test_profile_beyond_the_bound_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_profiles, "MOST_BYTES", 10)
    with pytest.raises(InputError, match="is larger than 0 MiB; profile fewer runs"):
        read_profiles([save(tmp_path, TRACE)])


def test_no_file_and_no_regular_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"cannot read profile '.*gone\.json': No such file or directory; give the file"
    ):
        read_profiles([tmp_path / "gone.json"])
    with pytest.raises(InputError, match="is a folder; name a file"):
        read_profiles([tmp_path])


@pytest.mark.parametrize("hostile", ["a\x1b[31m", "\u202e", "x" * 100_000])
def test_hostile_names_come_through_as_they_are(tmp_path: Path, hostile: str) -> None:
    """Whoever shows them cleans them."""
    events = [event("model_run", 0, 9), event(f"{hostile}_kernel_time", 1, 1, hostile, (hostile,))]
    (read,) = read_trace(save(tmp_path, events)).layers
    assert (read.name, read.op, read.dtype) == (hostile, hostile, None)


@pytest.mark.parametrize("strange", [None, 3, [], {}, "x", [3], [[]], [{}], {"a": []}])
@pytest.mark.parametrize("field", ["args", "input_type_shape", "op_name", "name"])
def test_fields_of_other_types_are_no_crash(tmp_path: Path, strange: object, field: str) -> None:
    kernel = event("a_kernel_time", 1, 1, "Conv", ("float",))
    place = kernel if field in ("args", "name") else kernel["args"]
    place[field] = strange
    events = [event("model_run", 0, 9), event("b_kernel_time", 2, 1, "Conv", ("float",)), kernel]
    assert any(each.name == "b" for each in read_trace(save(tmp_path, events)).layers)
