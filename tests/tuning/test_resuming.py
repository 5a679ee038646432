"""What was ended at any point goes on as if it had not been; files that keep it may be hostile; limits of time hold."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_lines import classifier
from random_models import random_feeds, random_model
from sweeps import swept

import mezzo
from mezzo.common.errors import InputError
from mezzo.contracts.executor import HERE, Job, working_with


class Ending:
    """Works in this process, and is ended as the n-th item is asked for, as Ctrl-C or a killed process would."""

    def __init__(self, items: int) -> None:
        self.left, self.done = items, 0

    def team(self, job: Job[Any, Any], models: Any, here: Callable[[], Callable[[Any], Any]]) -> Any:
        run = here()

        def work(item: Any) -> Any:
            if item is not None:
                if not self.left:
                    raise KeyboardInterrupt
                self.left, self.done = self.left - 1, self.done + 1
            return run(item)

        return HERE.team(job, models, lambda: work)


def model_and_data(folder: Path, seed: int) -> tuple[Path, Path]:
    rng = random.Random(seed)
    model = random_model(rng, 40, is_tame=True)
    onnx.save(model, folder / "model.onnx")
    (folder / "data").mkdir()
    for number in range(6):
        np.savez(folder / "data" / f"{number}.npz", **random_feeds(model, rng))
    return folder / "model.onnx", folder / "data"


def tuned(model: Path, data: Path, resume: Path | None = None) -> Any:
    found = mezzo.tune(model, data=data, max_error=3e-4, resume=resume)
    assert found.measured is not None and found.measured.search is not None
    return replace(found.measured, search=replace(found.measured.search, time_s=0.0)), found.plan


def probed(model: Path, data: Path, resume: Path | None = None) -> Any:
    return mezzo.sensitivity(model, data, resume=resume)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("run", [tuned, probed])
def test_a_search_ended_at_any_run_goes_on_as_if_it_had_not_been(
    run: Callable[..., Any], seed: int, tmp_path: Path
) -> None:
    model, data = model_and_data(tmp_path, seed)
    whole = Ending(10**9)
    with working_with(whole):
        alone = run(model, data)
    rng, total = random.Random(seed), 0
    for attempt in range(swept(3)):
        state, ends = tmp_path / f"state{attempt}.json", 0
        while True:
            executor = Ending(rng.randrange(3, 24))
            try:
                with working_with(executor):
                    found = run(model, data, state)
            except KeyboardInterrupt:
                ends += 1
                assert ends < 100, f"seed {seed}: it never ends"
                continue
            break
        assert found == alone, f"seed {seed}, attempt {attempt}, ended {ends} times"
        total += ends
    assert total, f"seed {seed}: nothing was ended"


def collected(folder: Path, state: Path) -> str:
    data = Path(__file__).parents[2] / "examples" / "digits" / "heldout.npz"
    found = mezzo.quantize_report(
        classifier(),
        data,
        labels=["label"],
        calibrators="minmax",
        batch_size=90,
        correct="none",
        resume=state,
    )
    return repr([(row.calibrator, row.verdict.error, row.quantized) for row in found.rows])


def test_a_calibration_ended_in_the_middle_goes_on(tmp_path: Path) -> None:
    executor = Ending(8)  # six batches of ranges, two of the calibration
    with pytest.raises(KeyboardInterrupt), working_with(executor):
        collected(tmp_path, tmp_path / "kept.npz")
    with np.load(tmp_path / "kept.npz") as held:
        assert json.loads(held["journal"].tobytes())["batches"] == 2
    assert collected(tmp_path, tmp_path / "kept.npz") == collected(tmp_path, tmp_path / "whole.npz")
    with np.load(tmp_path / "kept.npz") as kept, np.load(tmp_path / "whole.npz") as whole:
        assert {n: kept[n].tobytes() for n in kept.files} == {n: whole[n].tobytes() for n in whole.files}


DAMAGED = "the calibration is damaged, its text .*; delete it"


def rewritten(path: Path, **arrays: Any) -> None:
    """The file with other arrays; None leaves one out."""
    with np.load(path) as held:
        kept = {name: held[name] for name in held.files} | arrays
    np.savez(path, **{name: array for name, array in kept.items() if array is not None})


def journal_with(path: Path, **fields: Any) -> np.ndarray:
    with np.load(path) as held:
        about = json.loads(held["journal"].tobytes()) | fields
    return np.frombuffer(json.dumps(about).encode(), np.uint8)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(b"PK"), "cannot be read"),
        (lambda path: rewritten(path, journal=None), "keeps no calibration; delete it"),
        (
            lambda path: rewritten(path, journal=np.frombuffer(b"{", np.uint8)),
            DAMAGED,
        ),
        (
            lambda path: rewritten(path, journal=np.zeros((9, 9, 9, 9))),
            DAMAGED,
        ),
        (lambda path: rewritten(path, journal=journal_with(path, version="other/1")), "another version of mezzo"),
        (
            lambda path: rewritten(path, journal=journal_with(path, batches=-1)),
            DAMAGED,
        ),
        (
            lambda path: rewritten(path, journal=journal_with(path, batches=1 << 80)),
            DAMAGED,
        ),
        (
            lambda path: rewritten(path, journal=journal_with(path, last=["x"])),
            DAMAGED,
        ),
        (
            lambda path: rewritten(path, journal=journal_with(path, strange=1)),
            DAMAGED,
        ),
        (lambda path: rewritten(path, journal=journal_with(path, model="x")), "is of another model; delete it"),
        (lambda path: rewritten(path, journal=journal_with(path, values=[])), "is of another model; delete it"),
        (
            lambda path: rewritten(path, journal=journal_with(path, data="x")),
            "is of other data: 'x', wanted .*; delete it",
        ),
        (
            lambda path: rewritten(path, journal=journal_with(path, content=["x"])),
            "a file has changed since; delete it",
        ),
        (lambda path: rewritten(path, bin_places=np.array([1 << 60])), "a damaged one; delete it"),
        (lambda path: rewritten(path, about=None), "a damaged one; delete it"),
        (lambda path: rewritten(path, journal=journal_with(path, last="x", batches=1)), "batch 0 was 'x' and is"),
        (lambda path: rewritten(path, journal=journal_with(path, batches=99)), "has 99 batches and the data"),
    ],
)
def test_a_hostile_file_is_one_line(tmp_path: Path, kept: bytes, spoil: Callable[[Path], object], message: str) -> None:
    path = tmp_path / "kept.npz"
    path.write_bytes(kept)
    spoil(path)
    with pytest.raises(InputError, match=message) as raised:
        collected(tmp_path, path)
    assert "\n" not in str(raised.value)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("kept") / "kept.npz"
    with pytest.raises(KeyboardInterrupt), working_with(Ending(11)):
        collected(path.parent, path)
    return path.read_bytes()


@pytest.mark.parametrize("runs", [0, 3, 7, 12, 20, 33])
def test_a_search_ends_with_the_run_in_which_its_time_does(
    runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that moves with runs alone: behind the limit no item is begun but those of the last check."""
    model, data = model_and_data(tmp_path, 3)
    executor = Ending(10**9)
    late: list[str] = []

    class Clock:
        monotonic = staticmethod(lambda: float(executor.done))

    team = executor.team

    def watching(job: Job[Any, Any], models: Any, here: Any) -> Any:
        before = here

        def noting() -> Any:
            run = before()

            def work(item: Any) -> Any:
                if item is not None and executor.done > max(runs, 0) + 1:
                    late.append(job.title)
                return run(item)

            return work

        return team(job, models, noting)

    monkeypatch.setattr(executor, "team", watching)
    monkeypatch.setattr("mezzo.evaluate.data_session.time", Clock)
    with working_with(executor):
        found = mezzo.tune(model, data=data, max_error=3e-4, time_limit_s=float(runs))
    assert found.measured is not None and found.measured.search is not None
    assert found.measured.search.stopped_by == "the time limit" or executor.done <= runs
    # The first batch is measured and looked at whatever the limit is, so that there is something to check.
    assert set(late) - {"comparison"} <= ({"ranges", "emulation"} if runs == 0 else {"emulation"})
    assert late.count("emulation") <= 1 + (runs == 0)
