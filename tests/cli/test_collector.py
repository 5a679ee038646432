"""A command that has the process to itself keeps Python from looking for garbage as it loads and as it ends."""

import gc
import subprocess
import sys

import pytest

from mezzo.cli import main

COUNT = """
import gc, sys
from mezzo.cli import main
looks = []
gc.callbacks.append(lambda phase, info: looks.append(phase))
sys.argv = ["mezzo", "convert", "--help"]
try:
    main()
finally:
    print("LOOKS", len(looks))
    gc.collect()  # as the interpreter does when it ends
    print("FROZEN", gc.get_freeze_count() > 10 * len(gc.get_objects()))
"""


def test_help_is_over_before_python_looks_for_garbage() -> None:
    ran = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.endswith("LOOKS 0\nFROZEN True\n")


def test_caller_with_a_process_of_its_own_keeps_its_collector(capsys: pytest.CaptureFixture[str]) -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    assert main(["--version"]) == 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
