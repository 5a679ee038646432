"""What tune --measure ends with: the result beside FP32 and what convert alone gives. The times are made up."""

from collections.abc import Callable
from typing import Any

import jsonschema
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import mezzo
from mezzo.common.errors import ContractError
from mezzo.contracts.frontend import Model
from mezzo.conversion.judged_model import judge_model
from mezzo.conversion.summaries import summarise_result
from mezzo.planner.options import Options
from mezzo.report.records.account import describe_tuning, schema
from mezzo.tuning.costs import table_costs
from mezzo.tuning.measured_costs import Measurement
from mezzo.tuning.timing import side_by_side
from mezzo.tuning.timing.interleaved_timing import Taken

_MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[64,256] x, float[256,256] w, float[256,256] v) => (float[64,256] y)
{
   [one] a = MatMul(x, w)
   [relu] b = Relu(a)
   [two] y = MatMul(b, v)
}"""
FP32 = (8.0, 8.0)


def model() -> onnx.ModelProto:
    return onnx.parser.parse_model(_MODEL)


def data() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    shapes = {"x": (64, 256), "w": (256, 256), "v": (256, 256)}
    return [{name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(4)]


def measured(model: Model, options: Options, feeds: object) -> Measurement:
    """What the table says, as if it had been measured."""
    costs, table = table_costs(judge_model(model, options)[1].problem, "measured on nothing")
    return Measurement(costs=costs, table=table, high_ns=1.0, low_ns=1.0, mapped_share=1.0, notes=())


@pytest.fixture
def race(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Tune with times in ms of FP32, the result and what convert alone gives: two that turns alternate between. Words
    are faults.
    """

    def run(*times: tuple[float, float] | str) -> Any:
        def turns(watches: list[object], *_: object) -> list[Taken]:
            assert len(watches) == len(times)
            return [
                Taken(fault=each) if isinstance(each, str) else Taken([[ms * 1e6 for ms in each] * 6] * 5, 1)
                for each in times
            ]

        monkeypatch.setattr(side_by_side, "take_turns", turns)
        monkeypatch.setattr("mezzo.api.tune.measure_target", measured)
        return mezzo.tune(model(), data=data(), max_error=0.05, measure=True, target="onnxruntime-cpu")

    return run


def said_of(found: Any) -> tuple[str, dict[str, Any]]:
    """What the headline says of speed, and the account, which its schema allows."""
    headline = summarise_result("in", "out", found)
    account = describe_tuning("in", "out", found.plan, found.summary, found.measured, headline=headline)
    jsonschema.validate(account, schema())
    return headline.gains[-1], account


def test_result_is_timed_beside_fp32_and_what_convert_alone_gives(race: Callable[..., Any]) -> None:
    gain, account = said_of(race(FP32, (2.0, 2.0), (4.0, 4.0)))
    said = "a run takes 2 ms, 8 ms in FP32: 4.00 times as fast (4.00 to 4.00)"
    assert gain == f"measured on onnxruntime {onnxruntime.__version__}: {said}"
    rows = [(row["name"], row["median_ns"], (row["speed"] or {}).get("low")) for row in account["timing"]["models"]]
    assert rows == [("FP32", 8e6, None), ("tuned", 2e6, 4.0), ("convert alone", 4e6, 2.0)]
    (told,) = (note for note in account["notes"] if "convert alone" in note)
    assert told.startswith("the result is faster than what convert alone gives, which errs by ")
    assert told.endswith(" by its own check: 2.00 times as fast, 2.00 to 2.00")


@pytest.mark.parametrize(
    ("alone", "words"), [(1.0, "slower than what"), (2.0, "not significantly faster or slower than what")]
)
def test_what_is_no_faster_than_convert_alone_is_told(race: Callable[..., Any], alone: float, words: str) -> None:
    _, account = said_of(race(FP32, (2.0, 2.0), (alone, alone)))
    assert any(f"the result is {words} convert alone gives" in note for note in account["notes"])


def test_result_that_is_no_faster_than_fp32_is_fp32(race: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzo.planner.choices.gains.find_version", lambda name: None)  # no other runtime is suggested
    found = race(FP32, (9.0, 9.0), (4.0, 4.0))
    assert found.summary.low_nodes == 0
    assert found.measured.search.stopped_by == "nothing that holds the budget is faster than FP32 here"
    gain, account = said_of(found)
    assert (account["timing"], gain) == (None, "no speed gain: every node stays in f32")
    assert found.measured.search.checks == 2  # of what was found, and of FP32


def test_result_that_the_target_does_not_run_is_fp32(race: Callable[..., Any]) -> None:
    found = race(FP32, "no kernel", (4.0, 4.0))
    assert found.summary.low_nodes == 0
    assert found.measured.search.stopped_by == "the target does not run the result: no kernel"
    assert any("cannot be compared in speed: no kernel" in note for note in found.measured.notes)


def test_difference_within_the_noise_is_no_gain(race: Callable[..., Any]) -> None:
    """Half of the turns are twice as fast as FP32, half of them two thirds: the median is between, above 1."""
    found = race(FP32, (4.0, 12.0), (8.0, 8.0))
    gain, _ = said_of(found)
    assert gain.endswith(": no significant difference from FP32 (1.15 times as fast, 0.67 to 2.00)")
    assert summarise_result("in", "out", found).is_faster is None
    assert found.summary.low_nodes == 3


def test_convert_that_fails_leaves_the_other_two(race: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ContractError("it does not run")

    monkeypatch.setattr("mezzo.api.tune.convert_on_data", fail)
    found = race(FP32, (2.0, 2.0))
    assert [row.name for row in found.measured.timing.models] == ["FP32", "tuned"]
    assert "what convert alone gives was not timed: it does not run" in found.measured.notes


def test_evaluations_are_counted_apart(race: Callable[..., Any]) -> None:
    _, account = said_of(race(FP32, (2.0, 2.0), (4.0, 4.0)))
    search = account["search"]
    assert (search["evaluations"], search["partial_evaluations"], search["checks"]) == (1, 0, 1)
