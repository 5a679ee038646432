"""Where nobody asks for a format, what gains on the target and the machine is taken, and said; else FP16 as before."""

import json
from pathlib import Path

import onnx.parser
import pytest

import mezzo
from mezzo.common.machine import Machine
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.planner.choices import gains
from mezzo.planner.choices.gains import (
    Candidate,
    choose_format,
    find_better,
    find_candidates,
    find_gaining,
    list_formats,
)
from mezzo.plugins.discovery import targets
from mezzo.tables.target import Gain, Target

GPU = ("NVIDIA H100, 81559 MiB, 9.0",)
PLAIN, AMX = Machine("x86_64", ("avx2",)), Machine("x86_64", ("avx2", "amx_bf16"))
BARE, SILENT = Machine("x86_64", ()), Machine("unknown", None)
BUILT_IN = dict(targets().things)


def model() -> onnx.ModelProto:
    return onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,2] y) <float[4,2] w = {1,2,3,4,5,6,7,8}> { [mm] h = MatMul(x, w) [r] y = Relu(h) }""")


def on(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    monkeypatch.setattr("mezzo.planner.options.find_machine", lambda: machine)


@pytest.mark.parametrize(
    ("target", "machine", "to", "said"),
    [
        ("openvino-cpu", AMX, "bf16", "to bf16: what gains on openvino-cpu on this machine; --to overrides"),
        ("openvino-cpu", PLAIN, "fp16", "to fp16, for the size alone; --to overrides"),
        ("openvino-cpu", SILENT, "fp16", "to fp16, for the size alone; --to overrides"),
        ("onnxruntime-cuda", PLAIN, "fp16", "to fp16: what gains on onnxruntime-cuda; --to overrides"),
        ("tensorrt", PLAIN, "fp16", "to fp16: what gains on tensorrt; --to overrides"),
        ("onnxruntime-web", PLAIN, "fp16", "to fp16: what gains on onnxruntime-web; --to overrides"),
        ("onnxruntime-cpu", AMX, "fp16", "to fp16, for the size alone; --to overrides"),
    ],
)
def test_the_format_is_what_gains(
    monkeypatch: pytest.MonkeyPatch, target: str, machine: Machine, to: str, said: str
) -> None:
    on(monkeypatch, machine)
    plan = mezzo.plan(model(), target=target)
    assert dict(plan.settings)["to"] == to and plan.low is LOW_DTYPES[to]
    assert said in plan.notes and plan.choice == said


def test_what_is_asked_for_is_taken_and_nothing_is_said_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, AMX)
    for options in ({"to": "fp16", "target": "openvino-cpu"}, {"to": None}, {}):
        plan = mezzo.plan(model(), **options)  # type: ignore[arg-type]  # keywords of different types
        assert dict(plan.settings)["to"] == "fp16" and plan.choice is None
        assert not any("--to overrides" in note for note in plan.notes)


def test_plans_replays_and_folders_hold_what_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, AMX)
    plan = mezzo.plan(model(), target="openvino-cpu")
    mezzo.save_plan(plan, tmp_path / "p.json")
    assert json.loads((tmp_path / "p.json").read_text())["settings"]["to"] == "bf16"
    (tmp_path / "models").mkdir()
    onnx.save(model(), tmp_path / "models" / "m.onnx")
    on(monkeypatch, PLAIN)  # a replay is what was decided, on whatever machine
    replayed = mezzo.convert(model(), plan=tmp_path / "p.json")
    assert replayed.plan.low is DType.BFLOAT16
    on(monkeypatch, AMX)
    folder = mezzo.convert_folder(tmp_path / "models", tmp_path / "out", target="openvino-cpu")
    assert dict(folder.settings)["to"] == "bf16" and folder.files[0].result == "m_bf16.onnx"
    assert dict(folder.files[0].converted.plan.settings)["to"] == "bf16"


@pytest.mark.parametrize("target", BUILT_IN.values(), ids=lambda target: target.name)
@pytest.mark.parametrize("machine", [PLAIN, AMX])
def test_no_format_is_taken_that_is_known_not_to_gain(target: Target, machine: Machine) -> None:
    """As long as another does, or may; and never one that the target runs nothing in."""
    to, _ = choose_format(target, machine)
    may_gain = {gain.dtype for gain in target.gains if gain.is_faster_on(machine) is not False}
    assert LOW_DTYPES[to] in (may_gain & set(LOW_DTYPES.values()) or {DType.FLOAT16, DType.BFLOAT16})
    assert target.covers(LOW_DTYPES[to])


def test_the_first_row_that_holds_decides() -> None:
    def gain(dtype: DType, *, is_faster: bool, needs: tuple[str, ...] = ()) -> Gain:
        return Gain(dtype=dtype, is_faster=is_faster, because="so", source="s", since="1", needs=needs)

    both = Target(name="t", summary="", gains=(
        gain(DType.BFLOAT16, is_faster=True, needs=("amx_bf16",)), gain(DType.FLOAT16, is_faster=True)))  # fmt: skip
    assert [choose_format(both, machine)[0] for machine in (AMX, PLAIN)] == ["bf16", "fp16"]
    only = Target(name="t", summary="", formats=frozenset({DType.BFLOAT16}))
    assert choose_format(only, PLAIN)[0] == "bf16"


def test_what_gains_elsewhere_is_offered_only_where_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzo.planner.choices.gains.find_version", lambda name: "1")
    slow = BUILT_IN["onnxruntime-cpu"].gain(DType.FLOAT16)
    assert find_better(slow, AMX) == find_gaining(AMX) == ("openvino-cpu", "bf16")
    assert find_gaining(Machine("x86_64", ())) is None  # without a GPU
    assert find_better(BUILT_IN["openvino-cpu"].gain(DType.BFLOAT16), AMX) is None and find_better(None, AMX) is None
    monkeypatch.setattr("mezzo.planner.choices.gains.find_version", lambda name: None)
    assert find_better(slow, AMX) is None


def test_a_target_file_says_a_gain_in_short(tmp_path: Path) -> None:
    (tmp_path / "npu.toml").write_text(
        '[[gain]]\nformat = "bf16"\nfaster = true\nbecause = "its matrix unit is of BF16"\nshort = "BF16 in hardware"\n'
    )
    plan = mezzo.plan(model(), target=str(tmp_path / "npu.toml"))
    assert dict(plan.settings)["to"] == "bf16" and "BF16 in hardware" in repr(plan)


def here(monkeypatch: pytest.MonkeyPatch, *packages: str, gpus: tuple[str, ...] = ()) -> None:
    """The installed packages, and the GPUs."""
    monkeypatch.setattr(gains, "find_version", lambda name: "1.0" if name in packages else None)
    monkeypatch.setattr(gains, "find_gpus", lambda: gpus)


SERVER = Machine("x86_64", ("avx2", "amx_bf16", "amx_int8"))


def test_candidates_are_what_installed_runtimes_gain_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, "onnxruntime")
    assert find_candidates(SERVER) == [Candidate("onnxruntime-cpu", "int8", is_timed=True)]
    assert find_candidates(PLAIN) == [Candidate("onnxruntime-cpu", "int8", is_timed=True)]
    assert find_candidates(BARE) == find_candidates(SILENT) == []
    here(monkeypatch, "onnxruntime", "openvino")
    assert find_candidates(SERVER) == [
        Candidate("onnxruntime-cpu", "int8", is_timed=True),
        Candidate("openvino-cpu", "bf16", is_timed=True),
        Candidate("openvino-cpu", "int8", is_timed=True),
        Candidate("openvino-cpu", "int8,bf16", is_timed=True),
    ]
    here(monkeypatch, "onnxruntime", "tensorrt")
    assert [each.target for each in find_candidates(SERVER)] == ["onnxruntime-cpu"]
    here(monkeypatch, "onnxruntime", "tensorrt", gpus=GPU)
    assert find_candidates(SERVER)[0] == Candidate("tensorrt", "fp16", is_timed=False)


def test_gpus_are_asked_for_only_where_an_installed_runtime_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    here(monkeypatch, "onnxruntime", "openvino")
    monkeypatch.setattr(gains, "find_gpus", lambda: (calls.append(1), GPU)[1])
    find_candidates(SERVER)
    assert calls == []
    monkeypatch.setattr(gains, "find_version", lambda name: "1.0")
    find_candidates(SERVER)
    assert calls == [1]


def test_auto_takes_a_float_by_the_tables_where_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzo.planner.options.choose_by_tables", gains.choose_by_tables)
    on(monkeypatch, SERVER)
    here(monkeypatch, "onnxruntime", "openvino")
    plan = mezzo.plan(model(), to="auto")
    assert plan.choice == "to bf16: openvino-cpu is installed and gains by it; --to overrides"
    assert {**dict(plan.settings), "to": "bf16", "target": "openvino-cpu"} == dict(plan.settings)
    here(monkeypatch, "onnxruntime")
    plan = mezzo.plan(model(), to="auto")
    assert plan.choice == (
        "to fp16, for the size alone: no installed runtime gains speed by a float here; onnxruntime-cpu gains by int8;"
        " --to overrides"
    )
    on(monkeypatch, PLAIN)
    assert dict(mezzo.plan(model(), to="auto").settings)["target"] == "onnxruntime-cpu"
    assert dict(mezzo.plan(model(), to="auto", target="tensorrt").settings)["to"] == "fp16"


def test_each_format_of_each_target_has_one_line_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, "onnxruntime")
    rows = {(row.target, row.to): (row.outcome, row.why) for row in list_formats(SERVER, ())}
    assert len(rows) == len(list_formats(SERVER, ()))
    assert rows["onnxruntime-cpu", "int8"] == ("gains", "amx_int8")
    assert rows["openvino-cpu", "bf16"] == ("not here", "pip install openvino")
    assert rows["tensorrt", "fp16"] == ("not here", "needs an NVIDIA GPU")
    assert rows["onnxruntime-web", "fp16"] == ("not here", "needs WebGPU")
    assert rows["onnxruntime-cpu", "fp16"][0] == "no gain"
    slow = {(row.target, row.to): (row.outcome, row.why) for row in list_formats(PLAIN, GPU)}
    assert slow["openvino-cpu", "bf16"] == ("no gain", "this CPU has no amx_bf16 or avx512_bf16")
    assert slow["tensorrt", "fp16"] == ("not here", "pip install tensorrt")
    here(monkeypatch, "tensorrt")
    silent = {(row.target, row.to): (row.outcome, row.why) for row in list_formats(SILENT, GPU)}
    assert silent["tensorrt", "bf16"] == ("unknown", "needs compute capability 8.0 (Ampere)")
    outcomes = [row.outcome for row in list_formats(SERVER, ())]
    assert outcomes == sorted(outcomes, key=["gains", "unknown", "not here", "no gain"].index)
