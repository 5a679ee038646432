"""The GitHub action, the pre-commit hook and the image: their commands exist, and the action's script runs."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mezzo.cli.app import COMMANDS

_ROOT = Path(__file__).parents[2]
_DEMO = _ROOT / "examples/digits/digits.onnx"


def _load(name: str) -> Any:
    yaml = pytest.importorskip("yaml", reason="PyYAML reads the files")
    return yaml.safe_load((_ROOT / name).read_text(encoding="utf-8"))


def _options() -> set[str]:
    return {word for parameter in COMMANDS["convert"].load().params for word in parameter.opts}


def _run_step(tmp_path: Path, **inputs: str) -> tuple[int, str, str]:
    """Run the action's script on a model; its exit code, summary and outputs."""
    (step,) = (step for step in _load("action.yml")["runs"]["steps"] if step.get("id") == "convert")
    command = tmp_path / "bin/mezzo"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mezzo "$@"\n')
    command.chmod(0o755)
    outputs, summary = tmp_path / "outputs", tmp_path / "summary"
    values = dict.fromkeys(step["env"], "") | inputs
    variables = {
        **os.environ, **values, "PATH": f"{command.parent}:{os.environ['PATH']}", "RUNNER_TEMP": str(tmp_path),
        "PYTHONPATH": str(_ROOT / "src"), "GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(summary),
    }  # fmt: skip
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(shell, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False)
    return done.returncode, summary.read_text(encoding="utf-8"), outputs.read_text(encoding="utf-8")


def test_action_converts_and_writes_a_summary(tmp_path: Path) -> None:
    code, summary, outputs = _run_step(
        tmp_path, MODEL=str(_DEMO), OUT="$(touch hacked).onnx", TO="fp16", ARGS="--no-check --exclude op:Softmax"
    )
    assert code == 0 and summary.startswith("### mezzo convert: 1 passed\n")
    assert outputs == f"exit-code=0\njunit={tmp_path}/mezzo-report/junit.xml\n"
    assert (tmp_path / "$(touch hacked).onnx").is_file() and not (tmp_path / "hacked").exists()
    assert sorted(os.listdir(tmp_path / "mezzo-report")) == ["junit.xml", "model.html", "summary.md"]


def test_action_fails_with_the_exit_code_and_still_writes_a_summary(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").touch()
    code, summary, outputs = _run_step(tmp_path, MODEL="bad.onnx", OUT="out.onnx")
    assert code == 2 and "1 error" in summary and "is empty" in summary and "exit-code=2\n" in outputs


def test_action_uses_no_input_in_a_script() -> None:
    for step in _load("action.yml")["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_hook_is_a_command_with_options_that_exist() -> None:
    (hook,) = _load(".pre-commit-hooks.yaml")
    assert hook["entry"] == "mezzo convert" and hook["pass_filenames"] is False
    assert {"--to", "--resume", "--overwrite", "--quiet"} <= _options()


def test_image_is_slim_and_runs_as_no_root() -> None:
    lines = (_ROOT / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    user = next(number for number, line in enumerate(lines) if line == "USER mezzo")
    assert set(bases) == {"python:3.12-slim"} and user < lines.index('ENTRYPOINT ["mezzo"]')
    copied = {
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    }
    allowed = {line.removeprefix("!") for line in (_ROOT / ".dockerignore").read_text().splitlines()}
    assert copied <= allowed and all((_ROOT / name).exists() for name in copied)
