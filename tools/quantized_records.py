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
from probe.runtimes import RUNTIMES, Runtime

from mezzo.common.machine import find_machine

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "project" / "quantized_records"


def write_record(runtime: Runtime) -> None:
    """Ask a runtime about every form, and keep what it says."""
    assert runtime.attempt_integers is not None, "the runtime tells what it runs on integers"
    features = ", ".join(find_machine().features or ())
    lines = [f"# {runtime.package} {runtime.version} with {features}"]
    with Child(runtime.attempt_integers) as child:
        for form in quantized_forms():
            for way in ways(form):
                built = write(form, way)
                reason = child.ask(built.model.SerializeToString(), built.feeds)
                lines.append(f"{form}\t{way.value}\t{reason or 'runs'}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{runtime.target}.tsv").write_text("\n".join(dict.fromkeys(lines)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write_record(RUNTIMES[name])
