"""Asks installed runtimes what they run in low precision, and shows where the targets' tables differ.

    python tools/probe_runtimes.py onnxruntime-cpu openvino-cpu
    python tools/probe_runtimes.py onnxruntime-cpu --op 'Scatter*' --json

One small model per operator and type, converted so that it runs low, each in a child process. Ends with 0 where the
tables agree, 1 where one is out of date, 2 where a runtime is not installed or nothing can be asked of it.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase

from probe.ask import Model, ask
from probe.ask_quantized import with_quantized
from probe.cases import Question, onnx_questions
from probe.contrib_cases import contrib_questions
from probe.report import describe_probe, report_probe
from probe.runtimes import RUNTIMES, package_of

from mezzo.api import convert as pipeline
from mezzo.cli.console import output_layout, print_report
from mezzo.cli.progress import Patience
from mezzo.common.errors import InputError, MezzoError
from mezzo.common.machine import find_machine
from mezzo.common.packages import find_version, missing
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.plugins import discovery

_OUT_OF_DATE, _FAULT = 1, 2
_ABOUT_TYPES = frozenset({"Cast", "CastLike"})  # their own types are what they are about


def probe(name: str, op: str, *, as_json: bool) -> bool:
    """Ask the runtime of a target, print what it says, and return whether the target's table agrees."""
    table = discovery.target(name)
    if table.name not in RUNTIMES:
        raise InputError(f"target {table.name!r} has no runtime to ask; choose one of {', '.join(sorted(RUNTIMES))}")
    attempts, package = RUNTIMES[table.name], package_of(table)
    version = find_version(package)
    if version is None:
        raise missing(package, f"target {table.name!r}")
    dtypes: tuple[DType, ...] = tuple(LOW_DTYPES.values())
    machine = find_machine()
    expected = table if machine.features is None else table.on_machine(machine.features)
    with Patience() as progress:
        progress("making models", 0, 0)
        questions = _choose(op, table.newest.get("onnx"))
        findings = ask(expected, attempts.run, questions, dtypes, _lower, progress)
        if attempts.run_integers is not None:
            findings = with_quantized(findings, expected, attempts.run_integers, op, progress)
            dtypes = (*dtypes, DType.QUANTIZED8)
    asked = f"{package} {version}"
    if not findings.answers and len(findings.unasked) > 1:
        raise InputError(
            f"{asked} runs none of {len(findings.unasked)} operators here, not even in f32, so nothing can be asked of "
            f"it: {findings.unasked[0][1]}"
        )
    if as_json:
        print(json.dumps(describe_probe(table.name, asked, machine, dtypes, findings), indent=2))
    else:
        layout = output_layout()
        print_report(report_probe(layout, table, asked, machine, dtypes, findings), layout)
    return not findings.disagreements


def _choose(pattern: str, max_opset: int | None) -> Sequence[Question]:
    """The questions about operators that match. Raises InputError: there are none."""
    found = [
        question
        for question in (*onnx_questions(max_opset, pattern), *contrib_questions())
        if fnmatchcase(question.op.lower(), pattern.lower()) and question.op not in _ABOUT_TYPES
    ]
    if not found:
        raise InputError(f"no operator to ask about matches {pattern!r}; 'mezzo ops' lists every operator")
    return found


def _lower(model: Model, op: str, dtype: DType) -> Model | None:
    """Convert a model so that its node of `op` runs in `dtype`; None where mezzo would not run it there."""
    to = next(word for word, low in LOW_DTYPES.items() if low is dtype)
    try:
        converted = pipeline.convert(
            model, to=to, policy="aggressive", target="any", include=[f"op:{op}"], opset="keep"
        )
    except MezzoError:
        return None
    is_low = any(node.op == op and node.precision.compute is dtype for node in converted.plan.nodes)
    return converted.model if is_low else None


def main(words: Sequence[str]) -> int:
    """Probe the runtimes of the targets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", metavar="TARGET")
    parser.add_argument("--op", default="*", metavar="PATTERN", help="operators by a glob; case is ignored")
    parser.add_argument("--json", action="store_true", dest="as_json")
    arguments = parser.parse_args(words)
    try:
        agree = [probe(name, arguments.op, as_json=arguments.as_json) for name in arguments.targets]
    except MezzoError as error:
        print(f"probe_runtimes: {error}", file=sys.stderr)
        return _FAULT
    return 0 if all(agree) else _OUT_OF_DATE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
