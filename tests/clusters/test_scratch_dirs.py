"""Folders of workers: held while one lives, removed by whoever comes next once it is gone, and nothing else is."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mezzo.clusters.scratch_dirs import ScratchDir, remove_scratch_dirs

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs locks of POSIX")

_HOLDS = """
from mezzo.clusters.scratch_dirs import ScratchDir
held = ScratchDir()
(held.path / "model").mkdir()
(held.path / "model" / "weights.bin").write_bytes(b"x" * 4096)
print(held.path, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def test_what_a_killed_process_held_is_removed_and_what_a_living_one_holds_stays(temporary: Path) -> None:
    children = [
        subprocess.Popen([sys.executable, "-c", _HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    held = []
    for child in children:
        assert child.stdout is not None
        held.append(Path(child.stdout.readline().strip()))
    assert remove_scratch_dirs() == 0 and all((folder / "model" / "weights.bin").exists() for folder in held)
    children[0].send_signal(signal.SIGKILL)
    children[0].wait()
    assert held[0].exists()
    assert remove_scratch_dirs() == 1
    assert [*temporary.iterdir()] == [held[1]] and (held[1] / "model" / "weights.bin").exists()
    children[1].communicate("\n")
    assert remove_scratch_dirs() == 1 and not [*temporary.iterdir()]


def test_own_folders_are_held_and_closed(temporary: Path) -> None:
    first, second = ScratchDir(), ScratchDir()
    assert remove_scratch_dirs() == 0 and first.path != second.path
    assert first.path.stat().st_mode & 0o777 == 0o700
    first.close()
    assert [*temporary.iterdir()] == [second.path]
    second.close()
    first.close()
    assert not [*temporary.iterdir()]


def test_what_only_has_the_name_is_left(temporary: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "file").write_text("kept")
    (temporary / "mezzo-worker-link").symlink_to(precious)
    (temporary / "mezzo-worker-file").write_text("kept")
    (temporary / "mezzo-worker-open").mkdir()
    (temporary / "mezzo-worker-open").chmod(0o777)
    os.mkfifo(temporary / "mezzo-worker-fifo")
    (temporary / "other").mkdir(mode=0o700)
    before = sorted(temporary.iterdir())
    assert remove_scratch_dirs() == 0
    assert sorted(temporary.iterdir()) == before and (precious / "file").read_text() == "kept"


def test_links_inside_are_removed_and_not_followed(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    gone = temporary / "mezzo-worker-gone"
    gone.mkdir(mode=0o700)
    (gone / "link").symlink_to(tmp_path / "precious")
    (gone / "folder").symlink_to(tmp_path)
    assert remove_scratch_dirs() == 1 and not gone.exists()
    assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs root, who may give files away")
def test_folders_of_other_users_are_left(temporary: Path) -> None:
    other = temporary / "mezzo-worker-other"
    other.mkdir(mode=0o700)
    os.chown(other, 12345, 12345)
    assert remove_scratch_dirs() == 0 and other.exists()


def test_a_folder_that_was_tidied_up_before_it_was_held_is_made_anew(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    plain, raced = tempfile.mkdtemp, list[str]()

    def make(**given: str) -> str:
        path = plain(**given)
        if not raced:
            raced.append(path)
            assert remove_scratch_dirs() == 1
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", make)
    held = ScratchDir()
    assert str(held.path) not in raced and [*temporary.iterdir()] == [held.path]
    held.close()
