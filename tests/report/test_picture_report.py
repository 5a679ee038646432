"""The bars of a picture, names without their middle, and the figures behind a progress bar."""

import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import Progress

from mezzo.cli.progress_bar import spell_progress
from mezzo.formats.dtypes import DType
from mezzo.report.layout.names import shorten
from mezzo.report.text.picture import Bar

F16, BF16, F32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32


def draw(*sizes: int, is_plain: bool = True) -> str:
    text = io.StringIO()
    console = Console(file=text, width=80, color_system=None)
    console.print(Bar(tuple(zip((F16, F32, BF16), sizes, strict=False)), is_plain))
    return text.getvalue().rstrip("\n")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no reason to fail
@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=3))
def test_bar_is_full_and_shows_the_least_share(sizes):
    drawn = draw(*sizes)
    assert len(drawn) == (30 if sum(sizes) else 0)
    assert [sign in drawn for sign in "#.+"[: len(sizes)]] == [size > 0 for size in sizes]


def test_bar_of_a_terminal_has_blocks():
    assert draw(1, 2, is_plain=False) == "█" * 10 + "░" * 20


@pytest.mark.parametrize(
    ("text", "most", "short"),
    [
        ("/head/Gemm", 10, "/head/Gemm"),
        ("/encoder/layers.7/attention/Softmax", 20, "/enco...tion/Softmax"),
        ("abcdef", 3, "abcdef"),
    ],
)
def test_long_names_lose_their_middle(text, most, short):
    assert shorten(text, most) == short


def test_progress_in_bytes_is_told_in_sizes():
    progress = Progress()
    progress.add_task("writing", completed=3 * 10**8, total=9 * 10**8, stage="writing")
    assert spell_progress(progress.tasks[0], 61.0) == "300 MB of 900 MB, 1:01"


def test_progress_of_which_nothing_is_known_tells_the_time():
    progress = Progress()
    progress.add_task("planning", total=None, stage="planning")
    assert spell_progress(progress.tasks[0], 3661.0) == "1:01:01"
