"""Which name a word stands for, and which it may have meant: laws over the tables that mezzo has."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzo.common.errors import InputError
from mezzo.common.name_matching import (
    aside,
    ask_for,
    did_you_mean,
    fold,
    join_with_or,
    matching_names,
    nearest,
    settle,
    unknown,
)
from mezzo.plugins import discovery

_TABLES: Mapping[str, Mapping[str, Any]] = {
    "policy": discovery.policies(),
    "strategy": discovery.strategies(),
    "target": discovery.targets(),
}
_ROWS = [(kind, name) for kind, table in _TABLES.items() for name in table]
_NAMES = ["aggressive", "balanced", "conservative", "onnxruntime-cpu", "keep-region"]


@pytest.mark.parametrize(("kind", "name"), _ROWS)
def test_a_row_is_found_by_its_name_in_any_spelling(kind: str, name: str) -> None:
    for written in (name, name.upper(), f" {name} ", name.replace("-", "_"), name.replace("-", "")):
        assert discovery.settle_name(kind, written) == name


@pytest.mark.parametrize(("kind", "name"), _ROWS)
def test_a_row_is_found_by_its_aliases_or_asked_back_among_those_who_share_one(kind: str, name: str) -> None:
    table = _TABLES[kind]
    for word in table[name].also:
        owners = [other for other in table if fold(word) in map(fold, table[other].also)]
        if len(owners) == 1:
            assert discovery.settle_name(kind, word) == name
        else:
            with pytest.raises(InputError, match=f"{kind} '{word}' may be .*'{name}'.*; write which$"):
                discovery.settle_name(kind, word)


def test_no_alias_is_another_rows_name() -> None:
    for table in _TABLES.values():
        names = set(map(fold, table))
        assert not names & {fold(word) for row in table.values() for word in row.also}


@given(st.sampled_from(_NAMES), st.data())
def test_a_slip_of_one_letter_is_understood(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name) - 2))
    slips = (
        name[:at] + name[at + 1 :],
        name[: at + 1] + name[at:],
        name[:at] + name[at + 1] + name[at] + name[at + 2 :],
    )
    for slip in slips:
        assert nearest(slip, _NAMES, 1) == (name,)


def test_short_words_and_strangers_are_like_nothing() -> None:
    assert (
        nearest("o", ["to", "io"]) == nearest("zz", _NAMES) == nearest("", _NAMES) == nearest("toaster", _NAMES) == ()
    )
    assert nearest("npu", ["gpu", "cpu"]) == ()


def test_a_part_of_a_name_is_like_it() -> None:
    assert nearest("mask", ["attention_mask", "input_ids"]) == ("attention_mask",)


def test_names_that_differ_in_signs_alone_are_all_meant() -> None:
    assert nearest("LAYER_0", ["layer.0", "layer-0", "layer.1"]) == ("layer.0", "layer-0")
    assert matching_names("a_b", {"a-b": (), "ab": ()}) == ("a-b", "ab")


def test_an_exact_name_wins_over_others_alias() -> None:
    assert matching_names("cpu", {"cpu": (), "other": ("cpu",)}) == ("cpu",)


def test_sentences() -> None:
    assert did_you_mean("balancd", _NAMES) == "did you mean 'balanced'?" and did_you_mean("zz", _NAMES) == ""
    assert ask_for(["a", "b", "c"]) == "did you mean 'a', 'b' or 'c'?" and ask_for([]) == ""
    assert (aside("x?"), aside("")) == (" (x?)", "")
    assert [join_with_or("a"), join_with_or("ab"), join_with_or("abc")] == ["a", "a or b", "a, b or c"]
    assert str(unknown("run", "natve", ("emulated", "native"))) == (
        "run 'natve' is unknown (did you mean 'native'?); choose one of emulated, native"
    )
    assert str(unknown("run", 3, ("emulated", "native"))) == "run 3 is unknown; choose one of emulated, native"


def test_the_likest_alias_asks_for_its_row() -> None:
    with pytest.raises(InputError) as caught:
        settle("--target", "tensorrrt", {"tensorrt": ("trt",), "any": ()}, ", or write one")
    wanted = "--target 'tensorrrt' is unknown (did you mean 'tensorrt'?); choose one of tensorrt, any, or write one"
    assert str(caught.value) == wanted
