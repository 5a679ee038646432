"""Diagnosis of an installation: package versions, hardware, and whether each runtime works."""

import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from mezzo.common import packages
from mezzo.common.diagnosis import Check, Diagnosis, FoundPackage, State
from mezzo.common.machine import count_cores, find_gpus, find_machine, find_memory
from mezzo.common.packages import Package
from mezzo.onnx.doctor.children import Answer, Question, ask
from mezzo.plugins.discovery import runnable_targets
from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Target

_RUNNING_HERE = frozenset({"typer", "rich"})  # imported already, to print the report
_ROUNDINGS = (("half", "emulate FP16 and BF16"), ("fp8", "emulate FP8 (E4M3FN, E5M2)"))
_EMULATED = "compare, ranges, sensitivity, tune, convert --data"


def examine(targets: Mapping[str, Target], progress: Callable[[str, int, int], None]) -> Diagnosis:
    """Examine the packages, this machine, and the runtime of each target. Takes a few seconds."""
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
        for name, target in runnable_targets().items():
            if target.runtime is not None and target.runtime.package == package.name:
                yield "target", name
    if packages.find_version("onnxruntime") is not None:
        yield from (("rounding", formats) for formats, _ in _ROUNDINGS)


def _find(package: Package, answers: Mapping[Question, Answer], *, is_base: bool) -> FoundPackage:
    installed = packages.find_installed(package.name)
    requirement = packages.find_requirement(package.name) if is_base else None
    command = packages.spell_install(package.name)
    absent = FoundPackage(
        name=package.name,
        purpose=package.purpose,
        state=State.MISSING,
        version=None,
        wanted=requirement,
        details=(),
        reason="is not installed",
        remedy=command,
    )
    if not installed:
        return absent
    name, version = installed[0]
    answer = answers.get(("module", package.module), Answer())
    state, reason, remedy = State.WORKS, answer.error, None
    if answer.error is not None:
        state, remedy = State.BROKEN, packages.spell_reinstall(package.name)
    elif requirement is not None and not packages.is_within(version, requirement):
        state, reason, remedy = (
            State.UNSUPPORTED,
            f"version {version}; mezzo needs {requirement}",
            command,
        )
    if len(installed) > 1:
        both = " and ".join(name for name, _ in installed)
        reason = f"{both} share one folder: what was installed last is at work"
        remedy = (
            f"pip uninstall {' '.join(name for name, _ in installed)}, then install the one you"
            " want"
        )
    shown_version = version if name == package.name else f"{version} ({name})"
    return replace(
        absent,
        state=state,
        version=shown_version,
        details=answer.details,
        reason=reason,
        remedy=remedy,
    )


def _check_roundings(answers: Mapping[Question, Answer]) -> Iterator[Check]:
    for formats, name in _ROUNDINGS:
        answer = answers.get(("rounding", formats), Answer(error="onnxruntime is not installed"))
        remedy = None if answer.error is None else packages.spell_install("onnxruntime")
        yield Check(
            name=name,
            can=answer.error is None,
            purpose=_EMULATED,
            reason=answer.error,
            remedy=remedy,
        )


def _check_targets(
    targets: Mapping[str, Target],
    answers: Mapping[Question, Answer],
    examined: Sequence[FoundPackage],
) -> Iterator[Check]:
    by_name = {package.name: package for package in examined}
    runs_here = runnable_targets()
    for name in sorted(targets, key=lambda name: (name not in runs_here, name)):
        runtime = targets[name].runtime
        if runtime is None:
            continue
        if name not in runs_here:
            yield Check(
                name=f"run and time {name}",
                can=False,
                purpose="its table is all mezzo has",
                reason="mezzo cannot time this target here",
                remedy=_find_sign(runtime, by_name) or runtime.elsewhere,
            )
            continue
        package, answer = by_name[runtime.package], answers.get(("target", name), Answer())
        reason = package.reason if package.state in (State.MISSING, State.BROKEN) else answer.error
        check = Check(name=f"run and time {name}", can=True, purpose="convert, bench, --measure")
        if reason is not None:
            check = replace(
                check,
                can=False,
                reason=f"{package.name} {reason}" if package.state is State.MISSING else reason,
                remedy=package.remedy or packages.spell_install(package.name),
            )
        yield check


def _find_sign(runtime: Runtime, examined: Mapping[str, FoundPackage]) -> str | None:
    """Message if a runtime that mezzo does not run itself is installed; None otherwise."""
    package = examined.get(runtime.module or "")
    if package is None or package.state is not State.WORKS:
        return None
    if runtime.provider is not None and runtime.provider not in package.details:
        return None
    return (
        f"{runtime.provider or f'{package.name} {package.version}'} is here; load the result"
        " with it"
    )


def _faults(base: Sequence[FoundPackage], emulation: Check) -> Iterator[tuple[str, str]]:
    """Faults with their remedies. A package that fails only because one that it needs does is not
    listed.
    """
    failing = {package.name for package in base if package.state is not State.WORKS}
    for package in base:
        if package.name in failing and not failing.intersection(
            packages.PACKAGES[package.name].needs
        ):
            yield (
                f"{package.name} {package.reason}",
                package.remedy or packages.spell_install(package.name),
            )
    if not emulation.can and not failing:
        yield f"cannot {emulation.name}: {emulation.reason}", packages.spell_install("onnxruntime")
