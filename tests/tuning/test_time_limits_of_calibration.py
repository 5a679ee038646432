"""A limit of time holds inside the calibration of INT8 too: what was seen until then is used, and told."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_lines import classifier
from test_resuming import Ending

import mezzo
from mezzo.contracts.executor import Job, working_with
from mezzo.quantize.collection import CollectingJob

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
with np.load(DIGITS / "heldout.npz") as _held:
    _IMAGES = _held["image"][:96]
ASKED: dict[str, Any] = {"data": [{"image": _IMAGES[start : start + 8]} for start in range(0, 96, 8)]}
# 12 batches, of which every fourth is held out for the last check, and of the other nine every fourth from the scales.
CALIBRATED, HELD = 7, 9


class Watching(Ending):
    """Works in this process; counts what is collected, and what is begun once more than a limit was done."""

    def __init__(self, limit: int) -> None:
        super().__init__(10**9)
        self.limit, self.collected, self.late = limit, 0, list[str]()

    def team(self, job: Job[Any, Any], models: Any, here: Callable[[], Callable[[Any], Any]]) -> Any:
        def watching() -> Callable[[Any], Any]:
            run = here()

            def work(item: Any) -> Any:
                self.collected += isinstance(job, CollectingJob)
                if item is not None and self.done > self.limit:
                    self.late.append(job.title)
                return run(item)

            return work

        return super().team(job, models, watching)


def clock_of(executor: Watching) -> Any:
    """A clock that moves with runs alone."""

    class Clock:
        monotonic = staticmethod(lambda: float(executor.done))

    return Clock


def cut_of(notes: Any) -> tuple[int, int] | None:
    """The batches that scales are from, and that there were, where a note tells."""
    found = [re.fullmatch(r"the time limit ended the calibration: scales are from (\d+) of (\d+) .*", n) for n in notes]
    told = [(int(one[1]), int(one[2])) for one in found if one]
    assert len(told) <= 1
    return told[0] if told else None


def _tune(**others: Any) -> mezzo.Converted:
    return mezzo.tune(classifier(), max_error=0.5, to="int8", check=False, **ASKED, **others)


@pytest.fixture(scope="module")
def without_limit(tmp_path_factory: pytest.TempPathFactory) -> mezzo.Plan:
    return _tune(resume=tmp_path_factory.mktemp("whole") / "state.json").plan


@pytest.mark.parametrize("limit", [1, 3, 6])
def test_tuning_calibrates_on_what_it_has_time_for(
    limit: int, without_limit: mezzo.Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Watching(limit)
    state = tmp_path / "state.json"
    with monkeypatch.context() as patched, working_with(executor):
        patched.setattr("mezzo.evaluate.data_session.time", clock_of(executor))
        found = _tune(time_limit_s=float(limit), resume=state)
    assert executor.collected == limit
    assert cut_of(found.plan.notes) == (limit, CALIBRATED)
    assert found.measured is not None and found.measured.search is not None
    assert found.measured.search.stopped_by == "the time limit"
    assert "correction weights: left, as the time limit came first" in found.plan.notes
    # One batch of ranges and one look at the data, so that there is something to check, and then the check.
    assert set(executor.late) <= {"ranges", "emulation", "comparison"}
    assert executor.late.count("ranges") == 1 and executor.late.count("emulation") == 1

    # The same command goes on, and ends as if it had never been cut.
    gone_on = _tune(resume=state).plan
    assert gone_on == without_limit and cut_of(gone_on.notes) is None


@pytest.mark.parametrize(("limit", "seen"), [(1, 1), (12, 1), (16, 4), (21, None)])
def test_a_report_ends_with_its_first_row(limit: int, seen: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve batches are measured, nine are calibrated on, and then rows are judged."""
    executor = Watching(limit)
    monkeypatch.setattr("mezzo.evaluate.data_session.time", clock_of(executor))
    with working_with(executor):
        found = mezzo.quantize_report(
            classifier(), calibrators=["minmax", "mse", "entropy"], time_limit_s=float(limit), **ASKED
        )
    assert cut_of(found.notes) == (None if seen is None else (seen, HELD))
    assert [row.calibrator for row in found.rows] == ["minmax"]
    assert found.notes[-1] == "the time limit came before mse, entropy: not judged"
    assert sum(note.startswith("the time limit came while corrections were tried") for note in found.notes) == 1
    assert any("the time limit ended the ranges: they are of" in note for note in found.notes) == (limit <= 12)
    assert executor.collected == (seen or HELD)


def test_without_a_limit_nothing_is_cut(tmp_path: Path) -> None:
    found = mezzo.quantize_report(classifier(), calibrators=["minmax"], **ASKED)
    assert [row.calibrator for row in found.rows] == ["minmax"]
    assert not any("time limit" in note for note in found.notes)
