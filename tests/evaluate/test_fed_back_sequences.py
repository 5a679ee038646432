"""Sequences: each model is fed its own outputs, exactly as a loop over single calls does."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

import mezzo
from mezzo.contracts.frontend import lab_of
from mezzo.contracts.sequences.step_feeds import StepFeeds
from mezzo.conversion.results import open_source
from mezzo.evaluate.model_data import open_model_data
from mezzo.formats.dtypes import DType

STEPS = 300
HEAD = '<ir_version: 10, opset_import: ["" : 21]>'
AVERAGE = f"""{HEAD} average (float[N,64] x, float[N,64] h) => (float[N,64] new_h, float[N,64] y)
    <float a = {{0.99}}, float b = {{0.01}}> {{
        q = MatMul(x, w)  r = Relu(q)  t = MatMul(r, w)  u = Relu(t)  p = MatMul(u, w)
        s = Mul(b, p)  kept = Mul(a, h)  new_h = Add(kept, s)
        i = MatMul(new_h, v)  j = Relu(i)  k = MatMul(j, v)  l = Relu(k)  y = MatMul(l, v) }}"""
GRU = f"""{HEAD} gru (float[1,1,4] x, float[1,1,8] h_0) => (float[1,1,1,8] y, float[1,1,8] h_n) {{
    y, h_n = GRU<hidden_size = 8>(x, w, r, , , h_0) }}"""
CACHE = f"""{HEAD} cache (float[1,1,8] x, float[1,past,8] past_k, float[1,total] mask)
    => (float[1,1,8] y, float[1,now,8] present_k) {{
        k = MatMul(x, w)  present_k = Concat<axis = 1>(past_k, k)  kt = Transpose<perm = [0,2,1]>(present_k)
        s = MatMul(x, kt)  m = Add(s, mask)  p = Softmax<axis = -1>(m)  y = MatMul(p, present_k) }}"""
WEIGHTS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    AVERAGE: {"w": (64, 64), "v": (64, 64)}, GRU: {"w": (1, 24, 4), "r": (1, 24, 8)}, CACHE: {"w": (8, 8)},
}  # fmt: skip
STATES = {AVERAGE: ("new_h", "h"), GRU: ("h_n", "h_0"), CACHE: ("present_k", "past_k")}


def make(text: str) -> onnx.ModelProto:
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    for name, shape in WEIGHTS[text].items():
        weight = (rng.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return model


def rows(text: str, steps: int = STEPS) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    shape = {AVERAGE: (1, 64), GRU: (1, 1, 4), CACHE: (1, 1, 8)}[text]
    each = [{"x": (1 + rng.standard_normal(shape)).astype(np.float32)} for _ in range(steps)]
    if text is CACHE:
        return [{**row, "mask": np.zeros((1, number), np.float32)} for number, row in enumerate(each, 1)]
    return each


def first_state(text: str) -> np.ndarray:
    return np.zeros({AVERAGE: (1, 64), GRU: (1, 1, 8), CACHE: (1, 0, 8)}[text], np.float32)


def loop(text: str, run: Any, feeds: Sequence[Mapping[str, np.ndarray]]) -> list[Mapping[str, Any]]:
    """The outputs of each call, written out."""
    output, name = STATES[text]
    state, found = first_state(text), []
    for row in feeds:
        found.append(run({**row, name: state}))
        state = found[-1][output]
    return found


def steps_of(text: str, data: object) -> StepFeeds:
    model = open_source(make(text), False, None)
    (batch,) = open_model_data(model, data, feedback=("guess",))
    assert isinstance(batch.feeds, StepFeeds)
    return batch.feeds


@pytest.mark.parametrize("text", [AVERAGE, GRU, CACHE], ids=["average", "gru", "cache"])
@pytest.mark.parametrize("to", [None, "fp16"])
def test_a_sequence_is_a_loop_over_calls(text: str, to: str | None) -> None:
    model = make(text) if to is None else mezzo.convert(make(text), to=to, policy="aggressive", check=False).model
    lab, feeds = lab_of(open_source(model, False, None)), rows(text, 40)
    run = lab.native() if to is None else lab.emulated(None)
    found, expected = run(steps_of(text, feeds)), loop(text, run, feeds)
    output, _ = STATES[text]
    assert np.array_equal(found["y"], np.stack([each["y"] for each in expected]))
    if text is CACHE:  # the last one holds all before it
        assert np.array_equal(found[output], expected[-1][output])
    else:
        assert np.array_equal(found[output], np.stack([each[output] for each in expected]))


def test_each_model_of_a_pair_is_fed_its_own_outputs() -> None:
    source, low = make(AVERAGE), mezzo.convert(make(AVERAGE), to="fp16", policy="aggressive", check=False).model
    feeds = rows(AVERAGE)
    runs = lab_of(open_source(source, False, None)).native(), lab_of(open_source(low, False, None)).emulated(None)
    exact, rounded = (np.stack([step["new_h"] for step in loop(AVERAGE, run, feeds)]) for run in runs)
    differences = np.linalg.norm((rounded - exact).reshape(STEPS, -1).astype(np.float64), axis=1)
    scale = np.sqrt(np.mean(np.square(exact.astype(np.float64)).reshape(STEPS, -1).sum(axis=1)))
    compared = mezzo.compare(source, low, feeds, feedback="guess")
    output = next(each for each in compared.outputs if each.name == "new_h")
    assert output.steps is not None
    assert output.steps.worst == pytest.approx((differences / scale).max(), rel=1e-6)
    assert (output.steps.count, output.steps.worst_at) == (STEPS, int(differences.argmax()) + 1)
    assert output.relative_l2.estimate == output.steps.worst
    assert output.steps.grows
    alone = mezzo.compare(source, low, [{**row, "h": first_state(AVERAGE)} for row in feeds])
    assert all(each.steps is None for each in alone.outputs)
    assert next(each for each in alone.outputs if each.name == "new_h").relative_l2.estimate < output.steps.worst / 10


def test_a_fed_back_average_keeps_fp32_and_its_error_stays_flat() -> None:
    source, feeds = make(AVERAGE), rows(AVERAGE)
    errors = {}
    for way, options in {"without": {}, "with": {"feedback": ["new_h=h"]}}.items():
        result = mezzo.convert(source, to="fp16", check=False, **options)  # type: ignore[arg-type]
        output = mezzo.compare(source, result.model, feeds, feedback="guess").outputs[0]
        assert output.steps is not None
        errors[way] = output.steps.worst
    assert errors["with"] * 10 < errors["without"]


def test_rows_of_a_file_are_steps(tmp_path: Any) -> None:
    x = np.concatenate([row["x"] for row in rows(AVERAGE, 20)])
    np.savez(tmp_path / "x.npz", x=x)
    steps = steps_of(AVERAGE, tmp_path / "x.npz")
    assert len(steps.each) == 20
    assert np.array_equal(steps["x"], x[:, None])
    assert steps.first["h"].shape == (1, 64)


def test_states_start_from_the_first_row_of_the_data() -> None:
    feeds = [{**row, "h": np.full((1, 64), number, np.float32)} for number, row in enumerate(rows(AVERAGE, 5), 3)]
    steps = steps_of(AVERAGE, feeds)
    assert np.array_equal(steps.initial["h"], feeds[0]["h"])
    assert all("h" not in row for row in steps.each)


def test_ranges_are_over_all_steps() -> None:
    feeds, model = rows(AVERAGE), make(AVERAGE)
    run = lab_of(open_source(model, False, None)).native()
    states = np.stack([step["new_h"] for step in loop(AVERAGE, run, feeds)])
    measured = {value.value: value for value in mezzo.ranges(model, feeds, feedback="guess").values}
    assert measured["new_h"].largest == np.abs(states).max()
    assert measured["h"].largest == np.abs(states[:-1]).max()
    assert measured["new_h"].count == states.size


def test_tuning_runs_every_plan_through_the_sequence() -> None:
    source, feeds, output = make(AVERAGE), rows(AVERAGE), STATES[AVERAGE][0]
    single = [{**row, "h": first_state(AVERAGE)} for row in feeds]
    errors = {}
    for words, data in (("guess", feeds), (None, single)):
        tuned = mezzo.tune(source, data=data, max_error=4e-3, to="fp16", feedback=words, check=False)
        assert any(node.precision.compute is DType.FLOAT16 for node in tuned.plan.nodes)
        compared = mezzo.compare(source, tuned.model, feeds, feedback="guess")
        errors[words] = next(each for each in compared.outputs if each.name == output).relative_l2.estimate
    assert errors["guess"] <= 4e-3 < errors[None]


def test_steps_bound_the_data_and_random_inputs() -> None:
    model = make(GRU)
    assert mezzo.compare(model, model, rows(GRU), feedback="guess", steps=7).data.samples == 7
    assert mezzo.compare(model, model, "random", feedback="guess", steps=9).data.samples == 9


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 5}, "steps is 5 and no output is fed back; give feedback too"),
        ({"steps": 1, "feedback": "guess"}, "steps is 1; give 2 or more"),
        ({"feedback": "y"}, "feedback 'y' is not understood; give OUTPUT=INPUT, or feedback=\"guess\""),
    ],
)
def test_feedback_that_makes_no_sense_is_refused(options: Mapping[str, Any], words: str) -> None:
    with pytest.raises(mezzo.InputError, match="^" + words.replace("(", "\\(")):
        mezzo.compare(make(GRU), make(GRU), rows(GRU, 5), **options)


def test_a_step_that_fails_is_named() -> None:
    feeds = rows(CACHE, 4)
    feeds[2]["mask"] = np.zeros((1, 9), np.float32)
    with pytest.raises(mezzo.MezzoError, match="step 3: "):
        mezzo.compare(make(CACHE), make(CACHE), feeds, feedback="guess")


def test_outputs_that_do_not_fit_in_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzo.contracts.sequences.step_feeds._MOST_BYTES", 1 << 10)
    with pytest.raises(
        mezzo.InputError, match=r"the outputs of 300 steps take more than 0 MB; give fewer, as steps does"
    ):
        mezzo.compare(make(GRU), make(GRU), rows(GRU), feedback="guess")
