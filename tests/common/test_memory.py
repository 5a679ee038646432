"""A bound on memory: how it is written, what it leaves, and that the system holds it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mezzo.common.errors import InputError
from mezzo.common.machine import data_bounded, find_private_bytes
from mezzo.common.memory import MemoryLimit, NoRoom, current_memory_limit, is_out_of_memory, memory
from mezzo.common.message_style import MessageStyle, using_message_style
from mezzo.common.sizes import read_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("6GB", 6 * 10**9), ("6 GB", 6 * 10**9), ("6g", 6 * 10**9), ("5.5G", 55 * 10**8), ("512MiB", 512 << 20),
        ("512Mi", 512 << 20), ("1KiB", 1024), ("700kb", 700_000), ("2TB", 2 * 10**12), ("6000000000", 6 * 10**9),
        ("17 B", 17), ("", None), ("GB", None), ("-1GB", None), ("0", None), ("0.1", None), ("1e9", None),
        ("6XB", None), ("6iB", None), ("nan", None), ("9" * 99 + "GB", None), ("1.GB", None), ("50%", None),
    ],
)  # fmt: skip
def test_sizes_are_read_as_people_write_them(text: str, size: int | None) -> None:
    assert read_size(text) == size


def test_what_is_no_size_is_refused_on_one_line() -> None:
    for voice, called in ((MessageStyle.PYTHON, "memory"), (MessageStyle.SHELL, "--memory")):
        with using_message_style(voice), pytest.raises(InputError) as told, memory("lots"):
            pass
        assert str(told.value) == f"{called} is 'lots', which is no size; give one such as 6GB or 512MiB"


def test_a_bound_holds_while_it_is_open_and_is_gone_after() -> None:
    before = current_memory_limit()
    assert not before.is_asked
    with memory("8GB") as held:
        assert current_memory_limit() is held
        with memory("7GB") as inner:
            assert current_memory_limit() is inner
        assert current_memory_limit() is held
    assert not current_memory_limit().is_asked


def test_less_than_the_process_holds_is_refused() -> None:
    words = r"^memory is 1.00 MB, and this process alone, .* give more than that$"
    with pytest.raises(NoRoom, match=words), memory("1MB"):
        pass


def test_the_system_refuses_what_would_pass_the_bound() -> None:
    private = find_private_bytes()
    assert private is not None, "this system tells what a process holds"
    with memory(private + 100_000_000):
        kept = np.ones(50_000_000, np.uint8)
    with pytest.raises(NoRoom, match=r"computation outside the model does not fit"), memory(private + 100_000_000):
        np.ones(200_000_000, np.uint8)
    assert np.ones(200_000_000, np.uint8).size > kept.size, "the bound is gone"


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(KeyError), memory("20GB"):
        raise KeyError("name")


def test_a_lower_bound_from_outside_stays(tmp_path: Path) -> None:
    script = tmp_path / "bounded.py"
    script.write_text(
        "import resource\n"
        "from mezzo.common.memory import memory\n"
        "kind = resource.RLIMIT_DATA\n"
        "resource.setrlimit(kind, (10**9, 2 * 10**9))\n"
        "with memory('6GB'):\n"
        "    print(resource.getrlimit(kind))\n"
        "print(resource.getrlimit(kind))\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.splitlines() == [f"({10**9}, {2 * 10**9})"] * 2


def test_where_the_system_does_not_tell_nothing_is_bounded(tmp_path: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    with data_bounded(1, tmp_path / "absent"):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert find_private_bytes(tmp_path / "absent") is None


def test_how_a_model_is_cut_is_told_once_and_again_where_it_is_cut_into_many_more() -> None:
    told: list[str] = []
    held = MemoryLimit(bound_bytes=10, is_asked=True, tell=told.append)
    for segments, most in ((3, 1_900_000_000), (4, 2_000_000_000), (2, 10), (6, 50)):
        held.note_cut(segments, most)
    assert told == [
        "runs in segments to fit in memory: 3 segments, 1.90 GB at most",
        "runs in segments to fit in memory: 6 segments, 50 B at most",
    ]
    assert (held.segments, held.most_bytes) == (6, 2_000_000_000)


@pytest.mark.parametrize(
    ("error", "expected"),
    [(MemoryError(), True), (RuntimeError("std::bad_alloc"), True), (RuntimeError("no such node"), False)],
)
def test_errors_of_libraries_are_known(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
