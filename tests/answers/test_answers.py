"""What people type or hand over, and what mezzo answers: transcripts under tests/answers/golden, and laws over them.

    python tests/answers/test_answers.py --write

writes the answers anew. Read what it wrote: the tests only hold it.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from both_voices import call_of
from transcripts import REFUSED, Asked, answer_call, answer_of, files_of, read_transcript
from world import make_world

_FOLDER = Path(__file__).parent / "golden"
_FILES = sorted(_FOLDER.glob("*.txt"))
_LEAST = 200
# What was typed, quoted back, and commands of other programs.
_QUOTED = re.compile(
    r"(?<=mezzo: )'[^']*'|(optimum-cli|python -m|paddle2onnx|git lfs) [^;]*|(torch|keras|numpy)\.[^;]*"
)
# What only a command line says, and what only Python does.
_SHELL = re.compile(r"(^|[\s(])--[a-z]|'mezzo [a-z]")
_PYTHON = re.compile(
    r"\b(data|to|policy|target|labels|overwrite|metric)=|\bmezzo\.[a-z]|"
    r"\b(keep_region|fix_region|out_of_range|max_error|max_drop|batch_size|trust_external_paths)\b"
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    make_world(folder)
    return folder


@pytest.fixture
def kept(world: Path) -> Iterator[Path]:
    """The world, of which a test leaves nothing changed."""
    before = files_of(world)
    yield world
    _tidy(world, before)
    assert files_of(world) == before


def _tidy(world: Path, before: dict[str, tuple[int, int]]) -> None:
    for name in sorted(files_of(world).keys() - before.keys(), reverse=True):
        path = world / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _asked(path: Path) -> list[Asked]:
    return [asked for asked in read_transcript(path.read_text(encoding="utf-8")) if isinstance(asked, Asked)]


_EVERY = [pytest.param(asked, id=f"{path.stem}: {asked.line}") for path in _FILES for asked in _asked(path)]
_REFUSED = [
    case
    for case in _EVERY
    if isinstance(case.values[0], Asked) and case.values[0].is_command and case.values[0].is_refused
]


@pytest.mark.parametrize("asked", _EVERY)
def test_answer_is_as_written_and_a_refusal_writes_nothing(asked: Asked, kept: Path) -> None:
    before = files_of(kept)
    assert answer_of(asked.line, kept) == asked.answer
    assert not asked.is_refused or files_of(kept) == before


def test_the_table_is_long_enough() -> None:
    assert len(_EVERY) >= _LEAST


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_refusal_is_one_line_that_says_what_to_do(path: Path) -> None:
    for asked in _asked(path):
        if asked.is_command and asked.is_refused:
            line, code = asked.answer
            assert line.startswith("mezzo: ") and code == REFUSED, asked.line
            assert re.search(r"[;?:] ?\S", line.removeprefix("mezzo: ")), asked.line


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_answer_speaks_the_language_that_it_was_asked_in(path: Path) -> None:
    for asked in _asked(path):
        other = _PYTHON if asked.is_command else _SHELL
        assert not any(other.search(_QUOTED.sub("", line)) for line in asked.answer), asked.line


@pytest.mark.parametrize("asked", _REFUSED)
def test_what_a_command_refuses_python_refuses_in_its_own_words(asked: Asked, kept: Path) -> None:
    call = call_of(asked.line)
    if call is None:
        return
    said = answer_call(call, kept)
    assert said is not None, "Python takes what the command line refuses"
    assert not _SHELL.search(_QUOTED.sub("", said))


def _write() -> None:
    import tempfile

    for path in _FILES:
        with tempfile.TemporaryDirectory() as folder:
            world = Path(folder)
            make_world(world)
            before = files_of(world)
            lines: list[str] = []
            for asked in read_transcript(path.read_text(encoding="utf-8")):
                if isinstance(asked, str):
                    lines.append(asked)
                    continue
                lines += [asked.line, *answer_of(asked.line, world)]
                _tidy(world, before)
            path.write_text("\n".join(lines).rstrip("\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    assert sys.argv[1:] == ["--write"], __doc__
    _write()
