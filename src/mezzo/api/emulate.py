"""Runs a model in true precision: as it is typed, or an FP32 model under a plan of any mix of formats.

What is modelled and what is not: docs/explanation/emulation.md.
"""

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from mezzo.common.errors import InputError
from mezzo.contracts.plans import Plan
from mezzo.conversion.fusing import fused_as
from mezzo.conversion.replay import read_for
from mezzo.conversion.results import lab_of, open_source
from mezzo.evaluate.answers import read_accumulation
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.precision_line import Precision
from mezzo.io.planfile import load_plan
from mezzo.ir.graph import Graph

if TYPE_CHECKING:
    import onnx
    import onnx_ir


def emulate(
    model: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    feeds: Mapping[str, Any],
    *,
    plan: Plan | str | os.PathLike[str] | None = None,
    accumulate: str | None = None,
    tile: int | None = None,
    trust_external_paths: bool = False,
) -> dict[str, Any]:
    """Compute a model's outputs by name, rounded after every operator as hardware with its types rounds them.

    Args:
        plan: run the FP32 model under this plan; lines are found by node name, nodes without a line stay as they are.
            A line may ask for f32, f16, bf16, f8e4m3fn or f8e5m2, whatever the ONNX schema allows.
        accumulate: "fp16" or "bf16": MatMul, Gemm and Conv that run low round their sums to it after every `tile`
            products, but for nodes whose line says that they sum up in f32.

    Raises:
        InputError: the model, the plan, a feed or an option is at fault.
        ContractError: no engine runs the model, or its opset has no casts to a format and cannot be raised.
    """
    accumulation = read_accumulation(accumulate, tile, "emulated")
    opened = open_source(model, trust_external_paths, None)
    if plan is None:
        return dict(lab_of(opened).emulated(accumulation)(feeds))
    given = plan if isinstance(plan, Plan) else load_plan(plan)
    opened = fused_as(opened, given)
    lab = lab_of(opened)
    reading = read_for(opened, given)
    precisions = _bind(reading.graph, given, lab.formats)
    low = {number: precision.compute for number, precision in precisions.items()}
    emulator = lab.emulator(
        reading,
        sorted({dtype for dtype in low.values() if dtype is not HIGH}, key=str),
        accumulation,
        sums_high={number for number, precision in precisions.items() if precision.accumulate is HIGH},
        limits=_limits(reading.graph, given),
    )
    return dict(emulator.run(feeds, low))


def _bind(graph: Graph, plan: Plan, formats: Collection[DType]) -> dict[int, Precision]:
    """Precisions by node id. Raises InputError: a line is of no node, or asks for what nobody can emulate."""
    found = {}
    for line in plan.nodes:
        number = graph.by_name.get(line.name)
        if number is None:
            raise InputError(f"the plan has a line for {line.name!r}, which the model has not; take the line out")
        strange = [dtype for dtype in line.precision if dtype is not HIGH and dtype not in formats]
        if strange:
            known = ", ".join(sorted(map(str, {*formats, HIGH})))
            raise InputError(f"node {line.name!r}: the plan asks for {strange[0]}; an emulation knows {known}")
        found[number] = line.precision
    return found


def _limits(graph: Graph, plan: Plan) -> dict[int, float]:
    """Bounds of constants that the plan stores clamped, by value id."""
    limits = {}
    for name, limit in plan.limits:
        number = graph.by_name.get(name)
        if number is None or not graph.nodes[number].outputs:
            raise InputError(f"the plan bounds {name!r}, which the model has not; take the bound out")
        limits[graph.nodes[number].outputs[0]] = limit
    return {value: limit for value, limit in limits.items() if value is not None}
