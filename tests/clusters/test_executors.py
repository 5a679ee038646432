"""Whoever works, and however the work was split: the same bytes."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from random_models import random_feeds, random_model
from scattered import Scattered
from sweeps import swept

from mezzo.api.compare import compare
from mezzo.api.convert import convert
from mezzo.api.ranges import ranges
from mezzo.api.sensitivity import sensitivity
from mezzo.api.tune import tune
from mezzo.clusters.model_transfer import open_by_path, source_of
from mezzo.contracts.executor import HERE, crew_at_work, in_turn, working_with
from mezzo.contracts.frontend import Model
from mezzo.conversion.results import open_source
from mezzo.evaluate.data_session import ResumeFiles, open_session
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind
from mezzo.quantize.collection import collect


def batches(model: Any, seed: int, count: int = 7, *, has_nan: bool = True) -> list[dict[str, Any]]:
    """Feeds of a random model, some with numbers that are not finite."""
    rng = random.Random(seed)
    drawn = [random_feeds(model, rng) for _ in range(count)]
    for number, feeds in enumerate(drawn):
        for feed in feeds.values():
            if has_nan and number % 3 == 1 and feed.dtype == np.float32 and feed.ndim:
                feed.reshape(-1)[0] = (np.nan, np.inf, -np.inf)[rng.randrange(3)]
    return drawn


def test_nobody_works_but_this_process_unless_asked() -> None:
    assert crew_at_work() is HERE
    with working_with(Scattered(0, 1)) as _:
        assert crew_at_work() is not HERE
    assert crew_at_work() is HERE


@pytest.mark.parametrize("seed", range(swept(12)))
def test_ranges_have_the_same_bytes_however_they_were_split(seed: int, tmp_path: Path) -> None:
    model = random_model(random.Random(seed), 14, is_tame=True)
    data = batches(model, seed)
    alone = ranges(model, data, resume=tmp_path / "alone.npz")
    for benches in (1, 2, 4):
        executor = Scattered(seed, benches)
        with working_with(executor):
            split = ranges(model, data, resume=tmp_path / f"{benches}.npz")
        assert executor.done == len(data) + 1, f"seed {seed}: the crew did not do the work"
        assert split == alone, f"seed {seed}, {benches} benches"
        assert _arrays(tmp_path / f"{benches}.npz") == _arrays(tmp_path / "alone.npz"), f"seed {seed}, {benches}"


@pytest.mark.parametrize("seed", range(6))
def test_calibration_has_the_same_bytes_however_it_was_split(seed: int, tmp_path: Path) -> None:
    model = random_model(random.Random(seed), 14, is_tame=True)
    data = batches(model, seed)
    opened = open_source(model, False, None)
    reading = opened.read(DType.FLOAT16)
    graph = reading.graph
    made = [value for node in graph.nodes if node.kind is Kind.OP for value in node.outputs if value is not None]
    names = [graph.values[value].name for value in made if graph.values[value].dtype is DType.FLOAT32]

    def collected(name: str) -> dict[str, bytes]:
        session = open_session(opened, data, files=ResumeFiles(calibration=tmp_path / f"{name}.npz"))
        collector = collect(opened, reading, session, names, []).collector
        return {key: array.tobytes() for key, array in collector.state().items()}

    alone = collected("alone")
    for benches in (1, 4):
        executor = Scattered(seed, benches)
        with working_with(executor):
            assert collected(f"{benches}") == alone, f"seed {seed}, {benches} benches"
        assert executor.done == len(data), f"seed {seed}: the crew did not do the work"
        assert _arrays(tmp_path / f"{benches}.npz") == _arrays(tmp_path / "alone.npz"), f"seed {seed}"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("layers", [False, True])
def test_a_comparison_is_the_same_however_it_was_split(seed: int, layers: bool) -> None:
    model = random_model(random.Random(seed), 14, is_tame=True)
    data = batches(model, seed, has_nan=False)
    low = convert(model, policy="aggressive").model
    alone = compare(model, low, data, layers=layers)
    for benches in (1, 4):
        executor = Scattered(seed, benches)
        with working_with(executor):
            assert compare(model, low, data, layers=layers) == alone, f"seed {seed}, {benches} benches"
        assert executor.done > 0, f"seed {seed}: the crew did not do the work"


@pytest.mark.parametrize("seed", range(8))
def test_sensitivity_is_the_same_whatever_was_foreseen(seed: int) -> None:
    model = random_model(random.Random(seed), 24, is_tame=True)
    data = batches(model, seed, 1, has_nan=False)
    alone = sensitivity(model, data, max_runs=20)
    for benches in (1, 3):
        executor = Scattered(seed, benches)
        with working_with(executor):
            split = sensitivity(model, data, max_runs=20)
        assert split == alone, f"seed {seed}, {benches} benches"
        assert executor.done >= alone.runs, f"seed {seed}: the crew did not do the work"


@pytest.mark.parametrize("seed", range(4))
def test_tuning_is_the_same_however_it_was_split(seed: int, tmp_path: Path) -> None:
    model = random_model(random.Random(seed), 16, is_tame=True)
    data = batches(model, seed, 5, has_nan=False)

    def tuned(name: str) -> tuple[Any, Any, bytes, bytes]:
        found = tune(model, tmp_path / f"{name}.onnx", data=data, max_error=3e-4, resume=tmp_path / f"{name}.json")
        assert found.measured is not None and found.measured.search is not None
        search = replace(found.measured.search, time_s=0.0)
        files = (tmp_path / f"{name}.onnx").read_bytes(), (tmp_path / f"{name}.json").read_bytes()
        return replace(found.measured, search=search), found.plan, *files

    alone = tuned("alone")
    for benches in (1, 3):
        with working_with(Scattered(seed, benches)):
            assert tuned(f"{benches}") == alone, f"seed {seed}, {benches} benches"


def _arrays(path: Path) -> dict[str, bytes]:
    with np.load(path) as held:
        return {name: held[name].tobytes() for name in held.files}


def test_a_model_that_differs_in_its_middle_alone_is_not_taken_for_the_drivers(tmp_path: Path) -> None:
    middle = np.zeros((1 << 20,), np.float32)  # 4 MB, the changed number far from both ends of the file
    path = tmp_path / "model.onnx"

    def write() -> None:
        tensor = onnx.numpy_helper.from_array(middle, "w")
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Add", ["x", "w"], ["y"])],
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, [1 << 20])],
            [onnx.helper.make_tensor_value_info("y", 1, [1 << 20])],
            [tensor],
        )
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)

    write()
    source = source_of(open_source(path, False, None))
    assert source is not None and open_by_path(source) is not None
    middle[1 << 19] = 1.0
    write()
    assert open_by_path(source) is None


class _Foreseeing:
    """Doubles numbers, and notes of which it was told beforehand."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.told: list[list[int]] = []

    def prepare(self, many: Sequence[int]) -> None:
        self.told.append([*many])

    def __call__(self, item: int) -> int:
        return 2 * item


@dataclass(frozen=True)
class _ForeseeingJob:
    worker: _Foreseeing
    title: str = "doubling"

    def open(self, models: Sequence[Model]) -> Callable[[int], int]:
        return self.worker


@pytest.mark.parametrize("seed", range(3))
def test_a_search_of_storages_is_the_same_however_it_was_split(seed: int, tmp_path: Path) -> None:
    """Runs of single weights, in whatever order a bench gets them."""
    rng = np.random.default_rng(seed)
    nodes = [f"p{at} = MatMul (h{at}, w{at}) h{at + 1} = Tanh (p{at})" for at in range(18)]
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n,64] h0) => (float[n,64] h18) { ' + " ".join(nodes) + " }"
    )
    for at in range(18):
        array = (rng.standard_normal((64, 64)) / 8).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, f"w{at}"))
    data = [{"h0": rng.standard_normal((32, 64)).astype(np.float32)} for _ in range(4)]

    def tuned(name: str) -> tuple[Any, Any, bytes]:
        path = tmp_path / f"{name}.onnx"
        found = tune(model, path, data=data, to="int4,int8w", target="onnx", max_error=0.1, check=False)
        assert found.measured is not None and found.measured.search is not None
        return found.plan.in_blocks, replace(found.measured.search, time_s=0.0), path.read_bytes()

    alone = tuned("alone")
    for benches in (1, 3):
        executor = Scattered(seed, benches)
        with working_with(executor):
            assert tuned(f"{benches}") == alone, f"seed {seed}, {benches} benches"
        assert executor.done >= 18, f"seed {seed}: the crew did not do the work"


@pytest.mark.parametrize(
    ("width", "told"), [(1, []), (3, [[0, 1, 2], [3, 4, 5], [6, 7]]), (9, [[0, 1, 2, 3, 4, 5, 6, 7]])]
)
def test_who_wants_to_know_what_comes_is_told_of_items_together(width: int, told: list[list[int]]) -> None:
    worker = _Foreseeing(width)
    job = _ForeseeingJob(worker)
    team = HERE.team(job, lambda: [], lambda: job.open([]))
    assert list(in_turn(team, range(8))) == [(item, 2 * item) for item in range(8)]
    assert worker.told == told


def test_nobody_is_told_of_what_was_dropped() -> None:
    worker = _Foreseeing(3)
    job = _ForeseeingJob(worker)
    team = HERE.team(job, lambda: [], lambda: job.open([]))
    first, second, third = team.start(1), team.start(2), team.start(3)
    second.drop()
    assert (first.result(), third.result(), worker.told) == (2, 6, [[1, 3]])
