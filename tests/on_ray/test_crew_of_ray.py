"""Real workers, in processes of their own: the same bytes, nothing lost and nothing counted twice, whoever dies."""

import os
import random
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from deadly import Doubling, Killer
from random_models import random_feeds, random_model

import mezzo
from mezzo.clusters.executor import RayExecutor
from mezzo.clusters.scratch_dirs import remove_scratch_dirs
from mezzo.clusters.tasks import MOST_DEATHS
from mezzo.common.errors import InputError, MezzoError
from mezzo.common.machine import find_temporary_folder
from mezzo.common.message_style import MessageStyle, using_message_style
from mezzo.contracts.executor import HERE, crew_at_work, in_turn, working_with

pytest.importorskip("ray", reason="needs mezzo[ray]")


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def executor(told: list[str]) -> Iterator[RayExecutor]:
    before = os.environ.get("PYTHONPATH", "")
    # Workers find the jobs of these tests where the tests do.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), before]))
    with mezzo.cluster("local", workers=2, tell=told.append) as opened:
        yield opened
    os.environ["PYTHONPATH"] = before


@pytest.fixture(autouse=True)
def _nothing_told(told: list[str]) -> None:
    told.clear()


def model_and_data(folder: Path, seed: int, batches: int) -> tuple[Path, Path]:
    """A random model and a folder of batches that fit it."""
    rng = random.Random(seed)
    model = random_model(rng, 16, is_tame=True)
    onnx.save(model, folder / "model.onnx")
    (folder / "data").mkdir()
    for number in range(batches):
        np.savez(folder / "data" / f"{number:03}.npz", **random_feeds(model, rng))
    return folder / "model.onnx", folder / "data"


def arrays_of(path: Path) -> dict[str, bytes]:
    with np.load(path) as held:
        return {name: held[name].tobytes() for name in held.files}


def doubled(executor: RayExecutor, job: Doubling, numbers: Any) -> list[tuple[int, tuple[int, int]]]:
    return list(in_turn(executor.team(job, lambda: [], lambda: job.open([])), numbers))


def test_a_cluster_works_while_it_is_open(executor: RayExecutor) -> None:
    assert crew_at_work() is executor
    found = doubled(executor, Doubling(takes_s=0.4), range(20))
    assert [(item, twice) for item, (twice, _) in found] == [(n, 2 * n) for n in range(20)]
    assert len({pid for _, (_, pid) in found}) == 2


def test_a_worker_killed_in_the_middle_is_replaced_and_its_task_begun_again(
    executor: RayExecutor, told: list[str], tmp_path: Path
) -> None:
    before = replace(executor.counts)
    job = Doubling(deadly=7, dies_once_by=str(tmp_path / "died"))
    assert [twice for _, (twice, _) in doubled(executor, job, range(20))] == [2 * n for n in range(20)]
    assert executor.counts.lost == before.lost + 1 and executor.counts.again == before.again + 1
    assert executor.counts.done == before.done + 20
    assert [line for line in told if re.fullmatch(r"a worker was lost; another .* task \d+ of doubling is .*", line)]


def test_a_task_that_no_worker_survives_ends_in_one_line(executor: RayExecutor, told: list[str]) -> None:
    before = executor.counts.lost
    with pytest.raises(
        MezzoError, match=rf"^task \d+ of doubling: {MOST_DEATHS} workers died of it .* why.*$"
    ) as raised:
        doubled(executor, Doubling(deadly=3), range(6))
    assert "\n" not in str(raised.value)
    assert executor.counts.lost == before + MOST_DEATHS
    # The crew is whole again.
    assert [twice for _, (twice, _) in doubled(executor, Doubling(), range(4))] == [0, 2, 4, 6]


def test_an_error_of_a_user_comes_back_as_it_is_and_in_its_turn(executor: RayExecutor) -> None:
    turns = in_turn(executor.team(Doubling(faulty=5), lambda: [], lambda: int), range(9))
    assert [next(turns)[0] for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(InputError, match=r"^5 is no number that can be doubled; give another$"):
        next(turns)


def test_a_slow_task_is_begun_twice_and_counted_once(
    executor: RayExecutor, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mezzo.clusters import tasks

    while len({pid for _, (_, pid) in doubled(executor, Doubling(takes_s=0.2), range(4))}) < 2:
        pass  # one that was lost before is not replaced yet
    before = replace(executor.counts)
    with monkeypatch.context() as patched:
        patched.setattr(tasks, "_SLOW_S", 0.2)
        patched.setattr(tasks, "_SLOW_TIMES", 0.0)
        assert [twice for _, (twice, _) in doubled(executor, Doubling(takes_s=3.0), range(1))] == [0]
    assert [line for line in told if "takes long; it is begun on a second worker" in line]
    assert doubled(executor, Doubling(takes_s=1.5), range(4)) and executor.counts.done == before.done + 5
    assert executor.counts.twice == before.twice + 1


@pytest.mark.parametrize("seed", range(3))
def test_all_verbs_give_the_same_bytes_as_one_process(executor: RayExecutor, seed: int, tmp_path: Path) -> None:
    model, data = model_and_data(tmp_path, seed, 6)

    def all_of(name: str) -> list[Any]:
        folder = tmp_path / name
        folder.mkdir()
        tuned = mezzo.tune(model, folder / "tuned.onnx", data=data, max_error=3e-4, resume=folder / "tuned.json")
        assert tuned.measured is not None and tuned.measured.search is not None
        search = replace(tuned.measured.search, time_s=0.0)
        return [
            mezzo.ranges(model, data, resume=folder / "ranges.npz"),
            arrays_of(folder / "ranges.npz"),
            mezzo.sensitivity(model, data),
            mezzo.compare(model, folder / "tuned.onnx", data),
            replace(tuned.measured, search=search),
            (folder / "tuned.onnx").read_bytes(),
            (folder / "tuned.json").read_bytes(),
        ]

    before = executor.counts.done
    split = all_of("split")
    assert executor.counts.done > before, "the crew did nothing"
    with working_with(HERE):
        alone = all_of("alone")
    assert split == alone, f"seed {seed}"


@pytest.mark.parametrize("seed", range(2))
def test_workers_killed_at_random_change_nothing(executor: RayExecutor, seed: int, tmp_path: Path) -> None:
    model, data = model_and_data(tmp_path, seed, 60)
    with working_with(HERE):
        alone = mezzo.ranges(model, data), mezzo.tune(model, data=data, max_error=3e-4).plan
    before = replace(executor.counts)
    with Killer(executor, seed, kills=4, pause_s=0.4) as killer:
        found: list[Any] = []
        while killer.killed < 4:
            found.append((mezzo.ranges(model, data), mezzo.tune(model, data=data, max_error=3e-4).plan))
    assert found and all(one == alone for one in found), f"seed {seed}"
    assert killer.killed == 4
    assert doubled(executor, Doubling(), range(8))  # each meets whoever died idle
    assert executor.counts.lost >= before.lost + 3, f"seed {seed}: {executor.counts}"


def test_a_model_in_memory_travels_once(executor: RayExecutor, tmp_path: Path) -> None:
    model, data = model_and_data(tmp_path, 5, 12)
    held = onnx.load(model)
    before = executor.counts.files_bytes
    split = mezzo.ranges(held, data)
    assert 0 < executor.counts.files_bytes - before < 2 * model.stat().st_size + 4096
    with working_with(HERE):
        assert split == mezzo.ranges(held, data)


def held_folders() -> set[Path]:
    return set(Path(find_temporary_folder()).glob("mezzo-worker-*"))


def test_a_killed_worker_leaves_no_copy_of_a_model(executor: RayExecutor, tmp_path: Path) -> None:
    """A model in memory is written by each worker; whoever replaces one that is killed tidies up behind it."""
    model, data = model_and_data(tmp_path, 8, 12)
    remove_scratch_dirs()
    mezzo.ranges(onnx.load(model), data)
    made, dead = held_folders(), set(executor.pids())
    assert any(any(folder.glob("*/model.onnx")) for folder in made), "workers wrote the model"
    for pid in dead:
        os.kill(pid, signal.SIGKILL)
    assert doubled(executor, Doubling(takes_s=0.3), range(12))
    assert not set(executor.pids()) & dead
    assert not held_folders() & made


@pytest.mark.slow
def test_int8_is_the_same_calibrated_by_a_cluster(executor: RayExecutor, tmp_path: Path) -> None:
    digits = Path(__file__).parents[2] / "examples" / "digits"
    asked = {"to": "int8", "data": digits / "heldout.npz", "labels": ["label"], "batch_size": 64}
    split = mezzo.convert(digits / "digits.onnx", tmp_path / "split.onnx", **asked)
    with working_with(HERE):
        alone = mezzo.convert(digits / "digits.onnx", tmp_path / "alone.onnx", **asked)
    assert split.plan == alone.plan
    assert (tmp_path / "split.onnx").read_bytes() == (tmp_path / "alone.onnx").read_bytes()


def test_a_path_that_workers_do_not_see_is_no_fault(
    executor: RayExecutor, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mezzo.clusters import jobs as module

    model, data = model_and_data(tmp_path, 6, 4)

    def elsewhere(opened: Any) -> Any:
        source = sourced(opened)
        return source and replace(source, path=str(tmp_path / "elsewhere.onnx"))

    sourced = module.source_of
    monkeypatch.setattr(module, "source_of", elsewhere)
    split = mezzo.ranges(model, data)
    assert [line for line in told if "is not there for all workers under its path: it is sent as files" in line]
    with working_with(HERE):
        assert split == mezzo.ranges(model, data)


def test_a_cluster_that_nobody_runs_is_one_line() -> None:
    line = "^--cluster is 'nearby'; choose one of local, auto, ray://HOST:PORT$"
    with using_message_style(MessageStyle.SHELL), pytest.raises(InputError, match=line), mezzo.cluster("nearby"):
        pass
