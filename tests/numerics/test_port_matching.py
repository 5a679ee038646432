"""Matching of two models' ports and names of feeds, for a front end whose ports are their ranks."""

import pytest

from mezzo.common.errors import InputError
from mezzo.numerics.data.feed_checks import check_names, length_remedy
from mezzo.numerics.data.port_matching import PortMatch, PortMatcher


def _matcher() -> PortMatcher[int]:
    return PortMatcher(
        is_alike=lambda ours, theirs: ours == theirs, spell=lambda rank: f"rank {rank}", agreement="rank"
    )


def test_ports_are_paired_by_name_and_the_rest_by_position() -> None:
    ports = _matcher()
    assert ports.pair("input", {"x": 1, "a": 2}, {"b": 2, "x": 3}) == {"x": "x", "a": "b"}
    assert ports.notes == ["input 'a' is 'b' in the model, matched by position"]


@pytest.mark.parametrize("theirs", [{"b": 1}, {"b": 2, "c": 2}, {}])
def test_unnamed_ports_of_another_rank_or_number_are_not_paired(theirs: dict[str, int]) -> None:
    assert not _matcher().pair("input", {"a": 2}, theirs)


def test_an_output_without_a_counterpart_is_an_error_and_a_further_one_a_note() -> None:
    ports = _matcher()
    assert ports.pair_outputs({"y": 1}, {"y": 1, "z": 2}) == {"y": "y"}
    assert ports.notes == ["output 'z' is only in the model, not compared"]
    with pytest.raises(
        InputError,
        match=r"^outputs differ: the reference gives 'y', which has no counterpart; the reference has 'y' \(rank 1\)"
        r" and the model none; compare models whose outputs match in name, or in number and rank$",
    ):
        ports.pair_outputs({"y": 1}, {})


def test_feeds_and_outputs_are_renamed_both_ways() -> None:
    match = PortMatch({"a": "b"}, {"y": "z"}, ())
    assert match.rename_feeds({"a": 1, "unused": 2}) == {"b": 1}
    assert match.rename_outputs({"z": 3, "other": 4}) == {"y": 3}


def test_missing_and_unknown_feeds_are_named() -> None:
    check_names(["x"], ["x", "s"], {"s"}, "model")
    with pytest.raises(
        InputError,
        match=r"^feeds: found nothing for 'x' and 'z', which the model does not have; feed the model's inputs: 'x',"
        r" 's' \(optional\)$",
    ):
        check_names(["z"], ["x", "s"], {"s"}, "model")


def test_a_short_batch_is_recognized() -> None:
    assert length_remedy(1, 4, 3, 2) == "feed an array whose dimension 1 is 4 long"
    assert length_remedy(0, 4, 3, 2).endswith("; where that is the batch, as many samples as 4 divides")
