"""ONNX Runtime: names of nodes that its converters leave out, those of onnxruntime-genai's model
builder included.

Source: onnxruntime_genai.models.builder 0.18.0 (nodes_to_exclude, which int4_nodes_to_exclude was
called before); onnxruntime 1.32.0: quantize_static, MatMulNBitsQuantizer,
transformers.float16.convert_float_to_float16.
"""

from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import HIGH, DType
from mezzo.io.plan_export import (
    PlanExporter,
    kept,
    low_floats,
    operators,
    quantized_levels,
    quantizer_notes,
    say,
)
from mezzo.ir.nodes import Kind

# Operators whose weights are stored in few bits.
_WITH_WEIGHTS = frozenset({"MatMul", "Gather"})


class GenAI(PlanExporter):
    name = "genai"
    also = ("onnxruntime-genai", "onnxruntime", "ort", "matmul-nbits")
    tool = "ONNX Runtime"
    summary = "nodes_to_exclude for onnxruntime-genai and ONNX Runtime's quantizers"
    written_for = "onnxruntime-genai 0.18.0, onnxruntime 1.32.0"
    tried_with = "onnxruntime-genai 0.18.0, onnxruntime 1.32.0"
    usage = (
        "each entry holds the arguments of the function of its name; extra_options are those of"
        " onnxruntime_genai.models.builder --extra_options"
    )

    def render(self, plan: Plan) -> str:
        """A JSON document with the arguments of each converter."""
        self.refuse(plan, "onnx", "export the model to ONNX, which ONNX Runtime quantizes")
        nodes = operators(plan)
        excluded = kept(nodes, quantized_levels(plan))
        with_weights = [node for node in nodes if node.op in _WITH_WEIGHTS]
        weights = kept(with_weights, quantized_levels(plan))
        commas = [name for name in weights if "," in name]
        extra = ",".join(name for name in weights if name not in commas)
        settings: dict[str, object] = {
            "extra_options": {"nodes_to_exclude": extra},
            "MatMulNBitsQuantizer": {"nodes_to_exclude": weights},
            "quantize_static": {"nodes_to_exclude": excluded},
        }
        notes = quantizer_notes(plan, "ONNX Runtime's quantizers")
        notes.append(
            "matmul_mixed_precision selects groups of layers (last_matmul, mixed_layers,"
            " linear_attn), and no single node; nodes_to_exclude does"
        )
        if commas:
            notes.append(
                f"{say(len(commas), commas)}: a name with a comma, which extra_options splits; left"
                " out there"
            )
        if DType.FLOAT16 in low_floats(plan):
            ports = [n for n in plan.nodes if n.kind in (Kind.INPUT.value, Kind.OUTPUT.value)]
            settings["convert_float_to_float16"] = {
                "op_block_list": [],
                "node_block_list": kept(nodes, frozenset(plan.lows)),
                "keep_io_types": all(port.precision.output is HIGH for port in ports),
            }
        return self.as_json(plan, settings, notes)
