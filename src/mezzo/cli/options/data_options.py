"""Options of several commands for data, metrics and emulation."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli.console import print_error
from mezzo.cli.options import choices
from mezzo.cli.options.options import COMMON_PANEL, FILES_PANEL, VERDICT_PANEL, describe
from mezzo.common.errors import InputError
from mezzo.contracts.options.data_files import DataFiles
from mezzo.contracts.options.option import Panel

PANEL = Panel.DATA.value

_DATA = (
    "A file (.npz, .npy, .csv, .txt, an image), a folder, a pattern in quotes, NAME=FILE for one"
    " input, MODULE:FUNCTION, or 'random'"
)

Data = Annotated[
    list[Path],
    typer.Option(
        "--data",
        metavar="DATA",
        help=f"{_DATA}; repeatable.",
        show_default=False,
        rich_help_panel=COMMON_PANEL,
    ),
]
Preprocess = Annotated[
    str | None,
    typer.Option(
        "--preprocess",
        metavar="STEPS",
        help=(
            "How images, or arrays, become the model's numbers: 'imagenet', 'clip', 'inception',"
            " 'yolo', or 'resize=256,crop=224,scale=1/255,mean=0.5,std=0.5'."
        ),
        rich_help_panel=PANEL,
    ),
]
Tokenizer = Annotated[
    Path | None,
    typer.Option(
        "--tokenizer",
        metavar="FOLDER",
        help=(
            "Read text as a language model does, in rows of tokens, by this folder's"
            " tokenizer.json."
        ),
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
MaybeData = Annotated[
    list[Path] | None,
    typer.Option(
        "--data",
        metavar="DATA",
        help=(
            f"{_DATA}; repeatable: what overflows on it keeps FP32, what was only suspected "
            "and fits runs low, and the result is checked on it."
        ),
        rich_help_panel=COMMON_PANEL,
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--labels",
        metavar="NAME",
        help="An array of the data that is no input. Repeatable.",
        rich_help_panel=PANEL,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch",
        metavar="N",
        help="Run N samples at a time: split the data along its first axis.",
        rich_help_panel=PANEL,
    ),
]
Feedback = Annotated[list[str] | None, describe("feedback")]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        metavar="N",
        help="With --feedback: the first N rows of the data, or N random ones, are the steps.",
        rich_help_panel=PANEL,
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="MODULE:FUNCTION",
        help=(
            "Your own score, of (outputs, labels) by name; larger is "
            "better. Or the name of one that a package adds."
        ),
        rich_help_panel=VERDICT_PANEL,
    ),
]
MaxDrop = Annotated[
    str | None,
    typer.Option(
        "--max-drop",
        metavar="D",
        help="How much worse the metric may become: 0.005, or 0.5% of it.",
        rich_help_panel=VERDICT_PANEL,
    ),
]
Accumulate = Annotated[
    str | None,
    typer.Option(
        "--accumulate",
        metavar="fp16|bf16",
        help="Emulate sums in this precision too; FP32 otherwise.",
        autocompletion=choices.complete_dtype,
        rich_help_panel=VERDICT_PANEL,
    ),
]
Tile = Annotated[
    int | None,
    typer.Option(
        "--tile",
        metavar="N",
        help="With --accumulate: products summed in FP32 before the sum is rounded.",
        show_default="128",
        rich_help_panel=VERDICT_PANEL,
    ),
]
Top = Annotated[
    int,
    typer.Option(
        "--top", metavar="N", help="Show at most N lines of a kind.", rich_help_panel=FILES_PANEL
    ),
]


def read_maybe_data(
    sources: Sequence[Path] | None, preprocess: str | None, tokenizer: Path | None
) -> DataFiles | None:
    """The data that a command names, None if it names none.

    Raises InputError: there is preprocessing or a tokenizer without data.
    """
    if sources:
        return read_data(sources, preprocess, tokenizer)
    for flag, value in (("--preprocess", preprocess), ("--tokenizer", tokenizer)):
        if value is not None:
            raise InputError(
                f"{flag} is {str(value)!r}, and no data is given; give --data too, or leave it out"
            )
    return None


def read_data(sources: Sequence[Path], preprocess: str | None, tokenizer: Path | None) -> DataFiles:
    """The data that a command names; what is done to fit it to the model goes to stderr."""
    logger = logging.getLogger("mezzo.numerics.data")
    earlier = [handler for handler in logger.handlers if isinstance(handler, _Notes)]
    for handler in earlier:  # of another command of this process
        logger.removeHandler(handler)
    logger.addHandler(_Notes())
    logger.setLevel(logging.INFO)
    return DataFiles(sources, preprocess, tokenizer)


class _Notes(logging.Handler):
    """Prints notes on data to stderr, each once."""

    def __init__(self) -> None:
        super().__init__()
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message not in self._printed:
            self._printed.add(message)
            print_error(message)


def check_top(top: int) -> None:
    """Raises InputError: --top is below 1."""
    if top < 1:
        raise InputError(f"--top is {top}; give 1 or more")


def spell_settings(**given: object) -> list[tuple[str, str]]:
    """The given options by name, for an account."""
    return [
        (name.replace("_", "-"), str(value)) for name, value in given.items() if value is not None
    ]
