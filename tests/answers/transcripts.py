"""Transcripts: what somebody types, and what mezzo answers, as text.

A file of `tests/answers/golden` is lines `$ mezzo ...` or `>>> python`, each followed by what was printed and, behind a
command that did not end well, its exit code as `[2]`. Lines that begin with `#` are about what comes.
"""

import contextlib
import io
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from both_voices import Call

import mezzo
from mezzo.cli import main
from mezzo.common.errors import MezzoError


class _TorchDtype:
    """A dtype as torch has them, told by its type and its text alone."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


_TorchDtype.__module__, _TorchDtype.__qualname__, _TorchDtype.__name__ = "torch", "dtype", "dtype"


class _Torch:
    float16, bfloat16, float32, half = (_TorchDtype(name) for name in ("float16", "bfloat16", "float32", "float16"))
    float8_e4m3fn, int8 = _TorchDtype("float8_e4m3fn"), _TorchDtype("int8")


REFUSED = "[2]"
_NAMES = {"mezzo": mezzo, "np": np, "onnx": onnx, "ml_dtypes": ml_dtypes, "torch": _Torch}


@dataclass(frozen=True, slots=True)
class Asked:
    """One line that somebody typed, and the answer as it is expected: lines, and the exit code."""

    line: str
    answer: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        """Whether it is a command that was told what is wrong with it."""
        return self.is_command and REFUSED in self.answer

    @property
    def is_command(self) -> bool:
        return self.line.startswith("$ ")


def read_transcript(text: str) -> Iterator[Asked | str]:
    """What was asked in a file, in order, and the comments as they are. Empty lines end no answer."""
    asked: str | None = None
    answer: list[str] = []
    for line in [*text.splitlines(), "#"]:
        is_question = line.startswith(("$ ", ">>> "))
        if asked is not None and (is_question or line.startswith("#")):
            while answer and not answer[-1]:
                answer.pop()
            yield Asked(asked, tuple(answer))
            asked, answer = None, []
        if is_question:
            asked = line
        elif asked is not None:
            answer.append(line)
        elif line.strip("#"):
            yield line


def answer_of(line: str, world: Path) -> tuple[str, ...]:
    """What is answered to a line in a folder made by `make_world`."""
    with contextlib.chdir(world):
        return _answer_command(line[2:]) if line.startswith("$ ") else _answer_python(line[4:])


def _answer_command(line: str) -> tuple[str, ...]:
    words = shlex.split(line)
    assert words[0] == "mezzo", f"{line}: is no command of mezzo"
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words[1:])
    lines = [line.replace(os.getcwd(), "FOLDER") for line in (out.getvalue() + err.getvalue()).rstrip().splitlines()]
    return (*lines, *([f"[{code}]"] if code else []))


def _answer_python(line: str) -> tuple[str, ...]:
    try:
        found = eval(line, dict(_NAMES))  # of the golden files
    except (MezzoError, TypeError) as error:
        return (f"{type(error).__name__}: {error}",)
    return () if found is None else tuple(str(found).splitlines())


def answer_call(call: Call, world: Path) -> str | None:
    """What is said against a call, in a folder made by `make_world`; None where nothing is."""
    with contextlib.chdir(world):
        try:
            if call.verb == "explain":
                mezzo.explain(mezzo.plan(call.arguments[0], **call.keywords), call.arguments[1])
            elif call.verb in ("compare", "ranges", "tune", "convert", "plan"):
                keywords = dict(call.keywords)
                data = [keywords.pop("data")] if call.verb in ("compare", "ranges") and "data" in keywords else []
                getattr(mezzo, call.verb)(*call.arguments, *data, **keywords)
        except (MezzoError, TypeError) as error:
            return str(error)
    return None


def files_of(world: Path) -> dict[str, tuple[int, int]]:
    """Every file of a folder with its size and its time, to be compared later; Python's bytecode apart."""
    files: dict[str, tuple[int, int]] = {}
    for folder, _, names in os.walk(world):
        if os.path.basename(folder) == "__pycache__":
            continue
        for name in names:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            files[os.path.relpath(path, world)] = (status.st_size, status.st_mtime_ns)
    return files
