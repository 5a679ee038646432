"""What is in the wheel and the sdist, and what their metadata promises."""

import ast
import email
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator

import pytest
from building import LEFT_BEHIND, ROOT, Built
from package_graph import imports_below

from mezzo.common import packages

SOURCES = ROOT / "src" / "mezzo"
# Folders that are loaded only where what an extra brings is at hand; test_architecture.py holds that.
_OF_AN_EXTRA = ("aten", "torch")
VENDOR = SOURCES / "report" / "html" / "vendor"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def names(built: Built) -> list[str]:
    """The files inside the wheel."""
    with zipfile.ZipFile(built.wheel) as archive:
        return archive.namelist()


def test_wheel_holds_every_file_of_the_package_and_nothing_else(built, names):
    package = {name for name in names if ".dist-info/" not in name}
    sources = built.sources / "src"
    files = (path for path in (sources / "mezzo").rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    assert package == {path.relative_to(sources).as_posix() for path in files}
    assert {"mezzo/py.typed", "mezzo/report/records/account.schema.json"} <= package


def test_sdist_builds_the_same_wheel(built):
    assert built.wheel.name == built.direct.name
    with zipfile.ZipFile(built.wheel) as ours, zipfile.ZipFile(built.direct) as theirs:
        assert {name: ours.read(name) for name in ours.namelist()} == {
            name: theirs.read(name) for name in theirs.namelist()
        }


def test_sdist_holds_what_building_and_testing_need_and_no_results(built):
    with tarfile.open(built.sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    folders = {name.partition("/")[0] for name in files}
    assert {"src", "tests", "examples", "docs", "LICENSE", "README.md", "pyproject.toml", "Makefile"} <= folders
    assert not folders & {"out", ".ci", ".git", ".venv", "dist"} and not files.intersection(LEFT_BEHIND)


def test_metadata_is_complete(built, names):
    with zipfile.ZipFile(built.wheel) as archive:
        name = next(name for name in names if name.endswith(".dist-info/METADATA"))
        found = email.message_from_bytes(archive.read(name))
    assert found["License-Expression"] == "Apache-2.0 AND MIT"
    assert found["Description-Content-Type"] == "text/markdown" and "# mezzo" in found.get_payload()
    assert found["Requires-Python"] == ">=3.11" and found["Keywords"] and found["Summary"]
    for file in found.get_all("License-File"):
        assert any(name.endswith(f".dist-info/licenses/{file}") for name in names), file


def test_licence_text_names_every_file_that_others_wrote():
    text = (VENDOR / "LICENSES").read_text(encoding="utf-8")
    carried = {path.name for path in VENDOR.iterdir()} - {"LICENSES"}
    assert carried
    assert {name for name in carried if name not in text} == set()


def test_everything_imported_is_declared():
    """A wheel in an empty environment has only what its metadata asks for; what an extra brings is asked for late."""
    known = {package.module.partition(".")[0]: package.name for package in packages.PACKAGES.values()}
    declared = {_name_of(line) for line in PROJECT["dependencies"]}
    imported: dict[str, str] = {}
    at_once: set[str] = set()
    for path in SOURCES.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported |= {module.partition(".")[0]: path.name for module in _modules(imports_below(tree))}
        if not any(path.is_relative_to(SOURCES / folder) for folder in _OF_AN_EXTRA):
            # Not inside a function, and not for types alone.
            at_once |= {module.partition(".")[0] for module in _modules(tree.body)}
    foreign = imported.keys() - sys.stdlib_module_names - {"mezzo"}
    late = {name for name in foreign - at_once if (known.get(name) or "") in PROJECT["optional-dependencies"]}
    strangers = {f"{module} in {imported[module]}" for module in foreign - late if known.get(module) not in declared}
    assert not strangers, f"{sorted(strangers)}: declare it in pyproject.toml and in mezzo/packages.py"


def _modules(statements: Iterable[ast.stmt]) -> Iterator[str]:
    for node in statements:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_table_of_packages_agrees_with_the_metadata():
    assert {package.name for package in packages.BASE} == {_name_of(line) for line in PROJECT["dependencies"]}
    extras = PROJECT["optional-dependencies"]
    for package in packages.OPTIONAL:
        if package.extra is not None:
            assert package.name in {_name_of(line) for line in extras[package.extra]}


def test_runtimes_of_targets_are_packages_of_the_table_or_variants_of_them():
    from mezzo.plugins.discovery import built_in_targets

    known = {*packages.PACKAGES} | {variant for package in packages.PACKAGES.values() for variant in package.variants}
    runtimes = {name: target.runtime for name, target in built_in_targets().items() if target.runtime is not None}
    driven = {name: runtime.package for name, runtime in runtimes.items() if runtime.driver is not None}
    assert driven == {
        "onnxruntime-cpu": "onnxruntime",
        "onnxruntime-cuda": "onnxruntime-gpu",
        "onnxruntime-web": "onnxruntime-web",
        "openvino-cpu": "openvino",
    }
    assert {*driven.values()} <= known | {"onnxruntime-web"}, "a package of npm is none of pip"
    assert {name for name, runtime in runtimes.items() if runtime.driver and not runtime.can_time} == {
        "onnxruntime-web"
    }
    assert {name for name, runtime in runtimes.items() if runtime.profiles_nodes} == {"onnxruntime-cpu", "openvino-cpu"}


def test_version_is_written_once():
    code = "import importlib.metadata, mezzo; print(mezzo.__version__)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == PROJECT["version"]


def _name_of(requirement: str) -> str:
    return requirement.partition("<")[0].partition(">")[0].partition("=")[0].partition("[")[0].strip()
