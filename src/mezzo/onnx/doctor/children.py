"""Runs checks in child processes, several at a time. A crash or a timeout counts as a result."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

_PATIENCE_S = 120.0  # torch on a slow disk takes a while
_AT_A_TIME = 4
_LONGEST_REASON = 300
_COMMAND = ("-P", "-m", "mezzo.onnx.doctor.look")
Question = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of one check. `error` is None if it succeeded."""

    details: tuple[str, ...] = ()
    error: str | None = None


def ask(
    questions: Sequence[Question],
    progress: Callable[[str, int, int], None],
    patience_s: float = _PATIENCE_S,
) -> dict[Question, Answer]:
    """Run each check in its own process. Results are in the order of `questions`."""
    answers: dict[Question, Answer] = {}
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        pending = {pool.submit(_ask_one, question, patience_s): question for question in questions}
        try:
            for future in as_completed(pending):
                answers[pending[future]] = future.result()
                progress("looking", len(answers), len(questions))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # start no more checks when interrupted
            raise
    return {question: answers[question] for question in questions}


def _ask_one(question: Question, patience_s: float) -> Answer:
    # The child imports from the same paths, in the same order.
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    try:
        process = subprocess.run(
            [sys.executable, *_COMMAND, *question],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(error=f"no answer within {patience_s:.0f} s")
    try:
        answer = json.loads(process.stdout)
    except ValueError:
        lines = process.stderr.decode("utf-8", "replace").strip().splitlines()
        return Answer(error=_shorten(": ".join([_spell_exit(process.returncode), *lines[-1:]])))
    if "error" in answer:
        return Answer(error=_shorten(str(answer["error"])))
    return Answer(tuple(map(str, answer.get("details", ()))))


def _spell_exit(code: int) -> str:
    """Describe how a process without a result ended; a negative code is a signal."""
    try:
        return (
            f"crashed with {signal.Signals(-code).name}"
            if code < 0
            else f"ended with exit code {code}"
        )
    except ValueError:
        return f"crashed with signal {-code}"


def _shorten(reason: str) -> str:
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."
