"""mezzo bench: its screens, whole and from made-up times; what it runs on small models, where no number is asked for.
Errors that a user can cause stand in tests/answers/golden/bench.txt.
"""

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import Run
from rich.console import Console

import mezzo
from mezzo.common.errors import InputError
from mezzo.common.machine import Machine
from mezzo.contracts.timings import LayerTime
from mezzo.formats.dtypes import DType
from mezzo.io import runtime_profiles
from mezzo.numerics.measures import Comparison, DataSource, Interval, Load, Ruling, Verdict
from mezzo.numerics.statistics.speeds import Difference, Spread
from mezzo.numerics.timings import FileTimes, Timings
from mezzo.report.layout.layout import Layout
from mezzo.report.text.measured.timings import bench_schema, describe_timings, report_timings

QUICK = ("--runs", "4", "--starts", "2")
OPEN = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x, float[N,2] c) => (float[N,2] y)
<float[4,2] w = {1,2,3,4,5,6,7,8}>
{
   [mm] h = MatMul(x, w)
   [add] y = Add(h, c)
}
"""
REFUSED = """
<ir_version: 10, opset_import: ["" : 21, "strange": 1]>
g (float[N,4] x, float[N,2] c) => (float[N,2] y)
{
   [odd] y = strange.Unheard(x, c)
}
"""


def row(name: str, median_ms: float, **more: object) -> FileTimes:
    times = Spread(
        median_ns=median_ms * 1e6, least_ns=median_ms * 0.95e6, low_ns=median_ms * 0.99e6, high_ns=median_ms * 1.02e6
    )
    plain = FileTimes(
        name=name, size_bytes=102_000_000, is_reference=False, fault=None, turns_ns=((median_ms * 1e6,) * 30,) * 2,
        calls=1, times=times, speed=None, difference=None, inputs={"x": "float32[1,3,224,224]"},
    )  # fmt: skip
    return replace(plain, **more)  # type: ignore[arg-type]  # fields by name


def layer(name: str, op: str, dtype: DType | None, time_ms: float, *, conversion: bool = False) -> LayerTime:
    return LayerTime(name=name, op=op, dtype=dtype, is_conversion=conversion, time_ns=time_ms * 1e6, calls=1.0)


def answers(error: float, ruling: Ruling, because: str = "") -> Comparison:
    """What a file answers beside the reference."""
    source, spread = DataSource("random (seed 0)", 1, 1, 0), Interval(error, error, error)
    verdict = Verdict(ruling=ruling, error=spread, budget=0.0625, budget_source="", noise=0.0, because=because)
    return Comparison(data=source, run="native", outputs=(), layers=(), verdict=verdict)


FP32_LAYERS = (layer("conv_1", "Convolution", DType.FLOAT32, 9), layer("fc", "FullyConnected", DType.FLOAT32, 3))
INT8_LAYERS = (
    layer("conv_1", "Convolution", DType.UINT8, 2.25),
    layer("conv_1/reorder", "Reorder", DType.UINT8, 0.75, conversion=True),
    layer("fc", "FullyConnected", DType.BFLOAT16, 1), layer("shape", "", None, 0),
)  # fmt: skip
MACHINE = Machine("x86_64", ("avx512f", "avx512_vnni", "amx_int8"))
SIDE_BY_SIDE = Timings(
    target="openvino-cpu", runtime="openvino 2026.4.1", machine=MACHINE, cores=2, threads=None, keeps_types=True,
    data=DataSource("random (seed 0)", 1, 1, 0), batch=None, pause_s=0.02, load=Load(0.1, 1.9),
    files=(
        row("resnet.onnx", 12.0, is_reference=True, layers=FP32_LAYERS),
        row("resnet.int8.onnx", 4.3, size_bytes=25_800_000, speed=Interval(2.79, 2.71, 2.85),
            difference=Difference.FASTER, layers=INT8_LAYERS, answers=answers(0.0172, Ruling.SAME)),
        row("again.onnx", 12.1, speed=Interval(0.99, 0.97, 1.02), difference=Difference.UNKNOWN),
        row("few.onnx", 0.05, speed=Interval(240.0, 0.0, math.inf), difference=Difference.UNKNOWN),
        row("slow.onnx", 120.0, speed=Interval(0.1, 0.09, 0.11), difference=Difference.SLOWER,
            answers=answers(2e9, Ruling.DIFFERENT, "output 'y' differs most, by 2e+09, more than 0.0625")),
        row("f8.onnx", 1.0, times=None, turns_ns=(), calls=0, fault="openvino-cpu does not run it: no kernel"),
    ),
    notes=("few.onnx has inputs of its own, drawn for it",),
)  # fmt: skip
SCREEN = """\
openvino-cpu: openvino 2026.4.1, types of the files
  on x86_64 with avx512f, avx512_vnni, amx_int8; 2 cores, threads: as many as the runtime likes; load 0.1 before and 1.9 after
  fed random (seed 0): x float32[1,3,224,224]
  60 turns each, loaded 2 times; before each turn a rest of 20 ms and a call that is not timed
  few.onnx has inputs of its own, drawn for it

file                 size     error     median      least  spread  speed  95 % interval
resnet.onnx        102 MB         -   12.00 ms   11.40 ms   3.0 %      -              -  reference
resnet.int8.onnx  25.8 MB    0.0172   4.300 ms   4.085 ms   3.0 %  2.79x   2.71 .. 2.85  faster
again.onnx         102 MB         -   12.10 ms   11.49 ms   3.0 %  0.99x   0.97 .. 1.02  cannot tell
few.onnx           102 MB         -  0.0500 ms  0.0475 ms   3.0 %   240x    0.00 .. any  cannot tell
slow.onnx          102 MB  2.00e+09   120.0 ms   114.0 ms   3.0 %  0.10x   0.09 .. 0.11  slower
f8.onnx            102 MB         -          -          -       -      -              -  does not run
  f8.onnx: openvino-cpu does not run it: no kernel
  slow.onnx: other answers than resnet.onnx on openvino 2026.4.1: output 'y' differs most, by 2e+09, more than 0.0625

share of the time by type, as the runtime tells it
file                f32    bf16      u8  not told  conversions  kernels
resnet.onnx       100 %       -       -         -            -        2
resnet.int8.onnx      -  25.0 %  75.0 %         -       18.8 %        4

resnet.onnx: 2 kernels, by kind
kind            type  kernels     ms   share
Convolution     f32         1  9.000  75.0 %
FullyConnected  f32         1  3.000  25.0 %

the longest
kernel  kind            type     ms   share
conv_1  Convolution     f32   9.000  75.0 %
fc      FullyConnected  f32   3.000  25.0 %

resnet.int8.onnx: 4 kernels, by kind
kind            type  kernels     ms   share
Convolution     u8          1  2.250  56.2 %
FullyConnected  bf16        1  1.000  25.0 %

the longest
kernel  kind            type     ms   share
conv_1  Convolution     u8    2.250  56.2 %
fc      FullyConnected  bf16  1.000  25.0 %
  and 2 more; --json lists them, --top N shows more
"""  # noqa: E501  as it is printed


def printed(timings: Timings, top: int = 2) -> str:
    text = io.StringIO()
    console = Console(file=text, width=10_000, color_system=None, markup=False, highlight=False, emoji=False)
    for part in report_timings(Layout.PLAIN, timings, top):
        console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


@pytest.fixture
def models(folder: Path) -> Path:
    for name, text in (("open.onnx", OPEN), ("refused.onnx", REFUSED)):
        onnx.save(onnx.parser.parse_model(text), name)
    x, c = np.ones((8, 4), np.float32), np.ones((8, 2), np.float32)
    np.savez("data.npz", x=x, c=c, label=np.zeros(8, np.int64))
    return folder


# -- screens ----------------------------------------------------------------------------------------------------------


def test_screen_is_plain_in_a_pipe() -> None:
    assert printed(SIDE_BY_SIDE) == SCREEN


def test_busy_machine_is_told() -> None:
    assert "others were at work" not in printed(replace(SIDE_BY_SIDE, load=Load(1.0, 9.0)))
    text = printed(replace(SIDE_BY_SIDE, load=Load(1.1, 9.0)))
    assert "\n  others were at work here: load 1.1 on 2 cores; on a quiet machine times are shorter and " in text


def test_what_the_system_does_not_tell_is_left_out() -> None:
    text = printed(replace(SIDE_BY_SIDE, load=None, machine=Machine("arm64", None), threads=4, keeps_types=False))
    assert text.splitlines()[:2] == [
        "openvino-cpu: openvino 2026.4.1, types of the runtime's choice",
        "  on arm64, whose instruction sets the system does not tell; 2 cores, threads: 4",
    ]


def test_reference_that_does_not_run_is_compared_with_nothing() -> None:
    gone = row("gone.onnx", 1.0, is_reference=True, times=None, turns_ns=(), fault="it does not load")
    text = printed(replace(SIDE_BY_SIDE, files=(gone, row("b.onnx", 1.0))))
    assert "\n  the reference does not run, so nothing is compared with it\n" in text
    assert "60 turns each" in text


def test_hostile_names_are_shown_escaped() -> None:
    odd = row(
        "a\x1b[31m.onnx", 1.0, is_reference=True, layers=(layer("\u202e", "\x07", None, 1.0),), inputs={"\x1b": "f"}
    )
    text = printed(replace(SIDE_BY_SIDE, files=(odd,)))
    assert "\x1b" not in text and "\u202e" not in text and "\x07" not in text and "\\x1b[31m.onnx" in text


def test_python_shows_three_lines_and_notebooks_a_table() -> None:
    assert repr(replace(SIDE_BY_SIDE, files=SIDE_BY_SIDE.files[:2])) == (
        "Timings of 2 files on openvino-cpu, openvino 2026.4.1\n  first  resnet.onnx 12.00 ms, the reference\n"
        "  others resnet.int8.onnx 4.300 ms, 2.79x (2.71 .. 2.85) faster"
    )
    assert len(repr(SIDE_BY_SIDE).splitlines()) == 3 and "and 2 more" in repr(SIDE_BY_SIDE)
    page = SIDE_BY_SIDE._repr_html_()
    assert page.count("<svg") == 6 and "does not run" in page
    hostile = replace(SIDE_BY_SIDE, files=(row("<script>", 1.0),))._repr_html_()
    assert "<script>" not in hostile and "&lt;script&gt;" in hostile


def test_document_keeps_its_schema() -> None:
    schema = bench_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(json.dumps(describe_timings(SIDE_BY_SIDE), allow_nan=False))
    jsonschema.validate(document, schema)
    few = document["files"][3]
    assert (few["speed"]["high"], few["difference"]) == ("inf", "cannot tell")
    assert document["files"][1]["types"] == [
        {"dtype": "u8", "share": 0.75}, {"dtype": "bf16", "share": 0.25}, {"dtype": None, "share": 0},
    ]  # fmt: skip


# -- runs -------------------------------------------------------------------------------------------------------------


def test_files_are_timed_side_by_side(run: Run, models: Path) -> None:
    ran = run("bench", "open.onnx", "open.onnx", "--data", "data.npz", *QUICK)
    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert lines[0].startswith("onnxruntime-cpu: onnxruntime ")
    assert "  fed data.npz: x float32[1,4], c float32[1,2]" in lines
    assert "  4 turns each, loaded 2 times; before each turn a rest of 20 ms and a call that is not timed" in lines
    assert [line.split()[-1] for line in lines if line.startswith("open.onnx")] == ["reference", "tell"]


def test_json_has_every_turn_and_keeps_the_schema(run: Run, models: Path) -> None:
    ran = run("bench", "open.onnx", "open.onnx", "--layers", "--json", *QUICK)
    document = json.loads(ran.out)
    jsonschema.validate(document, bench_schema())
    assert [[len(start) for start in file["turns_ns"]] for file in document["files"]] == [[2, 2]] * 2
    assert [file["is_reference"] for file in document["files"]] == [True, False]
    assert {layer["op"] for layer in document["files"][0]["layers"]} == {"Gemm"}  # the runtime joins the two


def test_file_that_does_not_run_has_its_line_and_the_others_go_on(run: Run, models: Path) -> None:
    ran = run("bench", "open.onnx", "refused.onnx", "open.onnx", *QUICK)
    assert ran.code == 1 and ran.err == ""
    lines = [line for line in ran.out.splitlines() if ".onnx" in line]
    assert [line.rpartition("  ")[2] for line in lines[:3]] == ["reference", "does not run", "cannot tell"]
    assert lines[3].startswith("  refused.onnx: onnxruntime-cpu does not run it: ") and "Unheard" in lines[3]


def test_file_that_is_timed_but_not_profiled_keeps_its_times(
    run: Run, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_profiles, "MOST_BYTES", 10)
    ran = run("bench", "open.onnx", "--layers", *QUICK)
    assert ran.code == 1 and " reference\n  open.onnx: it was timed, but not profiled: profile " in ran.out


def test_baseline_is_the_reference_wherever_it_stands(run: Run, models: Path) -> None:
    for files in (["open.onnx", "small.onnx"], ["open.onnx"]):
        ran = run("bench", *files, "--baseline", "small.onnx", "--json", *QUICK)
        told = [(file["name"], file["is_reference"]) for file in json.loads(ran.out)["files"]]
        assert told == [("small.onnx", True), ("open.onnx", False)]


def test_models_of_other_inputs_are_each_fed_their_own(run: Run, models: Path) -> None:
    ran = run("bench", "open.onnx", "small.onnx", "--json", *QUICK)
    document = json.loads(ran.out)
    assert [file["inputs"] for file in document["files"]] == [
        {"x": "float32[1,4]", "c": "float32[1,2]"}, {"x": "float32[2,4]"},
    ]  # fmt: skip
    assert document["notes"] == ["'small.onnx' has inputs of its own, drawn for it"]


@pytest.mark.parametrize(("batch", "length"), [([], 1), (["--batch", "3"], 3), (["--batch", "20"], 20)])
@pytest.mark.parametrize("data", ["data.npz", "random"])
def test_batch_is_so_many_samples(run: Run, models: Path, batch: list[str], length: int, data: str) -> None:
    """Data of eight samples begins again."""
    ran = run("bench", "open.onnx", "--data", data, "--runs", "1", "--starts", "1", "--json", *batch)
    (file,) = json.loads(ran.out)["files"]
    assert file["inputs"] == {"x": f"float32[{length},4]", "c": f"float32[{length},2]"}


def test_runs_and_types_of_python_are_those_of_the_shell(models: Path) -> None:
    timings = mezzo.bench(["open.onnx", onnx.load("open.onnx")], data="data.npz", runs=2, starts=2, threads=1)
    assert [file.name for file in timings.files] == ["open.onnx", "model 2"]
    assert [len(start) for start in timings.files[1].turns_ns] == [1, 1]
    assert timings.threads == 1 and not timings.has_faults
    speed = timings.files[1].speed
    assert speed is not None and timings.files[1].difference is Difference.UNKNOWN


def test_one_file_in_python_needs_no_list(models: Path) -> None:
    assert len(mezzo.bench("open.onnx", runs=1, starts=1).files) == 1  # type: ignore[arg-type]  # it is taken all the same
    with pytest.raises(InputError, match="there is no file to time; give one or more models"):
        mezzo.bench([])


# -- profiles ---------------------------------------------------------------------------------------------------------


def test_profile_is_told_without_running_anything(run: Run, models: Path) -> None:
    Path("p.json").write_text('[{"count": 3}, {"name": "conv", "averageMs": 0.75}, {"name": "fc", "averageMs": 0.25}]')
    Path("l.json").write_text(
        '{"Layers": [{"Name": "conv", "LayerType": "CaskConvolution", "Inputs": [{"Format/Datatype": "Int8"}]}]}'
    )
    ran = run("bench", "--profile", "p.json", "--profile", "l.json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == PROFILE_SCREEN
    document = json.loads(run("bench", "--profile", "p.json", "--json").out)
    jsonschema.validate(document, bench_schema())
    assert document["runtime"] is None and document["files"][0]["tool"] == "trtexec"


PROFILE_SCREEN = """\
p.json: trtexec, 3 runs, 1.000 ms in kernels per run

share of the time by type, as the runtime tells it
file        i8  not told  conversions  kernels
p.json  75.0 %    25.0 %            -        2

p.json: 2 kernels, by kind
kind             type      kernels     ms   share
CaskConvolution  i8              1  0.750  75.0 %
not told         not told        1  0.250  25.0 %

the longest
kernel  kind             type         ms   share
conv    CaskConvolution  i8        0.750  75.0 %
fc                       not told  0.250  25.0 %
"""


def test_profile_of_onnx_runtime_is_read_as_it_is_written(run: Run, models: Path) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, "trace"
    session = onnxruntime.InferenceSession("open.onnx", options, providers=["CPUExecutionProvider"])
    for _ in range(3):
        session.run(None, {"x": np.ones((1, 4), np.float32), "c": np.ones((1, 2), np.float32)})
    ran = run("bench", "--profile", session.end_profiling(), "--json")
    (file,) = json.loads(ran.out)["files"]
    assert (file["tool"], file["runs"]) == ("ONNX Runtime", 2)
    assert {(layer["op"], layer["dtype"]) for layer in file["layers"]} == {("Gemm", "f32")}
