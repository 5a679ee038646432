"""What a search has to hold, and what it remembers in a file."""

import json
import math
from pathlib import Path

import pytest

from mezzo.common.errors import InputError
from mezzo.numerics.verdicts import read_drop
from mezzo.tuning.goals import Goal, RunScore, ScoreCache

_IDENTITY = {"model": "abc", "data": "calib.npz"}


def test_a_budget_is_held_up_to_its_bound() -> None:
    goal = Goal(max_error=1e-3, margin=1.25)
    assert goal.holds(RunScore(1e-3)) and not goal.holds(RunScore(1.01e-3))
    assert not goal.holds(RunScore(1e-3), slack=1.25) and goal.holds(RunScore(0.8e-3), slack=1.25)
    assert not goal.holds(RunScore(math.inf))


def test_a_metric_may_drop_by_a_share_of_the_references() -> None:
    goal = Goal(max_error=None, margin=1.25, metric=lambda outputs, labels: 0.0, max_drop=read_drop("0.5%"))
    assert goal.holds(RunScore(0.3, drop=0.004, reference=0.9))
    assert not goal.holds(RunScore(0.3, drop=0.005, reference=0.9))
    assert goal.holds(RunScore(0.3, drop=-0.1, reference=0.9)), "better is within any budget"
    assert not goal.holds(RunScore(math.inf, drop=0.0, reference=0.9)), "a broken output is no matter of the metric"


def test_no_drop_at_all_may_be_asked_for() -> None:
    goal = Goal(max_error=None, margin=1.25, metric=lambda outputs, labels: 0.0, max_drop=read_drop("0"))
    assert goal.holds(RunScore(0.1, drop=0.0, reference=1.0))
    assert not goal.holds(RunScore(0.1, drop=1e-9, reference=1.0))


def test_what_was_run_is_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    first = ScoreCache(path, _IDENTITY)
    assert first.score("all", ["b", "a"], lambda: RunScore(math.inf)) == RunScore(math.inf)
    assert first.score("all", ["a"], lambda: RunScore(1e-3, -0.25, 1.0)) == RunScore(1e-3, -0.25, 1.0)
    second = ScoreCache(path, _IDENTITY)
    assert second.score("all", ["a", "b"], lambda: pytest.fail("was run again")) == RunScore(math.inf)
    assert second.score("all", ["a"], lambda: pytest.fail("was run again")) == RunScore(1e-3, -0.25, 1.0)
    assert second.score("few", ["a"], lambda: RunScore(0.5)) == RunScore(0.5), "another part of the data is another run"
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]


def test_a_state_of_another_search_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    ScoreCache(path, _IDENTITY).score("all", [], lambda: RunScore(0.0))
    with pytest.raises(InputError, match=r"the state is of a search with another data; delete it"):
        ScoreCache(path, {**_IDENTITY, "data": "other.npz"})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"[]",
        b"{}",
        b'{"format": "mezzo-tuning-state/1", "of": {}, "scores": []}',
        b'{"format": "mezzo-tuning-state/1", "of": {}, "scores": {"k": ["x", null, null]}}',
        b'{"format": "mezzo-tuning-state/1", "of": {}, "scores": {"k": [1]}}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_state_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"state\.json: .*delete it, or name another file, to start anew$"):
        ScoreCache(path, _IDENTITY)
    assert path.read_bytes() == content


def test_a_state_of_another_format_says_which(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"format": "mezzo-plan/1", "of": {}, "scores": {}}), encoding="utf-8")
    with pytest.raises(InputError, match="found format 'mezzo-plan/1', wanted 'mezzo-tuning-state/1'"):
        ScoreCache(path, _IDENTITY)


def test_a_huge_state_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    with path.open("wb") as file:
        file.truncate(1 << 27)
    with pytest.raises(InputError, match="larger than any state"):
        ScoreCache(path, _IDENTITY)
