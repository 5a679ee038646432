"""Export of a plan to another tool's settings: mezzo.export_plan."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from mezzo.common.errors import InputError
from mezzo.contracts.frontend import Progress
from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.new_plan import aliases_in
from mezzo.conversion.results import open_source
from mezzo.formats.dtypes import HIGH
from mezzo.formats.precision_line import floats_of, uniform
from mezzo.io.planfile import load_plan
from mezzo.planner.options import replay_options
from mezzo.plugins.discovery import exporter, op_facts
from mezzo.tables.facts import Cost

if TYPE_CHECKING:
    import onnx
    import onnx_ir


def export_plan(
    of: Plan | str | os.PathLike[str],
    tool: str,
    *,
    model: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model | None" = None,
    trust_external_paths: bool = False,
    progress: Progress | None = None,
) -> str:
    """The settings with which another tool keeps and lowers the nodes that a plan keeps and lowers.

    Args:
        of: a plan, or the path of a saved one.
        tool: "nncf", "modelopt", "trt", "genai", "coremltools", "qnn", "aimet", "torch-autocast",
            or an exporter of another package.
        model: the plan's model, for tools that go by the names of values, which a saved plan does
            not have.
        progress: called with (stage, done, total).

    Raises:
        InputError: no such tool, the tool takes no such plan, or the plan is of another model.
        ContractError: the plan cannot be carried out.
    """
    chosen = exporter(tool)
    plan = load_plan(of) if isinstance(of, str | os.PathLike) else of
    if not isinstance(plan, Plan):
        raise InputError(
            f"{type(plan).__name__} is no plan, and a plan is exported; results have one as .plan,"
            " and 'mezzo.plan(model)' makes one"
        )
    if model is not None:
        opened = open_source(model, trust_external_paths, progress)
        graph = convert_model(opened, replay_options({}, plan), plan)[0].reading.graph
        if plan.parts:
            graph = opened.read(*floats_of(plan.line)).graph
        plan = replace(plan, make_names=lambda: aliases_in(graph))
    return chosen.render(_with_parts(plan))


def _with_parts(plan: Plan) -> Plan:
    """A plan of the model's own nodes, which another tool finds: those of an activation run as the
    operator in their place does, those of a norm in FP32, as it computes inside.
    """
    parts: dict[str, list[str]] = {}
    for name, end in plan.parts:
        parts.setdefault(end, []).append(name)
    nodes: list[PlannedNode] = []
    for node in plan.nodes:
        if node.name in parts:
            is_pointwise = op_facts(plan.dialect)[node.op].cost is Cost.POINTWISE
            node = node._replace(precision=node.precision if is_pointwise else uniform(HIGH))
        # A node without a name is called after its operator and its result.
        names = parts.get(node.name, [])
        nodes += [node._replace(name=name, op=name.partition(":")[0]) for name in names]
        nodes.append(node)
    return plan.with_nodes(nodes)
