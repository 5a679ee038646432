"""A conversion on data that was ended at any point goes on as if it had not been; files that keep it may be hostile."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import classifier
from model_texts import CANCELS, OFFSET
from test_repair_beside_quantization import LAYERS_DATA, layers
from test_resuming import Ending

import mezzo
from mezzo.common.errors import InputError
from mezzo.contracts.executor import Job, working_with
from mezzo.evaluate.range_measurement import MeasuredBatch
from mezzo.tuning.emulation import Trial

EMPTY = '{"format": "mezzo-tuning-state/1", "scores": {}, "of": {}}'
DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@dataclass(frozen=True)
class Case:
    """A conversion whose answers are off at first, so that nodes go back, or one that is calibrated."""

    model: Path
    data: Path
    options: dict[str, Any]

    def run(self, result: Path, state: Path | None = None) -> tuple[object, bytes]:
        """What was decided and found, and the file."""
        found = mezzo.convert(self.model, result, data=self.data, resume=state, overwrite=True, **self.options)
        return (found.plan, found.measured), result.read_bytes()


def case_of(name: str, folder: Path) -> Case:
    if name == "int8":
        options = {"to": "int8", "labels": ["label"], "batch_size": 90, "correct": "none"}
        onnx.save(classifier(), folder / "model.onnx")
        return Case(folder / "model.onnx", DIGITS / "heldout.npz", options)
    (folder / "data").mkdir()
    if name == "int8,fp16":
        onnx.save(layers(), folder / "model.onnx")
        for number, batch in enumerate(LAYERS_DATA):
            np.savez(folder / "data" / f"{number}.npz", **batch)
        return Case(folder / "model.onnx", folder / "data", {"to": name, "target": "tensorrt", "correct": "smooth"})
    onnx.save(onnx.parser.parse_model({"lifted": CANCELS, "repaired": OFFSET}[name]), folder / "model.onnx")
    rng = np.random.default_rng(3)
    for number in range(4):
        x, w = rng.standard_normal((4, 8)).astype(np.float32), rng.standard_normal((8, 8)).astype(np.float32)
        np.savez(folder / "data" / f"{number}.npz", x=x if name == "lifted" else np.float32(3) + x / 100, w=w)
    return Case(folder / "model.onnx", folder / "data", {})


@pytest.mark.parametrize("name", ["lifted", "repaired", "int8", "int8,fp16"])
def test_a_conversion_ended_at_any_run_goes_on_as_if_it_had_not_been(name: str, tmp_path: Path) -> None:
    case, counting = case_of(name, tmp_path), Ending(10**9)
    with working_with(counting):
        alone = case.run(tmp_path / "alone.onnx")
    assert bool(alone[0][0].scaled) == ("," in name)  # type: ignore[index]  # the plan
    rng = random.Random(7)
    runs = counting.done
    assert runs > 10, "there is something to end"
    for end in sorted(rng.sample(range(runs), min(runs, 5))):
        state = tmp_path / f"state{end}.json"
        with pytest.raises(KeyboardInterrupt), working_with(Ending(end)):
            case.run(tmp_path / "ended.onnx", state)
        assert not (tmp_path / "ended.onnx").exists()
        again = Ending(10**9)
        with working_with(again):
            assert case.run(tmp_path / "again.onnx", state) == alone, f"ended at run {end} of {runs}"
        assert again.done <= runs, f"ended at run {end} of {runs}, and then ran {again.done}"


class Counting(Ending):
    """Works in this process, and counts what is measured and run low."""

    def __init__(self) -> None:
        super().__init__(10**9)
        self.measured = self.run_low = 0

    def team(self, job: Job[Any, Any], models: Any, here: Callable[[], Callable[[Any], Any]]) -> Any:
        def counting() -> Callable[[Any], Any]:
            run = here()

            def count(item: Any) -> Any:
                self.run_low += isinstance(item, Trial) and bool(item.precision_of)
                self.measured += isinstance(item, MeasuredBatch)
                return run(item)

            return count

        return super().team(job, models, counting)


def test_what_was_run_is_not_run_again(tmp_path: Path) -> None:
    case, state = case_of("repaired", tmp_path), tmp_path / "state.json"
    first, second = Counting(), Counting()
    with working_with(first):
        case.run(tmp_path / "first.onnx", state)
    assert {path.name for path in tmp_path.glob("state*")} == {"state.json", "state.json.ranges.npz"}
    before = state.read_bytes()
    with working_with(second):
        case.run(tmp_path / "second.onnx", state)
    assert first.measured == 3 and first.run_low > 4
    assert (second.measured, second.run_low) == (0, 0)
    assert state.read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize("appears", ["state.json", "state.json.ranges.npz", "state.json.calibration.npz"])
def test_a_killed_conversion_leaves_no_result_and_goes_on(appears: str, tmp_path: Path) -> None:
    name = "int8" if "calibration" in appears else "lifted"
    case, state = case_of(name, tmp_path), tmp_path / "state.json"
    alone = case.run(tmp_path / "alone.onnx")
    words = ["convert", case.model, tmp_path / "out.onnx", "--data", case.data, "--resume", state]
    words += ["--to", "int8" if name == "int8" else "fp16"]
    words += ["--labels", "label", "--batch", "90", "--correct", "none"] if name == "int8" else []
    child = subprocess.Popen(
        [sys.executable, "-m", "mezzo", *map(os.fspath, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 120
    while not (tmp_path / appears).exists() and child.poll() is None:
        assert time.monotonic() < end, "the file never appears"
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    if child.returncode == -signal.SIGKILL:
        assert not (tmp_path / "out.onnx").exists()
    assert case.run(tmp_path / "again.onnx", state) == alone


@pytest.mark.parametrize(
    ("beside", "spoil", "message"),
    [
        ("", lambda path: path.write_bytes(b"{"), "the state is damaged, its text cannot be read"),
        ("", lambda path: path.write_text(EMPTY), "the state is of a search with another model"),
        (".ranges.npz", lambda path: path.write_bytes(b"PK"), "cannot be read"),
        (".ranges.npz", lambda path: np.savez(path, about=np.zeros(3, np.uint8)), "the state is damaged, its text"),
        (".calibration.npz", lambda path: np.savez(path, strange=np.zeros(3)), "keeps no calibration"),
        ("", lambda path: path.mkdir(), "it is a folder; name a file"),
    ],
)
def test_a_hostile_file_is_one_line_and_nothing_is_written(
    beside: str, spoil: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    case = case_of("int8", tmp_path)
    spoil(tmp_path / f"state.json{beside}")
    with pytest.raises(InputError, match=message) as raised:
        case.run(tmp_path / "out.onnx", tmp_path / "state.json")
    assert "\n" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir() if "state" not in path.name] == ["model.onnx"]


def test_a_state_of_other_options_is_refused(tmp_path: Path) -> None:
    case, state = case_of("repaired", tmp_path), tmp_path / "state.json"
    case.run(tmp_path / "out.onnx", state)
    other = Case(case.model, case.data, {"to": "bf16"})
    with pytest.raises(InputError, match=r"state\.json: the state is of a search with another to; delete it"):
        other.run(tmp_path / "out.onnx", state)


def test_without_data_there_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^resume is about data, and none is given; give data too, or leave it out$"):
        mezzo.convert(DIGITS / "digits.onnx", resume=tmp_path / "state.json")
