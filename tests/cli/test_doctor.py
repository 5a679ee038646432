"""mezzo doctor: what it tells, and that nothing installed can break it."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mezzo.common import packages
from mezzo.common.diagnosis import State
from mezzo.common.machine import find_gpus, find_memory
from mezzo.onnx.doctor import children, examine
from mezzo.plugins.discovery import built_in_targets

BROKEN = "raise ImportError('libsomething.so.7: no such file')"
CRASHES = "import os; print('{not json', flush=True); os.abort()"
HANGS = "import time; time.sleep(600)"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a module of our own before the installed one, and say that a version of it is installed."""

    def put(name: str, version: str, code: str) -> None:
        (tmp_path / f"{name}.py").write_text(code)
        about = tmp_path / f"{name}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    known = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *([known] if known else [])]))
    monkeypatch.syspath_prepend(str(tmp_path))
    return put


def call(*words: str) -> subprocess.CompletedProcess[str]:
    """Run mezzo in a process of its own, which finds what `install` put before the rest."""
    command = [sys.executable, "-m", "mezzo", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_sound_installation_is_0_and_says_what_can_be_checked(run):
    ran = run("doctor")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("mezzo ") and ran.out.rstrip().endswith("the installation works")
    for line in ("dependencies", "what can be checked here", "which format on this machine"):
        assert f"\n{line}\n" in ran.out
    assert "\nyes  emulate FP16 and BF16 " in ran.out and "\nyes  emulate FP8 (E4M3FN, E5M2) " in ran.out
    assert "\nyes  run and time onnxruntime-cpu " in ran.out
    assert "\x1b" not in ran.out


def test_broken_and_crashing_packages_are_named_with_what_to_do(install):
    install("onnx", "1.20.0", BROKEN)
    install("openvino", "2099.1", CRASHES)
    install("tensorrt", "11.0", "")
    ran = call("doctor", "--json")
    found = json.loads(ran.stdout)
    assert (ran.returncode, ran.stderr) == (1, "") and found["format"] == "mezzo-doctor/1"
    by_name = {package["name"]: package for package in (*found["base"], *found["optional"])}
    assert by_name["onnx"]["state"] == by_name["openvino"]["state"] == "broken"
    assert by_name["onnx"]["reason"] == "libsomething.so.7: no such file"
    assert "SIGABRT" in by_name["openvino"]["reason"] or os.name == "nt"
    assert by_name["openvino"]["remedy"] == 'pip install --force-reinstall --no-deps "openvino>=2025"'
    assert by_name["numpy"]["state"] == by_name["tensorrt"]["state"] == "works"
    fault = next(fault for fault in found["faults"] if fault["fault"].startswith("onnx "))
    assert fault["remedy"].startswith('pip install --force-reinstall --no-deps "onnx')
    can = {check["name"]: check["can"] for check in found["checks"]}
    assert not can["emulate FP16 and BF16"] and not can["run and time openvino-cpu"]
    assert "tensorrt 11.0 is here" in next(c["remedy"] for c in found["checks"] if c["name"].endswith("tensorrt"))


def test_report_is_there_without_numpy(install):
    install("numpy", "2.4.0", BROKEN)
    ran = call("doctor")
    assert (ran.returncode, ran.stderr) == (1, "")
    # Whatever else fails stands on it: one thing to repair, told last.
    about = ran.stdout.partition("\nthe installation is broken\n")[2].splitlines()
    assert len(about) == 2 and about[0] == "  numpy libsomething.so.7: no such file"
    assert about[1].startswith('    pip install --force-reinstall --no-deps "numpy')


def test_other_commands_point_to_the_doctor(install):
    install("onnx", "1.20.0", "raise ImportError('no such file', name='onnx')")
    ran = call("show", "model.onnx")
    message = "mezzo: onnx cannot be imported (no such file); 'mezzo doctor' says what to do\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", message)


def test_command_line_without_its_libraries_says_so(install, tmp_path):
    install("typer", "0.1", "raise ModuleNotFoundError('gone', name='typer')")
    ran = call("--version")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("mezzo: typer is not installed; pip install ") and ran.stderr.count("\n") == 1


def test_package_that_hangs_is_an_answer(install):
    install("sleeper", "1.0", HANGS)
    question = ("module", "sleeper")
    found = children.ask([question], lambda *state: None, patience_s=1.0)
    assert found[question].error == "no answer within 1 s"


def test_install_command_is_that_of_the_extra_and_not_of_another_that_pins(monkeypatch):
    lines = ["onnx<2,>=1.20", "torch==2.13.0; extra == 'bench'", "torch<2.14,>=2.11; extra == 'torch'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    assert packages.spell_install("torch") == 'pip install "torch<2.14,>=2.11"'
    assert packages.spell_install("onnx") == 'pip install "onnx<2,>=1.20"'
    assert packages.find_requirement("openvino") is None


def test_what_is_missing_comes_with_its_command(monkeypatch):
    monkeypatch.setattr(packages, "find_installed", lambda name: ())
    answers: dict[children.Question, children.Answer] = {}
    openvino = examine._find(packages.PACKAGES["openvino"], answers, is_base=False)
    assert (openvino.state, openvino.remedy) == (State.MISSING, 'pip install "openvino>=2025"')
    typer = examine._find(packages.PACKAGES["typer"], answers, is_base=True)
    assert typer.state is State.MISSING
    assert typer.remedy is not None and typer.remedy.startswith('pip install "typer')
    (check,) = examine._check_targets(
        {name: built_in_targets()[name] for name in ("openvino-cpu", "any")}, answers, [openvino]
    )
    assert (check.can, check.reason) == (False, "openvino is not installed")
    assert check.remedy == 'pip install "openvino>=2025"'


def test_version_that_mezzo_does_not_support_is_a_fault(monkeypatch):
    monkeypatch.setattr(packages, "find_installed", lambda name: (("onnx", "1.2.3"),))
    found = examine._find(packages.PACKAGES["onnx"], {}, is_base=True)
    assert found.state is State.UNSUPPORTED
    assert found.reason is not None and found.reason.startswith("version 1.2.3; mezzo needs onnx")


def test_two_distributions_of_one_module_are_told(monkeypatch):
    both = (("onnxruntime", "1.31.1"), ("onnxruntime-gpu", "1.31.1"))
    monkeypatch.setattr(packages, "find_installed", lambda name: both)
    found = examine._find(packages.PACKAGES["onnxruntime"], {}, is_base=True)
    assert found.reason == "onnxruntime and onnxruntime-gpu share one folder: what was installed last is at work"


def test_emulation_that_fails_is_a_fault_and_that_of_fp8_alone_is_not(monkeypatch):
    half, fp8 = examine._check_roundings({("rounding", "half"): children.Answer(error="casts are gone")})
    assert not half.can and half.reason == "casts are gone" and not fp8.can
    assert [fault for fault, _ in examine._faults((), half)] == ["cannot emulate FP16 and BF16: casts are gone"]
    half, fp8 = examine._check_roundings({("rounding", "half"): children.Answer()})
    assert half.can and not fp8.can and not list(examine._faults((), half))


@pytest.mark.parametrize(
    ("version", "requirement", "expected"),
    [
        ("1.20.0", "onnx<2,>=1.20", True),
        ("1.19.9", "onnx<2,>=1.20", False),
        ("2.0.0", "onnx<2,>=1.20", False),
        ("2.0.0rc1", "onnx<2,>=1.20", False),
        ("1.22.0+cu13", "onnx>=1.22", True),
        ("5.0", "onnx", True),
    ],
)
def test_bounds_of_a_requirement(version, requirement, expected):
    assert packages.is_within(version, requirement) is expected


def test_memory_is_the_container_s_where_that_is_less(tmp_path: Path):
    meminfo, limit, absent = tmp_path / "meminfo", tmp_path / "memory.max", tmp_path / "absent"
    meminfo.write_text("MemTotal: 8000 kB\nMemFree: 1 kB\nMemAvailable:    6000 kB\n")
    assert find_memory(meminfo, tmp_path, absent) == (8000 * 1024, 6000 * 1024)
    limit.write_text("max\n")
    assert find_memory(meminfo, tmp_path, absent) == (8000 * 1024, 6000 * 1024)
    limit.write_text("2048000\n")
    (tmp_path / "memory.current").write_text("48000\n")
    assert find_memory(meminfo, tmp_path, absent) == (2048000, 2000000)
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 40000\n")  # pages of files that may go at any time
    assert find_memory(meminfo, tmp_path, absent) == (2048000, 2040000)
    limit.unlink()
    (tmp_path / "memory").mkdir()  # as older systems tell it
    (tmp_path / "memory/memory.limit_in_bytes").write_text("1048000\n")
    (tmp_path / "memory/memory.usage_in_bytes").write_text("48000\n")
    (tmp_path / "memory/memory.stat").write_text("total_inactive_file 8000\n")
    assert find_memory(meminfo, tmp_path, absent) == (1048000, 1008000)
    assert find_memory(absent, tmp_path, absent) is None


@pytest.mark.parametrize(("row", "root"), [("0::/user.slice/job", ""), ("7:memory:/user.slice/job", "memory")])
def test_memory_is_that_of_the_least_control_group_on_the_way(tmp_path: Path, row: str, root: str):
    meminfo, membership = tmp_path / "meminfo", tmp_path / "cgroup"
    meminfo.write_text("MemTotal: 8000 kB\nMemAvailable: 6000 kB\n")
    membership.write_text(f"{row}\n1:cpu:/elsewhere\nwrong\n")
    limit, usage = ("memory.limit_in_bytes", "memory.usage_in_bytes") if root else ("memory.max", "memory.current")
    outer = tmp_path / root / "user.slice"
    (outer / "job").mkdir(parents=True)
    for folder, most, used in ((outer, "3000000", "2000000"), (outer / "job", "5000000", "1000")):
        (folder / limit).write_text(f"{most}\n")
        (folder / usage).write_text(f"{used}\n")
    assert find_memory(meminfo, tmp_path, membership) == (3000000, 1000000)
    (outer / limit).write_text("max\n")
    assert find_memory(meminfo, tmp_path, membership) == (5000000, 4999000)


def test_versions_name_what_mezzo_stands_on_and_the_runtimes_here(run):
    ran = run("--version")
    names = [line.split()[0] for line in ran.out.splitlines()]
    assert (ran.code, ran.err, names[0]) == (0, "", "mezzo")
    assert names[1] in ("CPython", "PyPy")
    wanted = {package.name for package in packages.BASE}
    wanted |= {package.name for package in packages.OPTIONAL if packages.find_version(package.name) is not None}
    assert wanted <= set(names)


@pytest.mark.skipif(os.name == "nt", reason="the stand-in for nvidia-smi is a shell script")
def test_gpus_are_told_as_the_driver_s_tool_tells_them(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpus() == ()
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA L4, 23034 MiB, 8.9'\n")
    tool.chmod(0o755)
    assert find_gpus() == ("NVIDIA L4, 23034 MiB, 8.9",)
    tool.write_text("#!/bin/sh\necho 'no driver'; exit 9\n")
    assert find_gpus() == ()
