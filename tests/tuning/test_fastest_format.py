"""The format and target that are fastest on a machine: what is tried, what is taken, and what is said of it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx.parser
import pytest

import mezzo
from mezzo.common.errors import ContractError
from mezzo.contracts.options.data_files import DataFiles
from mezzo.contracts.options.request import Request
from mezzo.conversion.results import Converted, open_source
from mezzo.numerics.measures import Interval, Measured, Ruling, TimedModel
from mezzo.planner.choices.gains import Candidate
from mezzo.tuning.fastest_format import convert_to_fastest

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,2] y) <float[4,2] w = {1,2,3,4,5,6,7,8}> { [mm] h = MatMul(x, w) [r] y = Relu(h) }"""
INT8, BF16 = Candidate("onnxruntime-cpu", "int8", is_timed=True), Candidate("openvino-cpu", "bf16", is_timed=True)
MIXED, GPU = Candidate("openvino-cpu", "int8,bf16", is_timed=True), Candidate("tensorrt", "fp16", is_timed=False)
OTHERWISE = "--to and --target override"


@dataclass
class Machine:
    """What each format does here: milliseconds and speed over FP32, or why it fails; and what was asked for."""

    speeds: dict[str, tuple[float, float, float]] = field(default_factory=dict)  # ms, estimate, low end
    wrong: tuple[str, ...] = ()
    wrong_on_data: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    asked: list[tuple[str, str | None, str, str]] = field(default_factory=list)

    def convert(self, request: Request, data: Any) -> Converted:
        to = str(request.to)
        is_own = data is not None and not (isinstance(data, str) and data == "random")
        on = "data" if is_own else data
        self.asked.append((to, on, request.calibrator, request.correct))
        if to in self.failing:
            raise ContractError("no")
        converted = mezzo.convert(onnx.parser.parse_model(MODEL), to="fp16")
        settings = {**dict(converted.plan.settings), "to": to, "target": str(request.target or "onnxruntime-cpu")}
        converted = replace(converted, plan=replace(converted.plan, settings=tuple(settings.items())))
        if to not in self.speeds:
            return converted
        ms, estimate, low = self.speeds[to]
        base = TimedModel(name="FP32", fault=None, median_ns=1e6, least_ns=1e6, speed=None)
        speed = Interval(estimate=estimate, low=low, high=9.0, confidence=0.95)
        timed = TimedModel(name="result", fault=None, median_ns=ms * 1e6, least_ns=1.0, speed=speed)
        ruling = Ruling.UNKNOWN if to in self.unknown else Ruling.SAME
        outputs = SimpleNamespace(is_wrong=to in self.wrong, verdict=SimpleNamespace(ruling=ruling))
        judged = None if on in (None, "random") else SimpleNamespace(is_wrong=to in self.wrong_on_data)
        measured: Any = replace(
            Measured(),
            timing=SimpleNamespace(models=(base, timed)),  # type: ignore[arg-type]  # what is read of it
            runtime=SimpleNamespace(fault=None, comparison=outputs),  # type: ignore[arg-type]
            comparison=judged,  # type: ignore[arg-type]
        )
        return replace(converted, measured=measured)


def choose(monkeypatch: pytest.MonkeyPatch, machine: Machine, *candidates: Candidate, data: Any = None) -> Converted:
    monkeypatch.setattr("mezzo.tuning.fastest_format.find_candidates", lambda machine: [*candidates])
    model = open_source(onnx.parser.parse_model(MODEL), False, None)
    return convert_to_fastest(model, Request(to="auto"), machine.convert, data)


def test_the_fastest_is_taken_and_all_that_was_tried_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"bf16": (0.8, 1.3, 1.2), "int8": (0.4, 2.5, 2.0), "int8,bf16": (0.5, 2.1, 1.9)})
    chosen = choose(monkeypatch, machine, INT8, BF16, MIXED, data={"x": 1})
    assert chosen.plan.choice == (
        "to int8 for onnxruntime-cpu: the fastest on this machine (int8 on onnxruntime-cpu 2.50 times, int8,bf16 on"
        f" openvino-cpu 2.10 times, bf16 on openvino-cpu 1.30 times; FP32 is 1); {OTHERWISE}"
    )
    assert chosen.plan.notes[0] == chosen.plan.choice
    assert chosen.measured is not None
    assert [(each.to, each.median_ns) for each in chosen.measured.tried] == [
        ("int8", 0.4e6), ("int8,bf16", 0.5e6), ("bf16", 0.8e6),
    ]  # fmt: skip
    # INT8 is tried on random inputs without corrections; what is taken is converted on the data.
    assert machine.asked == [
        ("bf16", None, "minmax", "auto"), ("int8", "random", "minmax", "none"),
        ("int8,bf16", "random", "minmax", "none"), ("int8", "data", "minmax", "auto"),
    ]  # fmt: skip


@pytest.mark.parametrize("data", [{"x": 1}, np.zeros((3, 4), np.float32), "samples.npz", DataFiles("samples.npz")])
def test_what_is_wrong_on_the_data_is_not_taken(monkeypatch: pytest.MonkeyPatch, data: Any) -> None:
    machine = Machine({"bf16": (0.8, 1.3, 1.2), "int8": (0.4, 2.5, 2.0)}, wrong_on_data=("int8",))
    chosen = choose(monkeypatch, machine, INT8, BF16, data=data)
    assert chosen.plan.choice == (
        "to bf16 for openvino-cpu: the fastest on this machine (int8 on onnxruntime-cpu gives wrong answers on the"
        f" data, bf16 on openvino-cpu 1.30 times; FP32 is 1); {OTHERWISE}"
    )


def test_a_bare_array_is_data_of_the_formats_that_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzo.tuning.fastest_format.find_candidates", lambda machine: [INT8])
    source, array = onnx.parser.parse_model(MODEL), np.ones((3, 4), np.float32)
    converted = mezzo.convert(source, to="auto", data=array, check=False)
    assert converted.plan.choice is not None and "int8 on onnxruntime-cpu not timed" in converted.plan.choice
    assert converted.measured is not None and converted.measured.data is not None
    assert converted.measured.data.samples == 3


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"wrong": ("int8",)}, "gives wrong answers"),
        ({"unknown": ("int8",)}, "cannot be judged without data"),
        ({"failing": ("int8",)}, "cannot be converted"),
        ({"speeds": {"int8": (0.9, 1.2, 0.9)}}, "1.20 times, uncertain"),
        ({"speeds": {"int8": (0.9, 1.02, 1.01)}}, "1.02 times"),
    ],
)
def test_int8_without_data_needs_right_outputs_and_a_sure_gain(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], found: str
) -> None:
    machine = replace(Machine({"int8": (0.4, 2.5, 2.0)}), **changes)
    chosen = choose(monkeypatch, machine, INT8)
    assert chosen.plan.choice == (
        "to fp16 for onnxruntime-cpu: for the size alone: nothing is faster on this machine (int8 on onnxruntime-cpu"
        f" {found}; FP32 is 1); {OTHERWISE}"
    )
    assert machine.asked == [("int8", None, "none", "auto"), ("fp16", None, "minmax", "auto")]


def test_int8_without_data_is_tried_where_no_float_gains_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {"bf16": (0.8, 1.3, 0.9), "int8": (0.4, 2.5, 2.0)}
    machine = Machine(speeds)
    assert dict(choose(monkeypatch, machine, INT8, BF16).plan.settings)["to"] == "bf16"
    assert [asked[0] for asked in machine.asked] == ["bf16"]
    machine = Machine({**speeds, "bf16": (0.8, 0.9, 0.8)})
    assert dict(choose(monkeypatch, machine, INT8, BF16).plan.settings)["to"] == "int8"
    # OpenVINO has no kernels that find ranges as they run.
    assert dict(choose(monkeypatch, Machine({}), MIXED).plan.settings)["to"] == "fp16"


def test_a_gpu_that_mezzo_cannot_time_is_taken_by_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"int8": (0.4, 2.5, 2.0)})
    chosen = choose(monkeypatch, machine, GPU, INT8)
    assert chosen.plan.choice == (
        f"to fp16 for tensorrt: tensorrt, installed here with a GPU, gains by it; not measured here; {OTHERWISE}"
    )
    assert chosen.measured is not None and chosen.measured.tried == ()


def test_no_trial_starts_late_and_none_of_a_large_model(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {"bf16": (0.8, 1.3, 1.2), "int8": (0.4, 2.5, 2.0)}
    monkeypatch.setattr("mezzo.tuning.fastest_format._LONGEST_S", -1.0)
    machine = Machine(speeds)
    assert dict(choose(monkeypatch, machine, BF16).plan.settings)["to"] == "fp16"
    monkeypatch.setattr("mezzo.tuning.fastest_format._LARGEST_BYTES", 10)
    machine = Machine(speeds)
    choose(monkeypatch, machine, BF16)
    assert [asked[0] for asked in machine.asked] == ["auto"]  # by the tables


@pytest.mark.on_runtime
def test_the_command_converts_runs_and_writes_what_it_took(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], make_wide: Callable[[], Any]
) -> None:
    from mezzo.cli import main

    monkeypatch.setattr("mezzo.tuning.fastest_format.find_candidates", lambda machine: [INT8])
    onnx.save(make_wide(), tmp_path / "m.onnx")
    assert main(["convert", str(tmp_path / "m.onnx"), str(tmp_path / "out.onnx")]) == 0
    printed = capsys.readouterr().out
    assert "onnxruntime-cpu" in printed and "int8 on onnxruntime-cpu" in " ".join(printed.split())
    onnx.checker.check_model(str(tmp_path / "out.onnx"), full_check=True)
    recorded = {row.key: row.value for row in onnx.load(tmp_path / "out.onnx").metadata_props}
    assert recorded


@pytest.fixture
def make_wide() -> Callable[[], Any]:
    def make() -> onnx.ModelProto:
        return onnx.parser.parse_model(MODEL)

    return make


@pytest.mark.parametrize(("to", "target"), [("bf16", "openvino-cpu"), ("fp16", "tensorrt")])
def test_a_model_that_mezzo_has_made_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, to: str, target: str) -> None:
    monkeypatch.setattr("mezzo.tuning.fastest_format.find_candidates", lambda machine: [INT8])
    made = mezzo.convert(onnx.parser.parse_model(MODEL), to=to, target=target)
    again = mezzo.convert(made.model, to="auto")
    assert again.model.SerializeToString() == made.model.SerializeToString()
    assert {**dict(again.plan.settings), "to": to, "target": target} == dict(again.plan.settings)
    assert dict(mezzo.plan(made.model, to="auto").settings)["target"] == target


def test_resuming_is_of_one_format(tmp_path: Any) -> None:
    source = onnx.parser.parse_model(MODEL)
    with pytest.raises(mezzo.InputError, match="resume continues the conversion to one format"):
        mezzo.convert(source, to="auto", data="random", resume=tmp_path / "state.npz")
