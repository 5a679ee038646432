"""Large temporary files go to a disk, not to memory."""

import tempfile
from pathlib import Path

import pytest

from mezzo.common import machine
from mezzo.common.machine import find_temporary_folder


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system whose usual folder is `tmp`, and whose other one is `large`."""
    for name in ("tmp", "large"):
        (tmp_path / name).mkdir()
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(machine, "_LARGE_FILES", str(tmp_path / "large"))
    return tmp_path / "mounts"


def folder_with(mounts: Path, *rows: tuple[str, str]) -> str:
    """The folder that is found, by name, with file systems mounted at places."""
    root = mounts.parent.resolve()
    lines = ["overlay / overlay rw 0 0", *(f"none {root / place} {kind} rw 0 0" for place, kind in rows)]
    mounts.write_text("\n".join(lines))
    return Path(find_temporary_folder(mounts)).name


def test_the_usual_folder_is_taken_where_it_is_on_a_disk(mounts: Path) -> None:
    assert folder_with(mounts) == "tmp"
    assert folder_with(mounts, ("tmp", "ext4")) == "tmp"
    assert folder_with(mounts, ("tmp", "tmpfs"), ("tmp", "ext4")) == "tmp", "what was mounted last is seen"


def test_a_disk_in_memory_is_left_for_one_that_is_none(mounts: Path) -> None:
    assert folder_with(mounts, ("tmp", "tmpfs")) == "large"
    assert folder_with(mounts, ("tmp", "tmpfs"), ("large", "xfs")) == "large"


def test_the_usual_folder_stays_where_the_other_is_no_better(mounts: Path) -> None:
    assert folder_with(mounts, ("", "tmpfs")) == "tmp"
    (mounts.parent / "large").rmdir()
    assert folder_with(mounts, ("tmp", "tmpfs")) == "tmp"


def test_a_folder_that_the_environment_names_is_taken(mounts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(mounts.parent / "tmp"))
    assert folder_with(mounts, ("tmp", "tmpfs")) == "tmp"


def test_a_system_that_does_not_tell_gets_the_usual_folder(mounts: Path) -> None:
    assert Path(find_temporary_folder(mounts)).name == "tmp"
    mounts.write_text("\n\nodd\n")
    assert Path(find_temporary_folder(mounts)).name == "tmp"
