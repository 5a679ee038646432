"""The commands that a command prints to try next repeat the options that it was given, and run as they are printed."""

import shlex
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import Run

from mezzo.planner.choices.gains import Candidate, choose_by_tables

_MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,2] z)
<float[4,2] w = {1,2,3,4,5,6,7,8}>
{
   [mm] h = MatMul(x, w)
   [sm] t = Softmax<axis=-1>(h)
   [out] z = Neg(t)
}
"""
_OPTIONS = (
    "--to bf16 --policy aggressive --strategy forward --target any --out-of-range clamp --opset keep --include mm "
    "--exclude sm --keep-region out --io x=fp32 --assume x=0..1 --trust-external-paths"
)


def commands(out: str) -> list[str]:
    """The commands that a report tells to try."""
    return [line.strip() for line in out.splitlines() if line.startswith("  mezzo ")]


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with a model, data for it and the model in a folder of its own."""
    monkeypatch.chdir(folder)
    model = onnx.parser.parse_model(_MODEL)
    (folder / "models").mkdir()
    for place in ("three.onnx", "models/three.onnx"):
        onnx.save(model, folder / place)
    np.savez(folder / "three.npz", x=np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4))
    return folder


@pytest.mark.parametrize(
    "verb", [("plan", "three.onnx"), ("convert", "three.onnx", "out.onnx"), ("explain", "three.onnx", "mm")]
)
def test_commands_to_try_next_repeat_what_was_asked(run: Run, here: Path, verb: tuple[str, ...]) -> None:
    ran = run(*verb, *_OPTIONS.split(), *(() if verb[0] == "explain" else ("-v",)))
    assert ran.code == 0
    tried = commands(ran.out)
    assert tried
    for command in tried:
        words, replaced = shlex.split(command), {word.partition("=")[0] for word in shlex.split(command) if "=" in word}
        for option, value in zip(*[iter(_OPTIONS.split()[:-1])] * 2, strict=True):
            is_changed = option in replaced or (
                option in ("--exclude", "--keep-region") and command.startswith("mezzo plan")
            )
            assert is_changed or f"{option} {value}" in command, command
        assert words[-1] == "--trust-external-paths"
        assert run(*words[1:]).code == 0, command


def test_commands_after_a_saved_plan_repeat_what_it_does_not_hold(run: Run, here: Path) -> None:
    tried = commands(run("plan", "three.onnx", *_OPTIONS.split(), "--save", "p.json", "-v").out)
    assert tried[-1] == "mezzo convert three.onnx three.bf16.onnx --plan p.json --trust-external-paths"
    assert run(*shlex.split(tried[-1])[1:]).code == 0


@pytest.mark.parametrize("source", ["three.onnx", "models"])
def test_commands_name_the_format_and_target_that_were_chosen(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    gpu = Candidate("tensorrt", "fp16", is_timed=False)
    monkeypatch.setattr("mezzo.planner.choices.gains.find_candidates", lambda machine: [gpu])
    monkeypatch.setattr("mezzo.tuning.fastest_format.find_candidates", lambda machine: [gpu])
    monkeypatch.setattr("mezzo.planner.options.choose_by_tables", choose_by_tables)
    planned = [command for command in commands(run("convert", source, "out", "-v").out) if " plan " in command]
    assert planned
    for command in planned:
        assert (command.count("--to fp16"), command.count("--target tensorrt"), command.count("--to")) == (1, 1, 1)


def test_commands_after_a_folder_repeat_what_fits_each_of_its_models(run: Run, here: Path) -> None:
    tried = commands(run("convert", "models", "out", *_OPTIONS.split(), "--no-provenance", "-v").out)
    assert tried == [
        "mezzo plan models/three.onnx --to bf16 --policy aggressive --strategy forward --target any --out-of-range "
        "clamp --opset keep --trust-external-paths",
        "mezzo compare models/three.onnx out/three_bf16.onnx --data random --trust-external-paths",
    ]
    assert all(run(*shlex.split(command)[1:]).code == 0 for command in tried)


def test_commands_after_tuning_repeat_what_was_asked(run: Run, here: Path) -> None:
    asked = [word for word in _OPTIONS.split() if word not in ("--strategy", "forward")]
    ran = run(
        "tune", "three.onnx", "t.onnx", "--data", "three.npz", "--max-error", "1", *asked, "--no-provenance", "-v"
    )
    assert ran.code in (0, 3)
    compare, sensitivity = commands(ran.out)
    assert compare == "mezzo compare three.onnx t.onnx --data three.npz --trust-external-paths"
    assert sensitivity.startswith(
        "mezzo sensitivity three.onnx --data three.npz --to bf16 --policy aggressive --target any"
    )
    assert sensitivity.endswith("--trust-external-paths") and "--no-provenance" not in sensitivity
    for command in (compare, sensitivity):
        assert run(*shlex.split(command)[1:]).code in (0, 1, 3), command


def test_tuning_over_two_formats_leads_to_a_sensitivity_that_runs(here: Path, run: Run) -> None:
    random = np.random.default_rng(0)
    np.savez("eight.npz", x=random.standard_normal((8, 4)).astype(np.float32))
    words = "tune three.onnx out.onnx --data eight.npz --max-error 0.5 --target openvino-cpu -v --to"
    told = commands(run(*words.split(), "bf16,int8").out)
    (asked,) = (command for command in told if "sensitivity" in command)
    assert "--to int8 " in asked
    assert run(*shlex.split(asked)[1:]).code == 0


def test_commands_after_a_conversion_to_fp32_run_as_they_are_printed(run: Run, here: Path) -> None:
    assert run(*shlex.split("convert three.onnx low.onnx --to fp16 --io low --quiet")).code == 0
    shown = run(*shlex.split("convert low.onnx back.onnx --to fp32 -v")).out
    (anew,) = (line.removeprefix("next    ") for line in shown.splitlines() if line.startswith("next "))
    tried = [anew, *commands(shown)]
    assert tried == [
        "mezzo convert back.onnx --to fp16 --data random", "mezzo compare back.onnx low.onnx --data random"
    ]  # fmt: skip
    assert [run(*shlex.split(command)[1:]).code for command in tried] == [0, 0]


def test_a_plan_that_keeps_everything_in_fp32_is_not_replayed(run: Run, here: Path) -> None:
    assert run(*shlex.split("convert three.onnx out.onnx --to int4 --save-plan p.json --quiet")).code == 0
    ran = run(*shlex.split("convert three.onnx again.onnx --plan p.json"))
    assert ran.code == 2
    assert ran.err == (
        "mezzo: the plan keeps every node and weight in f32, and a replay would change nothing; leave --plan out\n"
    )
