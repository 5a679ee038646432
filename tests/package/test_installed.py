"""The wheel, installed where nothing of the sources is, does what the README says."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest
from building import ROOT

import mezzo

DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
WHEELS = Path(os.environ.get("MEZZO_WHEELS", ROOT / "out" / "wheels"))
BIN = "Scripts" if os.name == "nt" else "bin"


class Environment:
    """An environment of its own, and a folder in which its commands run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self._home = folder / "venv"
        venv.EnvBuilder(with_pip=False, symlinks=os.name != "nt").create(self._home)
        self.python = self._home / BIN / "python"
        self.mezzo = self._home / BIN / "mezzo"

    def install(self, *words: object) -> None:
        """Have this process's pip install something there, without network."""
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet", "--no-index"]
        self.run([*command, "--disable-pip-version-check", *map(str, words)])

    def borrow_packages(self) -> None:
        """Let it see the packages of the environment that runs the tests, after its own. Editable ones are not seen."""
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        place = Path(self.run([self.python, "-c", code]).strip()) / "borrowed.pth"
        paths = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
        place.write_text("\n".join(paths), encoding="utf-8")

    def run(self, command: Sequence[object]) -> str:
        """Run a command and give what it printed; it has to end with 0."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
        ran = subprocess.run(
            [str(word) for word in command], cwd=self.folder, env={**clean, "PIP_CONFIG_FILE": os.devnull},
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


def try_out(environment: Environment) -> None:
    """What a new user does first."""
    where = environment.run([environment.python, "-c", "import mezzo; print(mezzo.__file__)"])
    assert str(ROOT / "src") not in where
    lines = environment.run([environment.mezzo, "--version"]).splitlines()
    assert lines[0] == f"mezzo {mezzo.__version__}" and any(line.startswith("onnx ") for line in lines)
    assert environment.run([environment.python, "-m", "mezzo", "--version"]).splitlines() == lines
    environment.run([environment.mezzo, "convert", DIGITS, "digits.fp16.onnx", "--to", "fp16"])
    assert 0 < (environment.folder / "digits.fp16.onnx").stat().st_size < DIGITS.stat().st_size
    found = json.loads(environment.run([environment.mezzo, "doctor", "--json"]))
    assert found["format"] == "mezzo-doctor/1" and found["is_sound"] and found["faults"] == []
    account = environment.run(
        [environment.python, "-c", "from mezzo.report.records.account import schema; print(schema())"]
    )
    assert "mezzo-account" in account


@pytest.mark.slow
def test_wheel_works_beside_the_packages_of_this_environment(built, tmp_path):
    environment = Environment(tmp_path)
    environment.install("--no-deps", built.wheel)
    environment.borrow_packages()
    try_out(environment)


@pytest.mark.slow
def test_wheel_works_in_an_empty_environment(built, tmp_path):
    if not any(WHEELS.glob("onnx-*.whl")):
        pytest.skip(f"no wheels in {WHEELS}; 'make package' fetches them, MEZZO_WHEELS names another folder")
    environment = Environment(tmp_path)
    environment.install("--find-links", WHEELS, built.wheel)
    try_out(environment)
