"""Help in groups: the common options with their text, the others by name, and all of them with `--help-all`."""

import re
from pathlib import Path

import pytest
from command_lines import Run

from mezzo.cli.app import COMMANDS
from mezzo.cli.help import group_options

_SCREEN = Path(__file__).parent / "help" / "mezzo.txt"
_MOST_ROWS, _WIDTH = 13, 80


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(_WIDTH))


def _rows(text: str, heading: str) -> list[str]:
    """The first lines of a section's rows."""
    section = text.partition(f"\n{heading}:\n")[2].partition("\n\n")[0]
    return [line for line in section.splitlines() if re.match(r"  \S", line)]


def test_help_lists_the_commands_by_task(run: Run) -> None:
    assert run("--help").out == _SCREEN.read_text(encoding="utf-8")
    assert run().err.rstrip() == run("help").out.rstrip()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_few_rows_and_names_every_option(run: Run, name: str) -> None:
    text = run(name, "--help").out
    assert len(_rows(text, "Common options")) <= _MOST_ROWS
    for option in COMMANDS[name].load().params:
        longest = max(option.opts, key=len)
        assert option.param_type_name == "argument" or re.search(rf"(?<![\w-]){longest}(?![\w-])", text), longest
    without_examples = text.partition("\nExamples:")[0]
    assert max(map(len, without_examples.splitlines())) <= _WIDTH


@pytest.mark.parametrize("name", COMMANDS)
def test_whole_help_explains_every_option_in_its_group(run: Run, name: str) -> None:
    text = run(name, "--help-all").out
    for group, options in group_options(COMMANDS[name].load().params).items():
        rows = _rows(text, group)
        assert len(rows) == len(options) + (group == "Common options")  # and the row of --help
        for option in options:
            assert sum(max(option.opts, key=len) in re.split(r"[ ,]+", row) for row in rows) == 1


def test_word_behind_two_dashes_asks_for_no_help(run: Run) -> None:
    assert run("explain", "absent.onnx", "--", "--help-all").code == 2
