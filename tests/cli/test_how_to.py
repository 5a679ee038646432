"""The pages under docs/how-to say what is so: every mezzo command in them runs on the demo model."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mezzo

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
HELD_OUT = ROOT / "examples" / "digits" / "heldout.npz"


def commands_of(page: Path) -> list[str]:
    """Lines of the page's shell blocks that run mezzo, without what they are piped into."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [line.partition(" | ")[0] for block in blocks for line in block.splitlines() if line.startswith("mezzo ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_the_page_run(run, tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(DIGITS.read_bytes())
    mezzo.convert("model.onnx", "model.fp16.onnx")
    with np.load(HELD_OUT, allow_pickle=False) as file:
        held_out = {name: array[:64] for name, array in file.items()}
    np.savez("calib.npz", image=held_out["image"])
    np.savez("labelled.npz", **held_out)
    files = r"```(?:toml|python)\n(# (\S+\.(?:toml|py))\n.*?)```"
    for text, name in re.findall(files, page.read_text(encoding="utf-8"), re.DOTALL):
        Path(name).write_text(text)
    found = commands_of(page)
    assert found
    for line in found:
        ran = run(*shlex.split(line)[1:])
        assert (ran.code, ran.err) == (0, ""), line


@pytest.mark.parametrize("name", ["keep-a-layer-in-fp32", "plans", "policies", "tune"])
def test_python_of_the_page_runs(tmp_path, name):
    text = (ROOT / "docs" / "how-to" / f"{name}.md").read_text(encoding="utf-8")
    script = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    (tmp_path / "model.onnx").write_bytes(DIGITS.read_bytes())
    ran = subprocess.run(
        [sys.executable, "-c", f"import mezzo\n{script}"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link
