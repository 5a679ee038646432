"""A model that runs in segments gives the answers of one piece, bit for bit, wherever it is cut."""

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from random_models import random_feeds, random_model, seeds
from segment_models import (
    WAYS,
    check_same,
    in_one_piece,
    in_segments,
    network,
)
from sweeps import swept
from switch_models import read

from mezzo.common.memory import MemoryLimit
from mezzo.onnx.run.runtime import JUDGING, MEASURING, SessionSettings
from mezzo.onnx.run.segmented import cut_model


@settings(max_examples=swept(60), deadline=None)
@given(seeds())
def test_a_random_model_cut_everywhere_answers_the_same(pair: tuple[int, int]) -> None:
    """Bodies, functions, sequences, optional inputs and unused values among them."""
    rng = random.Random(pair[0])
    model = random_model(rng, pair[1])
    feeds = [random_feeds(model, rng) for _ in range(2)]
    for how in WAYS:
        expected = in_one_piece(model, feeds, how)
        found = None if expected is None else in_segments(model, feeds, how)
        if expected is not None and found is not None:
            check_same([expected[0], *expected], found[0], f"seed {pair}, {how}")


@settings(max_examples=swept(60), deadline=None)
@given(seeds())
def test_a_random_model_cut_in_two_answers_the_same(pair: tuple[int, int]) -> None:
    rng = random.Random(pair[0])
    model = random_model(rng, pair[1])
    feeds = [random_feeds(model, rng) for _ in range(2)]
    how, place = rng.choice(WAYS), rng.randrange(1000)
    expected = in_one_piece(model, feeds, how)
    found = None if expected is None else in_segments(model, feeds, how, place)
    if expected is not None and found is not None:
        check_same([expected[0], *expected], found[0], f"seed {pair}, {how}, place {place}")


def test_most_random_models_are_cut_into_many() -> None:
    """Else the laws above show nothing."""
    counts = []
    for seed in range(swept(40)):
        rng = random.Random(seed)
        model = random_model(rng, 16)
        found = in_segments(model, [random_feeds(model, rng)], MEASURING)
        counts.append(0 if found is None else found[1])
    assert sorted(counts)[5] >= 8, counts


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_a_network_cut_everywhere_answers_the_same(how: SessionSettings) -> None:
    rng = np.random.default_rng(4)
    feeds = [{"x": rng.standard_normal((count, 3, 16, 16)).astype(np.float32)} for count in (4, 1, 9)]
    model = network(3)
    expected = in_one_piece(model, feeds, how)
    assert expected is not None
    found, count = in_segments(model, feeds, how)
    check_same([expected[0], *expected], found, how)
    assert count >= 5, "fusions leave some places"
    for place in range(1, count):
        found, _ = in_segments(model, feeds, how, place)
        check_same([expected[0], *expected], found, f"{how}, place {place}")


ODD = """
    g (float[N,4] x, float[N,4] spare, int64[K] k) => (float[N,4] y, float[N,4] x2, float[4,4] w, bfloat16[N,4] low)
    <float[4,4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}, float[4,4] spare = {0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1}>
    {
        x2 = Identity(x)
        low = Cast<to=16>(x)
        half = Cast<to=10>(x)
        is_large = Greater(x, w)
        parts = SequenceConstruct(x, x2)
        unused = Add(x, x)
        eight = Cast<to=17>(x)
        empty = Gather(x, k)
        back = Cast<to=1>(half)
        again = Cast<to=1>(low)
        more = Cast<to=1>(eight)
        one = Constant<value_int=1>()
        second = SequenceAt(parts, one)
        flags = Cast<to=1>(is_large)
        few = ReduceSum<keepdims=0>(empty)
        s1 = Sum(back, again, more, second, flags, few)
        y = Add(s1, spare)
    }
"""


@pytest.mark.parametrize("is_fed", [False, True])
def test_every_kind_of_value_crosses_or_stays(is_fed: bool) -> None:
    """Low types, flags, numbers without axes, empty tensors, sequences, results that are inputs of later segments."""
    rng = np.random.default_rng(2)
    feeds: dict[str, Any] = {"x": rng.standard_normal((4, 4)).astype(np.float32), "k": np.array([], np.int64)}
    if is_fed:
        feeds["spare"] = rng.standard_normal((4, 4)).astype(np.float32)
    model = read(ODD)
    expected = in_one_piece(model, [feeds], JUDGING)
    assert expected is not None
    found, count = in_segments(model, [feeds], JUDGING)
    check_same(expected * 2, found, "odd")
    assert found[0]["low"].dtype == ml_dtypes.bfloat16
    assert count >= 8


def test_what_takes_or_gives_sequences_is_run_in_one_piece() -> None:
    model = read("g (float[N] x) => (seq(float[N]) s) { a = Relu(x)  s = SequenceConstruct(x, a) }")
    assert cut_model(model, {}, JUDGING, MemoryLimit(bound_bytes=1, is_asked=False)) is None
