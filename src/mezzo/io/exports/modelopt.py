"""NVIDIA ModelOpt: patterns of node names for AutoCast and for ONNX quantization.

Source: modelopt.onnx.autocast.convert_to_mixed_precision, modelopt.onnx.quantization.quantize,
ModelOpt 0.47.0. Both match patterns from the start of a name, as re.match does.
"""

import re

from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import HIGH, DType
from mezzo.io.plan_export import (
    PlanExporter,
    kept,
    low_floats,
    operators,
    quantized_levels,
    quantizer_notes,
)
from mezzo.ir.nodes import Kind

_TYPES = {DType.FLOAT16: "fp16", DType.BFLOAT16: "bf16"}


class ModelOpt(PlanExporter):
    name = "modelopt"
    also = ("nvidia-modelopt", "model-optimizer")
    tool = "ModelOpt"
    summary = "nodes_to_exclude for AutoCast and for ONNX quantization"
    written_for = "nvidia-modelopt 0.47.0"
    tried_with = "nvidia-modelopt 0.47.0"
    usage = (
        "convert_to_mixed_precision(MODEL, **json.load(open(FILE))['autocast']), or"
        " quantize(MODEL, **json.load(open(FILE))['quantize'])"
    )

    def render(self, plan: Plan) -> str:
        """A JSON document with arguments of both functions; without floats, of one."""
        self.refuse(plan, "onnx", "export the model to ONNX, which ModelOpt converts")
        nodes, floats = operators(plan), low_floats(plan)
        excluded = _patterns(kept(nodes, quantized_levels(plan)))
        settings: dict[str, object] = {"quantize": {"nodes_to_exclude": excluded}}
        if floats:
            lowered = frozenset(plan.lows)
            low = [node.name for node in nodes if node.precision.compute in lowered]
            ports = [n for n in plan.nodes if n.kind in (Kind.INPUT.value, Kind.OUTPUT.value)]
            # AutoCast's own rules would keep more; what is included overrides them.
            settings["autocast"] = {
                "low_precision_type": _TYPES[next(iter(floats))],
                "nodes_to_exclude": _patterns(kept(nodes, lowered)),
                "nodes_to_include": _patterns(low),
                "keep_io_types": all(port.precision.output is HIGH for port in ports),
            }
        return self.as_json(plan, settings, quantizer_notes(plan, "ModelOpt's quantize"))


def _patterns(names: list[str]) -> list[str]:
    """A pattern per name that matches it alone."""
    return [f"{re.escape(name)}$" for name in names]
