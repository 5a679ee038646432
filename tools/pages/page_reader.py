"""Does what a page says, block after block, as a reader would, and tells what its outputs should be."""

import contextlib
import difflib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
from page_blocks import PROMPT, ROOT, SESSION, SHELL, Block, blocks_of, commands_of, spelled
from page_outputs import is_alike, parts_of

import mezzo
from mezzo.cli import main
from mezzo.common import machine
from mezzo.common.packages import find_version
from mezzo.planner.choices import gains
from mezzo.tables.sums import VNNI

DIGITS = ROOT / "examples" / "digits"
# Pages are those of one machine: a server's CPU, whichever runs them.
_FEATURES = "avx2 f16c avx512f avx512_bf16 avx512_vnni amx_int8 amx_bf16"
# Blocks that need torch run its INT8 kernels, whose sums are those of the machine at hand.
_MULTIPLIES_HERE = any(map(machine.find_machine().has, VNNI))
# Beside mezzo, what a shell block may run.
_PROGRAMS = frozenset({"cat", "cp", "grep", "ls", "python"})


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A folder to work in, with the demo model, a conversion of it, data, and the examples of the checkout."""
    home, known, paths, cpuinfo = Path.cwd(), set(sys.modules), list(sys.path), machine.CPUINFO
    with tempfile.TemporaryDirectory() as name, tempfile.NamedTemporaryFile("w") as features:
        folder = Path(name).resolve()
        os.chdir(folder)
        machine.CPUINFO = Path(features.name)
        _pretend()
        try:
            with patch.object(gains, "find_version", _find_version):
                _lay_out()
                yield folder
        finally:
            os.chdir(home)
            sys.path[:], machine.CPUINFO = paths, cpuinfo
            for module in set(sys.modules) - known:  # metrics that a page has written
                if str(folder) in str(getattr(sys.modules[module], "__file__", "")):
                    del sys.modules[module]


def _pretend(needs: Sequence[str] = ()) -> None:
    """Write the CPU's features, as a block sees them that needs these packages."""
    is_here = "torch" in needs and not _MULTIPLIES_HERE
    features = [feature for feature in _FEATURES.split() if not (is_here and feature in VNNI)]
    machine.CPUINFO.write_text(f"flags : {' '.join(features)}\n", encoding="utf-8")


def _find_version(package: str) -> str | None:
    """The version of a package; None of OpenVINO, which commands suggest where it is installed."""
    return None if package == "openvino" else find_version(package)


def _lay_out() -> None:
    Path("examples").symlink_to(ROOT / "examples", target_is_directory=True)
    Path("model.onnx").write_bytes((DIGITS / "digits.onnx").read_bytes())
    Path("model.fp16.onnx").write_bytes(_converted())
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as file:
        held_out = {name: array[:64] for name, array in file.items()}
    np.savez("calib.npz", image=held_out["image"])
    np.savez("labelled.npz", **held_out)
    for part in ("t5-small/onnx", "data"):  # an export by its shape; the model in it is the demo's
        Path(part).mkdir(parents=True)
    Path("t5-small", "config.json").write_text('{"model_type": "t5"}\n')
    shutil.copy("model.onnx", "t5-small/onnx/encoder_model.onnx")
    shutil.copy("calib.npz", "data/encoder_model.npz")


@cache
def _converted() -> bytes:
    """The demo model in FP16, converted once for all pages."""
    mezzo.convert("model.onnx", "model.fp16.onnx", to="fp16")
    return Path("model.fp16.onnx").read_bytes()


class _Heard(io.StringIO):
    """One of the two streams of a command; both are heard together too, in the order in which a terminal shows them."""

    def __init__(self, together: io.StringIO) -> None:
        super().__init__()
        self._together = together

    def write(self, text: str) -> int:
        self._together.write(text)
        return super().write(text)


class Reader:
    """Follows the blocks of one page in the folder it stands in."""

    def __init__(self) -> None:
        self._names: dict[str, object] = {"__name__": "__main__", "mezzo": mezzo}
        self._printed = ""

    def follow(self, block: Block) -> str:
        """Do what a block says; returns what the block should be: itself, but for the outputs in it."""
        _pretend(block.needs)
        if block.is_output:
            return parts_of(self._printed, block.parts)
        if block.language == "python":
            _keep_file(block)
            together = io.StringIO()
            with contextlib.redirect_stdout(together):
                exec(compile(block.text, str(block), "exec"), self._names)
            self._printed = together.getvalue()
        elif block.language == "toml":
            tomllib.loads(block.text)
            _keep_file(block)
        elif block.language in {SHELL, SESSION}:
            return self._follow_commands(block)
        return block.text

    def _follow_commands(self, block: Block) -> str:
        commands, session = commands_of(block), []
        self._printed = ""
        for command in commands:
            wanted = block.gives if command == commands[-1] else 0
            printed = _run(spelled(command), wanted, _PROGRAMS.union(block.needs))
            self._printed += printed
            session.append(f"{PROMPT}{command}")
            if printed.strip():
                session.append(parts_of(printed, block.parts))
        return "\n".join(session) if block.language == SESSION else block.text


def outdated_of(page: Path) -> dict[Block, str]:
    """The blocks of a page that show what nothing prints, with what they should be.

    Raises:
        AssertionError: a command ends otherwise than the page says.
        NoSuchPart: an output has no such part.
    """
    outdated = {}
    with workplace():
        reader = Reader()
        for block in blocks_of(page):
            if block.is_followed:
                text = reader.follow(block)
                if not is_alike(block.text, text):
                    outdated[block] = text
            elif block.language == "python":
                compile(block.text, str(block), "exec")
    return outdated


def difference(block: Block, text: str) -> str:
    """What a block shows beside what it should, as a diff."""
    lines = difflib.unified_diff(block.text.splitlines(), text.splitlines(), str(block), "what is printed", lineterm="")
    return "\n".join(lines)


def _keep_file(block: Block) -> None:
    """Write a block whose first line names a file."""
    named = re.match(r"# (\S+\.(?:toml|py))\n", block.text)
    if named:
        Path(named[1]).write_text(block.text + "\n", encoding="utf-8")


def _run(command: str, wanted: int, programs: frozenset[str]) -> str:
    """What a command, mezzo or one of `programs`, prints on both streams; it has to end with the exit code `wanted`."""
    line, _, target = command.partition(" > ")
    line, _, filters = line.partition(" | ")
    words = shlex.split(line)
    if words[0] in programs:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env={**os.environ, "PATH": path})
        assert ran.returncode == wanted, f"{command}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout + ran.stderr
    assert words[0] == "mezzo", f"{command!r}: a shell block runs mezzo; say why it is not run, or make it a text block"
    together = io.StringIO()
    out, err = _Heard(together), _Heard(together)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words[1:])
    assert code == wanted, f"{command}\n{together.getvalue()}"
    assert wanted or not err.getvalue(), f"{command}\n{err.getvalue()}"
    if target:
        Path(target).write_text(out.getvalue(), encoding="utf-8")
        return err.getvalue()
    if filters:
        return subprocess.run(["bash", "-c", filters], input=out.getvalue(), capture_output=True, text=True).stdout
    return together.getvalue()
