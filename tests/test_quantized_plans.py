"""Golden plans of the quantized level: where Quantize and Dequantize stand, one file per case, found by glob.

A case is comment lines that say what rule it guards, options as `key: value` (`to`, `target`, `policy`, `exclude`,
`include`), the model as ONNX text under `--- before`, the result as typed text under `--- after`, and one line per
operator, `node: level`, under `--- levels`. Every value is held in U8 with a scale of a half and zero at 0; those that
`negative: NAMES` names with zero at 128, those of `signed: NAMES` in S8; of those of `unseen: NAMES` nothing is known.
Where the format is FP8, all are held in that. Weights are held as their reader asks.

    python tests/test_quantized_plans.py --write [PATTERN]

writes expectations anew. Read what it wrote: the tests only hold it.
"""

import fnmatch
import sys
from dataclasses import replace
from pathlib import Path

import onnx
import onnx.parser
import pytest
from quantized_cases import open_model

import mezzo
from mezzo.contracts.options.request import Request
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.judged_model import judge_model
from mezzo.formats.dtypes import STORED_AS, DType
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.planner.choices.quantized_parameters import name_offset
from mezzo.planner.options import Options, read_options
from mezzo.planner.planner import Judged

_FOLDER = Path(__file__).parent / "quantized_plans"
_LISTS = frozenset({"exclude", "include", "negative", "signed", "unseen"})
_OF_VALUES = frozenset({"negative", "signed", "unseen"})


def read_case(path: Path) -> tuple[str, dict[str, str], str, dict[str, str]]:
    """What stands before the options, the options, the model, and what is expected by section."""
    head, *sections = path.read_text().split("--- ")
    lines = head.splitlines(keepends=True)
    options = dict(line.rstrip("\n").split(": ", 1) for line in lines if ": " in line and not line.startswith("#"))
    parts = dict(part.split("\n", 1) for part in sections)
    return head, options, parts.pop("before"), parts


def parameters_of(
    graph: Graph, judged: Judged, options: dict[str, str], format_: DType | None
) -> dict[str, Quantization]:
    """Parameters for every value of the main graph, as a case says."""
    assert judged.quantizing is not None
    negative, signed = (options.get(key, "").split() for key in ("negative", "signed"))
    assert format_ is not None
    found, plain = {}, STORED_AS[format_][0]
    for value in graph.values:
        dtype = DType.INT8 if value.name in signed else plain
        zero = 128 if value.name in negative else 0
        found[value.name] = Quantization(dtype=dtype, scales=(0.5,), zero_points=(zero,))
    for unit in judged.quantizing.units:
        counts = []
        for read in unit.reads:
            if read.operand.is_weight:
                shape = graph.shapes[read.value]
                axis = None if read.operand.axis is None else read.operand.axis % len(shape)
                count = 1 if axis is None else shape[axis] or 1
                counts.append((count, axis))
                found[graph.values[read.value].name] = _weights(read.operand.dtype, count, axis)
        if unit.offset is not None and counts:
            count, axis = counts[0]
            found[name_offset(graph, unit.offset.use)] = _weights(DType.INT32, count, None if axis is None else 0)
    return {name: how for name, how in found.items() if name not in options.get("unseen", "").split()}


def _weights(dtype: DType, count: int, axis: int | None) -> Quantization:
    return Quantization(dtype=dtype, scales=(0.25,) * count, zero_points=(0,) * count, axis=axis)


def plan_case(options: dict[str, str], before: str) -> dict[str, str]:
    """The typed text of the result, and the level of every operator."""
    words = {key: value.split() if key in _LISTS else value for key, value in options.items()}
    words = {key: value for key, value in words.items() if key not in _OF_VALUES}
    chosen: Options = read_options(Request(**words))  # type: ignore[arg-type]  # words of its fields
    model = open_model(onnx.parser.parse_model(before))
    reading, judged = judge_model(model, chosen)
    found = parameters_of(reading.graph, judged, options, chosen.planning.line.quantized_format)
    chosen = replace(chosen, planning=replace(chosen.planning, quantized=found))
    decided, result = convert_model(model, chosen, None)
    levels = [f"{node.name}: {node.precision.compute}\n" for node in decided.plan.nodes if node.kind == "op"]
    return {"after": mezzo.show(result), "levels": "".join(levels)}


@pytest.mark.parametrize("path", sorted(_FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_plan_is_as_its_case_says(path: Path) -> None:
    _, options, before, expected = read_case(path)
    answer = plan_case(options, before)
    assert expected and {name: answer[name] for name in expected} == expected


def write(pattern: str) -> None:
    """Write what cases expect anew."""
    for path in sorted(_FOLDER.glob("*.txt")):
        head, options, before, expected = read_case(path)
        if fnmatch.fnmatch(path.stem, pattern):
            answer = plan_case(options, before)
            wanted = expected or answer
            path.write_text(f"{head}--- before\n{before}" + "".join(f"--- {n}\n{answer[n]}" for n in wanted))


if __name__ == "__main__":
    write(sys.argv[2] if len(sys.argv) > 2 else "*")
