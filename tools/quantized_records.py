"""Writes tests/project/quantized_records/TARGET.tsv: what installed runtimes say of operators on quantized operands.

python tools/quantized_records.py onnxruntime-cpu openvino-cpu

Every form of the probe in every way in which its result may go on, each on a line: the form, the way, and "runs" or the
runtime's reason. The tests hold the targets' rows against these files.
"""

import sys
from pathlib import Path

from probe.ask_quantized import ways, write
from probe.children import Child
from probe.quantized_cases import quantized_forms
from probe.runtimes import RUNTIMES, package_of

from mezzo.common.machine import find_machine
from mezzo.common.packages import find_version
from mezzo.plugins import discovery

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "project" / "quantized_records"


def write_record(target: str) -> None:
    """Ask a target's runtime about every form, and keep what it says."""
    attempt, package = RUNTIMES[target].run_integers, package_of(discovery.target(target))
    assert attempt is not None, "the runtime tells what it runs on integers"
    features = ", ".join(find_machine().features or ())
    lines = [f"# {package} {find_version(package)} with {features}"]
    with Child(attempt) as child:
        for form in quantized_forms():
            for way in ways(form):
                built = write(form, way)
                reason = child.ask(built.model.SerializeToString(), built.feeds)
                lines.append(f"{form}\t{way.value}\t{reason or 'runs'}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{target}.tsv").write_text("\n".join(dict.fromkeys(lines)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write_record(name)
