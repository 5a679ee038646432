"""Examines an installation: its packages, this machine, and what can be checked here."""

import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from mezzo.common import packages
from mezzo.common.machine import count_cores, find_gpus, find_machine, find_memory
from mezzo.common.packages import Package
from mezzo.onnx.doctor.children import Answer, Question, ask
from mezzo.onnx.doctor.findings import Check, Diagnosis, Found, State

_RUNNING_HERE = frozenset({"typer", "rich"})  # whoever reads a report has them at work
_ROUNDINGS = (("half", "emulate FP16 and BF16"), ("fp8", "emulate FP8 (E4M3FN, E5M2)"))
_EMULATED = "compare, ranges, sensitivity, tune, convert --data"
# Where the results for a target run that mezzo cannot ask, and what to do there.
_ELSEWHERE: Mapping[str, str] = {
    "onnxruntime-cuda": "pip install onnxruntime-gpu, in an environment of its own, where the GPU is",
    "onnxruntime-web": "npm install onnxruntime-web, and load the result in a browser",
    "tensorrt": "pip install tensorrt, or trtexec --stronglyTyped --onnx=RESULT, where the GPU is",
}
_IN_GENERAL = "load the result where that runtime is"
# What tells that a runtime for them is here all the same: a package and one of its details, if it takes one.
_SIGNS: Mapping[str, tuple[str, str | None]] = {
    "onnxruntime-cuda": ("onnxruntime", "CUDAExecutionProvider"),
    "tensorrt": ("tensorrt", None),
}
_NO_RUNTIME = frozenset({"any", "onnx"})  # targets that are no runtime


def examine(targets: Sequence[str], progress: Callable[[str, int, int], None]) -> Diagnosis:
    """Examine everything; `targets` are the names of those that mezzo knows. Takes a few seconds."""
    questions = list(_make_questions())
    answers = ask(questions, progress)
    base = tuple(_find(package, answers, is_base=True) for package in packages.BASE)
    optional = tuple(_find(package, answers, is_base=False) for package in packages.OPTIONAL)
    checks = (*_check_roundings(answers), *_check_targets(targets, answers, (*base, *optional)))
    return Diagnosis(
        python=f"{platform.python_implementation()} {platform.python_version()}",
        executable=sys.executable,
        system=platform.platform(),
        machine=find_machine(),
        cores=count_cores(),
        memory_bytes=find_memory(),
        gpus=find_gpus(),
        base=base,
        optional=optional,
        checks=checks,
        faults=tuple(_faults(base, checks[0])),
    )


def _make_questions() -> Iterator[Question]:
    for package in (*packages.BASE, *packages.OPTIONAL):
        if package.name in _RUNNING_HERE or packages.find_version(package.name) is None:
            continue
        yield "module", package.module
        if package.target is not None:
            yield "target", package.target
    if packages.find_version("onnxruntime") is not None:
        yield from (("rounding", formats) for formats, _ in _ROUNDINGS)


def _find(package: Package, answers: Mapping[Question, Answer], *, is_base: bool) -> Found:
    installed = packages.find_installed(package.name)
    wanted = packages.find_requirement(package.name) if is_base else None
    command = packages.spell_install(package.name)
    if not installed:
        return Found(
            name=package.name,
            purpose=package.purpose,
            state=State.MISSING,
            version=None,
            wanted=wanted,
            details=(),
            reason="is not installed",
            remedy=command,
        )
    name, version = installed[0]
    answer = answers.get(("module", package.module), Answer())
    state, reason, remedy = State.WORKS, answer.error, None
    if answer.error is not None:
        state, remedy = State.BROKEN, packages.spell_reinstall(package.name)
    elif wanted is not None and not packages.is_within(version, wanted):
        state, reason, remedy = State.UNSUPPORTED, f"version {version}; mezzo needs {wanted}", command
    if len(installed) > 1:
        both = " and ".join(name for name, _ in installed)
        reason = f"{both} share one folder: what was installed last is at work"
        remedy = f"pip uninstall {' '.join(name for name, _ in installed)}, then install the one you want"
    spelled = version if name == package.name else f"{version} ({name})"
    return Found(
        name=package.name,
        purpose=package.purpose,
        state=state,
        version=spelled,
        wanted=wanted,
        details=answer.details,
        reason=reason,
        remedy=remedy,
    )


def _check_roundings(answers: Mapping[Question, Answer]) -> Iterator[Check]:
    for formats, name in _ROUNDINGS:
        answer = answers.get(("rounding", formats), Answer(error="onnxruntime is not installed"))
        remedy = None if answer.error is None else packages.spell_install("onnxruntime")
        yield Check(name=name, can=answer.error is None, purpose=_EMULATED, reason=answer.error, remedy=remedy)


def _check_targets(
    targets: Sequence[str], answers: Mapping[Question, Answer], found: Sequence[Found]
) -> Iterator[Check]:
    asked = {package.target: package.name for package in packages.PACKAGES.values() if package.target is not None}
    by_name = {package.name: package for package in found}
    for target in sorted(set(targets) - _NO_RUNTIME, key=lambda target: (target not in asked, target)):
        if target not in asked:
            remedy = _find_sign(target, by_name) or _ELSEWHERE.get(target, _IN_GENERAL)
            yield Check(
                name=f"probe and time {target}",
                can=False,
                purpose="its table is all mezzo has",
                reason="not by mezzo",
                remedy=remedy,
            )
            continue
        runtime, name, purpose = by_name[asked[target]], f"probe and time {target}", "probe, --measure"
        answer = answers.get(("target", target), Answer())
        reason = runtime.reason if runtime.state in (State.MISSING, State.BROKEN) else answer.error
        if reason is None:
            yield Check(name=name, can=True, purpose=purpose)
        else:
            reason = f"{runtime.name} {reason}" if runtime.state is State.MISSING else reason
            yield Check(
                name=name,
                can=False,
                purpose=purpose,
                reason=reason,
                remedy=runtime.remedy or packages.spell_install(runtime.name),
            )


def _find_sign(target: str, found: Mapping[str, Found]) -> str | None:
    """Says that a runtime that mezzo does not ask is here all the same."""
    name, wanted = _SIGNS.get(target, ("", None))
    if name not in found or found[name].state is not State.WORKS:
        return None
    if wanted is not None and wanted not in found[name].details:
        return None
    return f"{wanted or f'{name} {found[name].version}'} is here; load the result with it"


def _faults(base: Sequence[Found], emulation: Check) -> Iterator[tuple[str, str]]:
    """What to repair. What fails because a package under it does is no fault of its own."""
    failing = {found.name for found in base if found.state is not State.WORKS}
    for found in base:
        if found.name in failing and not failing.intersection(packages.PACKAGES[found.name].needs):
            yield f"{found.name} {found.reason}", found.remedy or packages.spell_install(found.name)
    if not emulation.can and not failing:
        yield f"cannot {emulation.name}: {emulation.reason}", packages.spell_install("onnxruntime")
