"""Emulation in true precision, of a typed model or an FP32 model under a plan.

Limits of the emulation: docs/explanation/emulation.md.
"""

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from mezzo.common.errors import InputError
from mezzo.contracts.frontend import lab_of
from mezzo.contracts.plans import Plan
from mezzo.conversion.fusing import fused_as
from mezzo.conversion.replay import read_for
from mezzo.conversion.results import open_source
from mezzo.conversion.rounded_weights import with_rounded_weights
from mezzo.evaluate.answers import read_accumulation
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.precision_line import Precision
from mezzo.io.planfile import load_plan
from mezzo.ir.graph import Graph
from mezzo.planner.choices.choosing import weights_in_blocks
from mezzo.planner.choices.stored_floats import floats_stored

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
    """Compute a model's outputs by name, rounded after every operator as its types require.

    Args:
        plan: run the FP32 model under this plan; lines are matched by node name, nodes without a
            line are unchanged. A line may ask for f32, f16, bf16, f8e4m3fn or f8e5m2, whatever the
            ONNX schema allows.
        accumulate: "fp16" or "bf16": MatMul, Gemm and Conv in low precision round their
            accumulators to it after every `tile` products, except nodes that the plan accumulates
            in f32.

    Raises:
        InputError: the model, the plan, a feed or an option is at fault.
        ContractError: no engine runs the model, or its opset has no casts to a format and cannot be
            raised.
    """
    accumulation = read_accumulation(accumulate, tile, "emulated")
    opened = open_source(model, trust_external_paths, None)
    if plan is None:
        return dict(lab_of(opened).emulated(accumulation)(feeds))
    loaded_plan = plan if isinstance(plan, Plan) else load_plan(plan)
    opened = with_rounded_weights(fused_as(opened, loaded_plan), loaded_plan)
    lab = lab_of(opened)
    reading = read_for(opened, loaded_plan)
    precisions = _bind(reading.graph, loaded_plan, lab.formats)
    low = {number: precision.compute for number, precision in precisions.items()}
    emulator = lab.emulator(
        reading,
        sorted({dtype for dtype in low.values() if dtype is not HIGH}, key=str),
        accumulation,
        sums_high={
            number for number, precision in precisions.items() if precision.accumulate is HIGH
        },
        limits=_limits(reading.graph, loaded_plan),
        in_blocks=weights_in_blocks(
            reading.graph, dict(loaded_plan.in_blocks), loaded_plan.line.dtypes
        ),
        stored_floats=floats_stored(reading.graph, dict(loaded_plan.stored_floats)),
    )
    return dict(emulator.run(feeds, low))


def _bind(graph: Graph, plan: Plan, formats: Collection[DType]) -> dict[int, Precision]:
    """Precisions by node id. Raises InputError: no such node, or a format without emulation."""
    precisions = {}
    for line in plan.nodes:
        number = graph.by_name.get(line.name)
        if number is None:
            raise InputError(
                f"the plan has a line for {line.name!r}, which the model has not; take the line out"
            )
        unsupported = [
            dtype for dtype in line.precision if dtype is not HIGH and dtype not in formats
        ]
        if unsupported:
            supported = ", ".join(sorted(map(str, {*formats, HIGH})))
            raise InputError(
                f"node {line.name!r}: the plan asks for {unsupported[0]}; an emulation knows"
                f" {supported}"
            )
        precisions[number] = line.precision
    return precisions


def _limits(graph: Graph, plan: Plan) -> dict[int, float]:
    """Limits of clamped constants, by value id."""
    limits = {}
    for name, limit in plan.limits:
        number = graph.by_name.get(name)
        if number is None or not graph.nodes[number].outputs:
            raise InputError(
                f"the plan bounds {name!r}, which the model has not; take the bound out"
            )
        limits[graph.nodes[number].outputs[0]] = limit
    return {value: limit for value, limit in limits.items() if value is not None}
