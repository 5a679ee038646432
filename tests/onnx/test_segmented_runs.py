"""Models that run in segments under a bound on memory: what they hold, through sessions and verbs."""

import dataclasses
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from segment_models import (
    check_same,
    deep,
    in_one_piece,
    network,
    rows,
)
from switch_models import read

import mezzo
from mezzo.common.machine import find_private_bytes, give_back_memory
from mezzo.common.memory import MemoryLimit, NoRoom
from mezzo.common.memory import memory as memory_of
from mezzo.onnx.files import files, runnable_model
from mezzo.onnx.files.weights import let_go
from mezzo.onnx.run import segmented
from mezzo.onnx.run.runtime import JUDGING, NATIVE, SessionSettings
from mezzo.onnx.run.segmented import Segmented, cut_model
from mezzo.onnx.run.session import Engine, Session


def cut_into(bound_bytes: int, *, is_asked: bool = False) -> tuple[Segmented, MemoryLimit]:
    memory = MemoryLimit(bound_bytes=bound_bytes, is_asked=is_asked)
    result = cut_model(deep(), {}, JUDGING, memory)
    assert result is not None, "it can be cut"
    return result, memory


def test_values_that_nobody_wants_any_more_leave_the_disk() -> None:
    result, _ = cut_into(40_000)
    (run,) = result.compute([rows(64)])
    assert [*run.waiting] == ["y"]


def test_all_batches_go_through_a_segment_before_the_next_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    result, memory = cut_into(80_000)
    feeds = [rows(8, seed) for seed in range(3)]
    result.compute(feeds[:1])
    assert result.width == 3, "64 KB over 8 are more than three times what is fed"
    assert memory.segments == 4
    loaded, load = list[str](), segmented.load_piece

    def noted(model: onnx.ModelProto, how: SessionSettings) -> Any:
        loaded.append(model.graph.node[0].name)
        return load(model, how)

    monkeypatch.setattr(segmented, "load_piece", noted)
    runs = result.compute(feeds)
    assert len(loaded) == memory.segments, "each once, whatever the batches are"
    expected = in_one_piece(deep(), feeds, JUDGING)
    assert expected is not None
    check_same(expected, [result.answers(run) for run in runs], "seeds 0 to 2")


def test_longer_batches_are_measured_anew() -> None:
    result, memory = cut_into(200_000)
    result.compute([rows(4)])
    few = memory.segments
    result.compute([rows(4, 1), rows(200)])
    assert few == 2 < memory.segments


def test_a_node_that_does_not_fit_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = cut_into(50_000_000, is_asked=True)
    monkeypatch.setattr(MemoryLimit, "room_bytes", lambda self: 100_000)
    with pytest.raises(NoRoom) as told:
        result.compute([rows(4096)])
    assert str(told.value) == (
        "memory is 50.0 MB, and node 'mm0' (MatMul), which takes 1.06 MB, does not fit; give more, or run fewer "
        "samples at a time with batch_size"
    )


def test_where_kernels_take_more_than_was_thought_it_is_cut_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    result, memory = cut_into(1_000_000)
    result.compute([rows(4)])
    assert memory.segments == 0, "it fits"
    load = segmented.load_piece

    def picky(model: onnx.ModelProto, how: SessionSettings) -> Any:
        if len(model.graph.node) > 5:
            raise RuntimeError("Failed to allocate memory for requested buffer")
        return load(model, how)

    monkeypatch.setattr(segmented, "load_piece", picky)
    runs = result.compute([rows(4), rows(4, 1)])
    expected = in_one_piece(deep(), [rows(4), rows(4, 1)], JUDGING)
    assert expected is not None and memory.segments == 3
    check_same(expected, [result.answers(run) for run in runs], "seeds 0 and 1")


def test_a_session_answers_what_was_prepared_and_what_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepared runs are those of the same numbers, not of the same arrays."""
    model, feeds = deep(), [rows(4, seed) for seed in range(4)]
    expected = in_one_piece(model, feeds, NATIVE)
    assert expected is not None
    monkeypatch.setattr(MemoryLimit, "room_bytes", lambda self: 60_000)
    with memory_of("4GB"):
        session = Session(model, model.graph.input, Engine.ONNXRUNTIME, NATIVE)
        assert session.width == 1, "not known before the first run"
        found = [session.run(feeds[0])]
        assert session.width > 1
        session.prepare([*feeds[1:3], {"x": np.ones((4, 3), np.float32)}])
        session.prepare(feeds[1:3])
        found += [session.run({"x": feed["x"].copy()}) for feed in feeds[1:]]
    check_same(expected, found, "seeds 0 to 3")


def test_what_cannot_be_cut_runs_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    model = read("g (float[N] x) => (seq(float[N]) s) { a = Relu(x)  s = SequenceConstruct(x, a) }")
    monkeypatch.setattr(MemoryLimit, "room_bytes", lambda self: 1)
    with memory_of("4GB") as held:
        session = Session(model, model.graph.input, Engine.ONNXRUNTIME, NATIVE)
        (answer,) = session.run({"x": np.array([-1, 2], np.float32)}).values()
    assert [part.tolist() for part in answer] == [[-1, 2], [0, 2]]
    assert held.segments == 0


def test_pieces_that_do_not_load_leave_the_model_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: onnx.ModelProto, how: SessionSettings) -> Any:
        raise RuntimeError("This is an invalid model")

    monkeypatch.setattr(segmented, "load_piece", broken)
    monkeypatch.setattr(MemoryLimit, "room_bytes", lambda self: 60_000)
    expected = in_one_piece(deep(), [rows(4)], NATIVE)
    assert expected is not None
    with memory_of("4GB"):
        session = Session(deep(), deep().graph.input, Engine.ONNXRUNTIME, NATIVE)
        check_same(expected, [session.run(rows(4))], "seed 0")


def test_a_model_that_passes_the_bound_as_it_runs_is_cut_then() -> None:
    """The system refuses what would pass the bound: 400 MB of values that are all alive at once."""
    parts = " ".join(f"v{at} = Sin(x{at})" for at in range(8))
    shares = " ".join(f"x{at} = Add(x, c{at})" for at in range(8))
    text = f"""g (float[N] x) => (float[N] y)
        <{", ".join(f"float[1] c{at} = {{{at}}}" for at in range(8))}>
        {{ {shares} {parts} y = Sum({", ".join(f"v{at}" for at in range(8))}) }}"""
    model, feeds = read(text), {"x": np.ones(6_000_000, np.float32)}
    expected = in_one_piece(model, [feeds], JUDGING)
    assert expected is not None
    give_back_memory()
    private = find_private_bytes()
    assert private is not None, "this system tells what a process holds"
    with memory_of(private + 360_000_000) as held:
        session = Session(model, model.graph.input, Engine.ONNXRUNTIME, JUDGING)
        found = [session.run(feeds)]
    check_same(expected, found, "no seed")
    assert held.segments == 0 or held.most_bytes <= 360_000_000
    del found
    give_back_memory()
    with (
        memory_of((find_private_bytes() or 0) + 60_000_000),
        pytest.raises(NoRoom, match=r"does not fit; give more, or run fewer samples"),
    ):
        Session(model, model.graph.input, Engine.ONNXRUNTIME, JUDGING).run(feeds)


def every_field(answer: object) -> object:
    """What an answer holds, to the last digit: what it says of itself leaves some out."""
    if dataclasses.is_dataclass(answer):
        return [(field.name, every_field(getattr(answer, field.name))) for field in dataclasses.fields(answer)]
    if isinstance(answer, Mapping):
        return [(key, every_field(held)) for key, held in answer.items()]
    return [every_field(held) for held in answer] if isinstance(answer, list | tuple) else repr(answer)


@pytest.mark.parametrize("is_mapped", [True, False])
def test_verbs_say_the_same(is_mapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights in files and in memory;"""
    if is_mapped:
        monkeypatch.setattr(files, "_SMALL_BYTES", 0)
        monkeypatch.setattr(runnable_model, "_LEAST_BYTES", 0)
        monkeypatch.setattr(runnable_model, "MAPPED_FROM", 0)
    path, low = tmp_path / "model.onnx", tmp_path / "low.onnx"
    onnx.save(network(3), path, save_as_external_data=True, location="w", size_threshold=1000)
    mezzo.convert(path, low)
    rng = np.random.default_rng(5)
    data = [{"x": rng.standard_normal((4, 3, 16, 16)).astype(np.float32)} for _ in range(5)]

    def ask() -> list[object]:
        return [
            mezzo.ranges(path, data),
            mezzo.compare(path, low, data),
            mezzo.compare(path, low, data, run="native"),
            mezzo.sensitivity(path, data, max_runs=5),
            mezzo.convert(path, to="int8", data=data).plan.quantized,
            mezzo.tune(path, data=data, max_error=1e-3).plan.nodes,
            mezzo.convert(path, data=data, policy="aggressive").plan.nodes,
        ]

    expected = ask()
    monkeypatch.setattr(MemoryLimit, "room_bytes", lambda self: 1_700_000)
    with mezzo.memory("16GB") as held:
        found = ask()
    assert held.segments >= 3
    for wanted, answer in zip(expected, found, strict=True):
        assert every_field(wanted) == every_field(answer)


def test_pages_of_weights_are_given_back_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "w.bin"
    np.arange(16 << 20, dtype=np.float32).tofile(path)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    array = np.frombuffer(mapped, np.float32, 15 << 20, 4096).reshape(-1, 1024)
    total = float(array.sum(dtype=np.float64))

    def resident_bytes() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssFile:"))

    before = resident_bytes()
    let_go(array)
    assert before - resident_bytes() >= 50 << 20
    assert float(array.sum(dtype=np.float64)) == total
    private = np.ones(3, np.float32)
    let_go(private)
    assert private.tolist() == [1, 1, 1], "what lies in no map stays"


@pytest.mark.parametrize("free_bytes", [900_000, 0])
def test_without_a_bound_large_models_are_cut_by_what_is_free_and_never_refused(
    free_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, data = tmp_path / "model.onnx", [{"x": np.ones((4, 3, 16, 16), np.float32)}]
    onnx.save(network(3), path, save_as_external_data=True, location="w", size_threshold=1000)
    for name, most in (("_LEAST_BYTES", 0), ("MAPPED_FROM", 0)):
        monkeypatch.setattr(runnable_model, name, most)
    monkeypatch.setattr(files, "_SMALL_BYTES", 0)
    expected = mezzo.ranges(path, data)
    assert not caplog.records, "it fits in what is free"
    monkeypatch.setattr("mezzo.common.memory.find_memory", lambda: (1 << 40, free_bytes))
    with caplog.at_level("INFO", logger="mezzo.common.memory"):
        found = mezzo.ranges(path, data)
    assert every_field(found) == every_field(expected)
    assert "runs in segments to fit in memory: " in caplog.text
