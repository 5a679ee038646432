"""What is no regular file is neither written nor read: refused at once, untouched, in one line."""

import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from command_lines import Run

from mezzo.common import safe_paths
from mezzo.common.errors import InputError
from mezzo.common.staging import Staging

_WAIT_S = 60  # far above what any case takes, and the end of one that hangs

Make = Callable[[Path], object]


def _socket(path: Path) -> None:
    folder = os.getcwd()
    os.chdir(path.parent)  # a socket's name has to be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(folder)


def _device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices here")


KINDS: dict[str, tuple[str, Make]] = {
    "fifo": ("a FIFO", os.mkfifo),
    "socket": ("a socket", _socket),
    "device": ("a device", _device),
    "folder": ("a folder", os.mkdir),
}
WRITERS = {
    "OUT": ("convert", "small.onnx", "odd"),
    "--save-plan": ("convert", "small.onnx", "out.onnx", "--save-plan", "odd"),
    "--report": ("convert", "small.onnx", "out.onnx", "--report", "odd"),
    "--save": ("plan", "small.onnx", "--save", "odd"),
    "tune OUT": ("tune", "small.onnx", "odd", "--data", "x.npz", "--max-error", "1e-3"),
    "tune --save-plan": (
        "tune", "small.onnx", "o.onnx", "--data", "x.npz", "--max-error", "1e-3", "--save-plan", "odd",
    ),
    "tune --resume": ("tune", "small.onnx", "o.onnx", "--data", "x.npz", "--max-error", "1e-3", "--resume", "odd"),
    "tune --report": ("tune", "small.onnx", "o.onnx", "--data", "x.npz", "--max-error", "1e-3", "--report", "odd"),
    "ranges --resume": ("ranges", "small.onnx", "--data", "x.npz", "--resume", "odd"),
    "compare --report": ("compare", "small.onnx", "small.onnx", "--data", "x.npz", "--report", "odd"),
    "strategies --report": ("strategies", "small.onnx", "--report", "odd"),
}  # fmt: skip
READERS = {
    "IN": ("convert", "odd", "out.onnx"),
    "show": ("show", "odd"),
    "--plan": ("convert", "small.onnx", "out.onnx", "--plan", "odd"),
    "diff": ("diff", "odd", "odd"),
    "--policy": ("plan", "small.onnx", "--policy", "odd.toml"),
    "--target": ("plan", "small.onnx", "--target", "odd.toml"),
    "--data": ("convert", "small.onnx", "out.onnx", "--data", "odd"),
    "compare": ("compare", "small.onnx", "odd", "--data", "x.npz"),
}


def _ends(call: Callable[[], None]) -> None:
    """Call in a thread of its own, so that one that waits for ever fails its test and not the run."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  handed to the test
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_WAIT_S)
    assert not thread.is_alive(), "it waits for ever"
    if errors:
        raise errors[0]


def _put(folder: Path, make: Make, name: str = "odd") -> os.stat_result:
    np.savez("x.npz", x=np.ones((2, 4), np.float32))
    make(folder / name)
    return os.stat(name)


def _state(folder: Path) -> dict[str, int]:
    return {path.name: os.stat(path).st_ino for path in folder.iterdir()}


@pytest.mark.parametrize("is_link", [False, True], ids=["itself", "link"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("writer", WRITERS)
def test_destination_that_is_no_file_is_refused_untouched(
    run: Run, folder: Path, writer: str, kind: str, is_link: bool
) -> None:
    words, make = KINDS[kind]
    if is_link:
        _put(folder, make, "real")
        os.symlink("real", "odd")
    else:
        _put(folder, make)
    before = _state(folder)

    def call() -> None:
        ran = run(*WRITERS[writer])
        assert ran.code == 2 and ran.out == "" and ran.err.count("\n") == 1
        assert ran.err.endswith(f"'odd': it is {words}; name a file\n"), ran.err

    _ends(call)
    assert _state(folder) == before


@pytest.mark.parametrize("writer", WRITERS)
def test_path_below_a_file_is_refused(run: Run, folder: Path, writer: str) -> None:
    (folder / "file").write_text("mine")
    np.savez("x.npz", x=np.ones((2, 4), np.float32))
    before = _state(folder)
    ran = run(*("file/odd" if word == "odd" else word for word in WRITERS[writer]))
    assert ran.code == 2 and ran.err.endswith("'file/odd': 'file' is not a folder; make it first\n")
    assert _state(folder) == before


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "folder"])
@pytest.mark.parametrize("reader", READERS)
def test_input_that_is_no_file_is_refused_without_reading(run: Run, folder: Path, reader: str, kind: str) -> None:
    words, make = KINDS[kind]
    name = "odd.toml" if "odd.toml" in READERS[reader] else "odd"
    _put(folder, make, name)
    before = _state(folder)

    def call() -> None:
        ran = run(*READERS[reader])
        assert ran.code == 2 and ran.out == ""
        assert ran.err == f"mezzo: '{name}' is {words}; name a file\n"

    _ends(call)
    assert _state(folder) == before


@pytest.mark.parametrize("path", ["/dev/null", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/new"])
def test_folders_of_devices_hold_no_results(path: str) -> None:
    with pytest.raises(InputError, match="cannot write") as caught:
        safe_paths.check_destination(path)
    assert str(caught.value).endswith(("name a file", "holds devices; name a file in another folder"))


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (("--save-plan", "small.onnx"), "--save-plan 'small.onnx' is a model of this command"),
        (("--save-plan", "out.onnx"), "--save-plan 'out.onnx' is a model of this command"),
        (("--save-plan", "a", "--report", "a"), "--save-plan 'a' is the --report of this command"),
    ],
)
def test_files_of_one_command_are_different_files(run: Run, folder: Path, others: tuple[str, ...], told: str) -> None:
    before = _state(folder)
    ran = run("convert", "small.onnx", "out.onnx", *others)
    assert (ran.code, ran.err) == (2, f"mezzo: {told}; give it a name of its own\n")
    assert _state(folder) == before


def test_external_data_goes_to_no_fifo(run: Run, folder: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1,64] x) => (float[1,64] y) <float[64,64] w> '
        "{ y = MatMul(x, w) }"
    )
    model.graph.initializer.append(weight)
    onnx.save(model, "big.onnx", save_as_external_data=True, location="big.bin", size_threshold=0)
    os.mkfifo("out.onnx.data")
    before = _state(folder)

    def call() -> None:
        ran = run("convert", "big.onnx", "out.onnx")
        assert (ran.code, ran.err) == (2, "mezzo: cannot write 'out.onnx.data': it is a FIFO; name a file\n")

    _ends(call)
    assert _state(folder) == before


def test_results_of_a_folder_replace_no_fifo(run: Run, folder: Path) -> None:
    models = folder / "models"
    models.mkdir()
    os.rename("small.onnx", models / "small.onnx")
    os.mkdir("out")
    os.mkfifo("out/small_fp16.onnx_data")
    before = _state(folder / "out")

    def call() -> None:
        ran = run("convert", "models", "out", "--overwrite")
        assert ran.code == 2 and ran.out == ""
        assert ran.err == "mezzo: cannot write 'out/small_fp16.onnx_data': it is a FIFO; name a file\n"

    _ends(call)
    assert _state(folder / "out") == before


def test_file_that_turns_into_a_fifo_while_it_is_written_stays(tmp_path: Path) -> None:
    place = tmp_path / "out"
    with Staging() as staging:
        with staging.create(place) as sink:
            sink.write(b"late")
        os.mkfifo(place)
        with pytest.raises(InputError, match="it is a FIFO"):
            staging.commit()
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and place.is_fifo()


def test_file_that_turns_into_a_fifo_before_it_is_opened_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "in"
    os.mkfifo(place)
    real = os.stat(__file__)
    monkeypatch.setattr(safe_paths.os, "stat", lambda _: real)  # what it was when it was looked at

    def call() -> None:
        with pytest.raises(InputError, match="is a FIFO"):
            safe_paths.open_regular(place)

    _ends(call)


def test_link_to_a_file_is_replaced_and_the_file_stays(run: Run, folder: Path) -> None:
    (folder / "mine").write_text("mine")
    os.symlink("mine", "out.onnx")
    assert run("convert", "small.onnx", "out.onnx").code == 0
    assert (folder / "mine").read_text() == "mine" and not (folder / "out.onnx").is_symlink()
