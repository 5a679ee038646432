"""The site builds without a warning, has no dead link and loads nothing; generated pages and pictures are as made."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
_GENERATOR = ("sphinx", "myst_parser", "furo", "sphinx_copybutton")


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("tool", ["answers_page", "api_page", "tables_pages"])
def test_reference_page_is_up_to_date(tool):
    ran = run(TOOLS / f"{tool}.py", "--check")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("picture", ["mincut", "peers"])
def test_picture_is_drawn_from_what_the_planner_decides_or_a_benchmark_measured(picture):
    ran = run(TOOLS / "figures" / f"{picture}.py", "--check")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in _GENERATOR),
    reason="needs what builds the site: pip install -e '.[docs]'",
)
def test_site_builds_without_a_warning_and_without_dead_links(tmp_path):
    ran = run(TOOLS / "build_site.py", tmp_path / "site")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (tmp_path / "site" / "index.html").exists()
    assert "Content-Security-Policy" in (tmp_path / "site" / "live" / "digits.html").read_text(encoding="utf-8")


def test_checker_finds_dead_links_and_what_is_loaded_from_elsewhere(tmp_path):
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("needs what builds the site: pip install -e '.[docs]'")
    sys.path.insert(0, str(TOOLS))
    try:
        from build_site import faults_of
    finally:
        sys.path.remove(str(TOOLS))
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">x</a><a href="b.html#gone">x</a><a href="c.html">x</a><a href="https://x.org">x</a>'
        '<script src="https://cdn.org/x.js"></script><a id="top" href="#top">x</a>'
    )
    (tmp_path / "b.html").write_text('<p id="here">x</p>')
    assert faults_of(tmp_path) == [
        "a.html: b.html#gone has no such anchor",
        "a.html: c.html leads nowhere",
        "a.html: loads https://cdn.org/x.js from elsewhere",
    ]
