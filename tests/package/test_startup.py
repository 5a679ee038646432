"""What runs before a command does anything loads nothing heavy: that is what makes it quick."""

import subprocess
import sys
from pathlib import Path

import pytest

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"

HEAVY = {"google", "ml_dtypes", "numpy", "onnx", "onnx_ir", "onnxruntime", "openvino", "scipy", "torch"}


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded once it has run some code."""
    script = f"import sys\n{code}\nprint('\\nLOADED', *sorted(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(ran.stdout.rpartition("LOADED ")[2].split())


@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), ("convert", "--help"), ("tune", "--help"), ("doctor", "-h")]
)
def test_commands_that_only_tell_load_no_library_of_numbers_or_models(words):
    assert not loaded_by(f"from mezzo.cli import main; main({list(words)})") & HEAVY


def test_help_reads_no_metadata():
    """Looking for a package's version means reading folders: the dearest part of a start that needs none."""
    assert "importlib.metadata" not in loaded_by("from mezzo.cli import main; main(['--help'])")


def test_import_of_the_package_loads_none_of_its_parts():
    ours = {name for name in loaded_by("import mezzo") if name.startswith("mezzo.")}
    assert ours == {"mezzo.common", "mezzo.common.errors", "mezzo.common.packages"}  # the version is in the last


@pytest.mark.parametrize(
    "code",
    [
        "import mezzo",
        "from mezzo.plugins.discovery import frontends; frontends()",
        "from mezzo.plugins.discovery import built_in_targets; built_in_targets()",
        f"import mezzo; mezzo.plan({str(DIGITS)!r})",
    ],
)
def test_pytorch_is_loaded_by_no_one_who_does_not_bring_it(code):
    assert "torch" not in loaded_by(code)


def test_conversion_that_is_not_run_loads_nothing_that_runs_or_judges():
    """FP16 gains nothing on this target, so the result is not tried: data, figures and statistics stay unloaded."""
    loaded = loaded_by(f"import mezzo; mezzo.convert({str(DIGITS)!r}, to='fp16', target='onnx')")
    assert not {name for name in loaded if name.startswith(("mezzo.evaluate", "mezzo.numerics.", "mezzo.tuning."))}
