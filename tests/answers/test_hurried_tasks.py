"""Sixty tasks as hurried users type them: the first answer solves the task, or has the command that does."""

import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from transcripts import answer_of
from world import make_world

_TABLE = Path(__file__).parent / "hurried_tasks.toml"
_LEAST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`typed`: the command line; `wanted`: the task; `answer`: texts in the output; `code`: the exit code, if known."""

    typed: str
    wanted: str
    answer: list[str]
    code: int | None = None

    def faults(self, folder: Path) -> list[str]:
        """What the answer in a folder lacks; empty where the task is solved."""
        *lines, code = answer_of(f"$ {self.typed}", folder) or ("",)
        text = " ".join(" ".join([*lines, code]).split())
        is_done = not (code.startswith("[") and code.endswith("]"))
        missing = [part for part in self.answer if part not in text]
        if "Traceback" in text:
            missing.append("no traceback")
        if self.code == 0 and not is_done:
            missing.append("exit code 0")
        return [*missing, text] if missing else []


TASKS = [Task(**row) for row in tomllib.loads(_TABLE.read_text(encoding="utf-8"))["task"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("hurried")
    make_world(folder)
    (folder / "photos").mkdir()
    (folder / "photos" / "1.jpg").write_bytes(b"\xff\xd8\xff\xe0\0\x10JFIF\0")
    before = os.getcwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.typed)
def test_first_answer_solves_the_task(task: Task, folder: Path) -> None:
    assert task.faults(folder) == []


def test_the_table_is_whole() -> None:
    assert len({task.typed for task in TASKS}) == _LEAST
