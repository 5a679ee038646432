"""What a forge reads beside the sources agrees with them: the citation, the security page, workflows, hooks."""

import ast
import importlib
import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import mezzo

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "pages"))
from page_blocks import ROOT
from page_names import missing_in_command, missing_in_quotes

CITATION = ROOT / "CITATION.cff"
SECURITY = ROOT / "SECURITY.md"
HOOKS = ROOT / ".pre-commit-config.yaml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DENIED = frozenset(
    {"pickle", "shelve", "marshal", "socket", "urllib", "http", "requests", "eval()", "exec()", "shell="}
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def found(pattern: str, path: Path) -> list[str]:
    return re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("path", [CITATION, HOOKS, *WORKFLOWS], ids=lambda path: path.name)
@pytest.mark.skipif(importlib.util.find_spec("yaml") is None, reason="needs pyyaml, which the extra 'test' brings")
def test_file_is_yaml_with_what_belongs_at_its_top(path):
    keys = {CITATION: {"cff-version", "message", "title", "authors"}, HOOKS: {"repos"}}
    document = importlib.import_module("yaml").safe_load(path.read_text(encoding="utf-8"))
    assert set(document) >= keys.get(path, {"name", "permissions", "jobs"})


def test_citation_is_of_this_version_and_licence():
    assert found(r"^version: (.+)$", CITATION) == [mezzo.__version__] == [PROJECT["version"]]
    assert PROJECT["license"].startswith(found(r"^license: (.+)$", CITATION)[0])


def test_security_page_mends_this_version_and_names_what_is_there():
    assert found(r"^\| (\S+) \| yes \|$", SECURITY) == [mezzo.__version__.rpartition(".")[0]]
    assert missing_in_quotes(SECURITY.read_text(encoding="utf-8")) == []


def test_package_has_what_the_security_page_denies_nowhere():
    """No evaluated text, no pickle, no shell, no connection."""
    faults = []
    suspects = re.compile(rf"\b({'|'.join(name.strip('()=') for name in DENIED)})\b")
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if suspects.search(text) else ():
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                named = [node.module or ""]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                named = [f"{node.func.id}()"]
            else:
                named = [f"{node.arg}=" for node in getattr(node, "keywords", ()) if node.arg == "shell"]
            faults += [f"{path.name}: {name}" for name in named if name.partition(".")[0] in DENIED]
    assert faults == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_runs_targets_that_there_are(path):
    commands = found(r"^ +- run: ([^|>\n]+)$", path)
    assert any(command.startswith("make test") for command in commands)
    assert [fault for command in commands for fault in missing_in_command(command)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_pins_its_actions_and_may_only_read(path):
    uses = found(r"uses: (.+)$", path)
    assert uses and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v[\d.]+", action) for action in uses)
    assert found(r"^permissions:\n((?:  .+\n)+)", path) == ["  contents: read\n"]
    assert found(r"^ +permissions:", path) == []


def test_workflow_tests_every_python_that_the_package_names():
    named = {line.rpartition(":: ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)}
    tested = {version for path in WORKFLOWS for version in found(r'"(3\.\d+)"', path)}
    assert tested == named and PROJECT["requires-python"] == f">={min(named, key=lambda name: int(name[2:]))}"


def test_hooks_run_a_ruff_that_the_extra_allows():
    wanted = next(need for need in map(Requirement, PROJECT["optional-dependencies"]["test"]) if need.name == "ruff")
    (version,) = found(r"ruff-pre-commit\n +rev: v(\S+)$", HOOKS)
    assert wanted.specifier.contains(version)


def test_hooks_run_targets_that_there_are():
    commands = found(r"^ +entry: (.+)$", HOOKS)
    assert commands and [fault for command in commands for fault in missing_in_command(command)] == []
