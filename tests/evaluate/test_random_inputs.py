"""Inputs drawn at random fit the model: they run and give finite answers; what they show is never called right."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import random_feeds, random_model
from sweeps import swept

import mezzo
from mezzo.common.errors import InputError, MezzoError
from mezzo.contracts.frontend import lab_of
from mezzo.conversion.results import open_source
from mezzo.evaluate.model_data import open_model_data
from mezzo.evaluate.random_data import read_seed
from mezzo.ir.input_roles import Part, Slot
from mezzo.numerics.data.random_inputs import AxisLengths, choose_lengths
from mezzo.numerics.measures import Ruling

Feeds = dict[str, Any]


def model_of(text: str, opset: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n{text}')


def drawn(model: onnx.ModelProto, data: str = "random") -> list[Feeds]:
    return [dict(batch.feeds) for batch in open_model_data(open_source(model, False, None), data)]


def answers(model: onnx.ModelProto, feeds: Feeds) -> list[Any]:
    return list(lab_of(open_source(model, False, None)).native()(feeds).values())


def are_finite(found: list[Any]) -> bool:
    flat = [part for one in found for part in (one if isinstance(one, list) else [one])]
    return all(np.isfinite(np.asarray(part).astype(np.float64)).all() for part in flat)


EMBEDDING = """
g (int64[batch,seq] ids, int64[batch,seq] kinds, int64[batch,seq] mask) => (float[batch,seq,2] y)
<float[7,2] words = {1,2,3,4,5,6,7,8,9,10,11,12,13,14}, float[2,2] types = {1,2,3,4}, float one = {1},
 float deep = {-10000}, int64[1] last = {2}>
{
   e = Gather(words, ids)
   two = Identity(kinds)
   t = Gather(types, two)
   s = Add(e, t)
   m = Cast<to=1>(mask)
   n = Sub(one, m)
   b = Mul(n, deep)
   c = Unsqueeze(b, last)
   y = Add(s, c)
}
"""


def test_ids_lie_inside_the_tables_and_masks_are_ones() -> None:
    every = drawn(model_of(EMBEDDING))
    assert len(every) > 1
    ids, kinds, masks = (np.concatenate([feeds[name] for feeds in every]) for name in ("ids", "kinds", "mask"))
    assert (ids.min(), ids.max()) == (0, 6) and (kinds.min(), kinds.max()) == (0, 1) and (masks == 1).all()
    assert ids.shape == kinds.shape == masks.shape and ids.shape[1] > 1


@pytest.mark.parametrize(
    ("text", "below"),
    [
        ("g (int64[2] i) => (float[2] y) <float[5] t = {1,2,3,4,5}> { y = Gather(t, i) }", 5),
        ("g (int64[2] i) => (float[2] y) <float[5] t = {1,2,3,4,5}, int64 two = {2}> "
         "{ j = Add(i, two) y = Gather(t, j) }", 3),
        ("g (int32[2] i) => (float[2] y) <float[6] t = {1,2,3,4,5,6}, int64 two = {2}> "
         "{ k = Cast<to=7>(i) j = Mul(k, two) y = Gather(t, j) }", 3),
        ("g (int64[2,1] i) => (float[2,3] y) <float[5,3] t = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}> "
         "{ y = GatherND(t, i) }", 5),
        ("g (int64[1,3] i) => (float[1,3] y) <float[4,3] t = {1,2,3,4,5,6,7,8,9,10,11,12}> "
         "{ y = GatherElements<axis=0>(t, i) }", 4),
        ("g (int64[2] i) => (float[2,9] y) <int64 d = {9}, float[2] v = {0,1}> { y = OneHot(i, d, v) }", 9),
        ("g (int64[2] i) => (float[2] y) <float[5] t = {1,2,3,4,5}, int64[2,1] s = {0,1}> "
         "{ a, b = Split<num_outputs=2>(i) c = Concat<axis=0>(b, a) y = Gather(t, c) }", 5),
    ],
    ids=["Gather", "sum", "product", "GatherND", "GatherElements", "OneHot", "moved"],
)  # fmt: skip
def test_an_index_has_the_bound_of_what_it_picks_from(text: str, below: int) -> None:
    model = model_of(text)
    (slot,) = lab_of(open_source(model, False, None)).inputs.slots
    assert (slot.part, slot.below) == (Part.INDEX, below)
    assert are_finite(answers(model, drawn(model)[0]))


def test_an_index_is_followed_into_bodies_and_functions() -> None:
    text = """
<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
g (int64[2] i, bool c) => (float[2] y) <float[5] t = {1,2,3,4,5}> {
   y = If(c) <then_branch = a () => (float[2] p) { p = own.pick(t, i) },
              else_branch = b () => (float[2] q) { q = Gather(t, i) }>
}
<domain: "own", opset_import: ["" : 21]> pick (rows, at) => (found) { found = Gather(rows, at) }
"""
    model = onnx.parser.parse_model(text)
    slots = {slot.name: slot for slot in lab_of(open_source(model, False, None)).inputs.slots}
    assert slots["i"].below == 5 and slots["c"].part is Part.SWITCH
    assert are_finite(answers(model, drawn(model)[0]))


def test_past_lengths_are_consistent() -> None:
    """Nothing is cached before the first token: the past is empty, and the mask as long as what is fed."""
    slots = [
        Slot(name="ids", dtype=None, lengths=("batch", "sequence")),
        Slot(name="mask", dtype=None, lengths=("batch", "past_sequence + sequence")),
        Slot(name="keys", dtype=None, lengths=("batch", 2, "past_sequence", 4)),
    ]
    shapes = choose_lengths(slots, AxisLengths())
    assert shapes == {"ids": (4, 16), "mask": (4, 16), "keys": (4, 2, 0, 4)}
    assert choose_lengths(slots, AxisLengths(past=3))["mask"] == (4, 19)


def test_an_open_axis_is_as_long_as_others_fix_it() -> None:
    slots = [Slot(name="a", dtype=None, lengths=(3, 5)), Slot(name="b", dtype=None, lengths=("n", 5))]
    assert choose_lengths(slots, AxisLengths())["b"] == (3, 5)


def test_a_model_that_was_traced_at_one_length_is_fed_that_length() -> None:
    text = """g (float[n,m] x) => (float[n,m] y) <float[1,13] w = {1,2,3,4,5,6,7,8,9,10,11,12,13}> { y = Add(x, w) }"""
    assert drawn(model_of(text))[0]["x"].shape[1] in (1, 13)
    fixed = text.replace("y = Add(x, w)", "t = Concat<axis=0>(x, w) y = Identity(t)")
    assert drawn(model_of(fixed))[0]["x"].shape[1] == 13


def test_the_same_seed_draws_the_same_and_another_other_numbers() -> None:
    text = "g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }"
    first, again, other = (drawn(model_of(text), data) for data in ("random", "random:0", "random:1"))
    assert all((a["x"] == b["x"]).all() for a, b in zip(first, again, strict=True))
    assert (first[0]["x"] != other[0]["x"]).any() and (first[0]["x"] != first[1]["x"]).any()


@settings(max_examples=swept(60), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 14))
def test_random_models_run_on_what_is_drawn(seed: int, size: int) -> None:
    """And give finite answers wherever they do so on numbers in [-1, 1]; with Pow and Exp of drawn ones at unit scale,
    a model may still pass FP32's range, which it does not where every operator is tame.
    """
    model = random_model(random.Random(seed), size, is_tame=True)
    assert all(are_finite(answers(model, feeds)) for feeds in drawn(model))
    wild = random_model(random.Random(seed), size)
    try:
        answers(wild, random_feeds(wild, random.Random(seed)))
    except MezzoError:
        return
    answers(wild, drawn(wild)[0])


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ("random:x", "data 'random:x' has seed 'x'; give a whole number, such as random:7"),
        ("random:", "data 'random:' has seed ''; give a whole number, such as random:7"),
        ("random:-1", "data 'random:-1' has seed '-1'; give a whole number, such as random:7"),
    ],
)
def test_a_seed_is_a_whole_number(data: str, fault: str) -> None:
    with pytest.raises(InputError) as raised:
        read_seed(data)
    assert str(raised.value) == fault
    assert read_seed("random:12") == 12 and read_seed(Path("random")) == 0 and read_seed("randomly.npz") is None


def test_a_folder_of_that_name_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("random").mkdir()
    with pytest.raises(InputError, match="is a file or folder here, and the word for inputs drawn at random; give its"):
        read_seed("random")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("g (float[20000,20000] x) => (float[20000,20000] y) { y = Relu(x) }",
         "no random inputs fit .*; give data of your own .input 'x' of .* is 20000x20000, 1600 MB at random, more"),
        ("g (float[4] x, int64[1] s) => (float[n,m] y) <int64[3] a = {7,7,7}> { t = Concat<axis=0>(a, s) "
         "y = Reshape(x, t) }", "no random inputs fit .*; give data of your own"),
    ],
    ids=["too large", "no shape fits"],
)  # fmt: skip
def test_what_cannot_be_drawn_is_said_on_one_line(text: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault) as raised:
        drawn(model_of(text))
    assert "\n" not in str(raised.value)


def test_labels_cannot_be_drawn() -> None:
    model = model_of("g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }")
    with pytest.raises(InputError, match="labels 'z' cannot be drawn at random; give data that has them"):
        open_model_data(open_source(model, False, None), "random", labels=("z",))


def test_what_random_data_shows_is_never_right() -> None:
    model = model_of("g (float[n,4] x) => (float[n,4] y) <float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> "
                     "{ h = MatMul(x, w) y = Relu(h) }")  # fmt: skip
    converted = mezzo.convert(model)
    comparison = mezzo.compare(model, converted.model, "random")
    assert comparison.verdict.ruling is Ruling.SAME and comparison.data.seed == 0
    assert "right" not in repr(comparison) and "not refuted" in repr(comparison)
    assert "random inputs prove little" in repr(comparison)
    on_random = mezzo.convert(model, data="random:3")
    assert dict(on_random.plan.settings)["data"] == "random:3"
    assert on_random.measured is not None and on_random.measured.data is not None
    assert on_random.measured.data.seed == 3 and "right" not in repr(on_random)
    tuned = mezzo.tune(model, data="random", max_error=1e-2)
    assert "right" not in repr(tuned) and "not refuted" in repr(tuned)


def test_random_data_lifts_nothing() -> None:
    """Real data that fits lets a suspected Softmax run low; numbers that were made up speak for nobody."""
    model = model_of("g (float[n,4] x) => (float[n,4] y) <float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}> "
                     "{ [mm] h = MatMul(x, w) [sm] y = Softmax(h) }")  # fmt: skip
    data = {"x": np.random.default_rng(0).normal(0, 0.1, (64, 4)).astype(np.float32)}
    assert mezzo.convert(model, data=data).summary.low_nodes == 2
    assert mezzo.convert(model, data="random").summary.low_nodes == 1


def test_the_account_says_what_was_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from mezzo.cli import main

    monkeypatch.chdir(tmp_path)
    onnx.save(model_of("g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }"), "m.onnx")
    assert main(["ranges", "m.onnx", "--data", "random:5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["seed"] == 5
    assert main(["ranges", "m.onnx", "--data", "random"]) == 0
    assert "drawn at random, which proves little" in capsys.readouterr().out
