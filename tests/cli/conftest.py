"""Models, and a way to run the command line inside the test process."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import DIGITS, SMALL, Ran, Run
from model_texts import LAYER_NORM

from mezzo.cli import main


@pytest.fixture
def unignored() -> Iterator[None]:
    """Signals that end a process do so here and in children, also where whoever started the tests ignores them, as
    nohup and background jobs of a shell do. Python takes over SIGINT only where nobody does.
    """
    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    if hasattr(signal, "SIGHUP"):
        defaults[signal.SIGHUP] = signal.SIG_DFL
    before = {number: signal.signal(number, handler) for number, handler in defaults.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line as a shell would, in this process."""

    def call(*words: object) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return call


@pytest.fixture
def save_data() -> Callable[[str], None]:
    """Write data for the demo model: held-out images, by the name of its input."""

    def save(path: str) -> None:
        with np.load(DIGITS.with_name("heldout.npz")) as held:
            np.savez(path, image=held["image"][:48])

    return save


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of our own, where the command runs, with layernorm.onnx and small.onnx."""
    monkeypatch.chdir(tmp_path)
    # Reports here are of a norm in small operators, parts of which rules keep in FP32.
    monkeypatch.setattr("mezzo.conversion.raising.cores", lambda _: frozenset())
    for name, text in (("layernorm.onnx", LAYER_NORM), ("small.onnx", SMALL)):
        onnx.save(onnx.parser.parse_model(text), name)
    return tmp_path
