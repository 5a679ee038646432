"""Export of a plan to another tool's settings: mezzo.export_plan."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from mezzo.common.errors import InputError
from mezzo.common.message_style import setting
from mezzo.contracts.frontend import Progress
from mezzo.contracts.plans import Plan
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.new_plan import aliases_in
from mezzo.conversion.results import open_source
from mezzo.io.planfile import load_plan
from mezzo.planner.options import replay_options
from mezzo.plugins.discovery import exporter

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
    if plan.parts:
        raise InputError(
            f"the plan has {len({end for _, end in plan.parts})} operators in place of nodes that"
            f" {chosen.tool} finds in the model; plan anew with {setting('fuse', 'none')}"
        )
    if model is not None:
        opened = open_source(model, trust_external_paths, progress)
        graph = convert_model(opened, replay_options({}, plan), plan)[0].reading.graph
        plan = replace(plan, make_names=lambda: aliases_in(graph))
    return chosen.render(plan)
