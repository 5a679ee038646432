"""TensorRT 8.6 to 10: per-layer flags of trtexec, which TensorRT 11 removed.

Source: `trtexec --help` of TensorRT 10; NVIDIA's guide "Migrating trtexec Usage from TensorRT 10.x
to 11.x", 11.4.1. Layers are named as the nodes of the ONNX file are.
"""

import shlex

from mezzo.common.errors import InputError
from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import DType
from mezzo.io.plan_export import PlanExporter, operators, say
from mezzo.io.trtexec_grammar import SEPARATORS, spell_layers

_TYPES = {
    DType.FLOAT32: "fp32",
    DType.FLOAT16: "fp16",
    DType.BFLOAT16: "bf16",
    DType.QUANTIZED8: "int8",
    DType.QUANTIZED_E4M3: "fp8",
}


class TensorRT(PlanExporter):
    name = "trt"
    also = ("tensorrt", "trtexec")
    tool = "TensorRT"
    summary = "--layerPrecisions and --layerOutputTypes of trtexec, up to TensorRT 10"
    written_for = "trtexec of TensorRT 8.6 to 10.16"
    tried_with = (
        "none: trtexec needs an NVIDIA GPU; the line is read back by its documented grammar"
    )
    usage = "sh FILE, after MODEL is put in place"

    def render(self, plan: Plan) -> str:
        """A shell command, with the header in comments."""
        self.refuse(plan, "onnx", "export the model to ONNX, which TensorRT's parser reads")
        notes = [
            "TensorRT 11 has no such flags: there, mezzo convert MODEL OUT --target tensorrt writes"
            " the types into the file, and trtexec --stronglyTyped --onnx=OUT builds it"
        ]
        nodes = operators(plan)
        split = [node.name for node in nodes if SEPARATORS & {*node.name}]
        if split:
            notes.append(
                f"{say(len(split), split)}: a name with ',' or ':', where trtexec splits; left out"
            )
        spelled = [node for node in nodes if node.name not in split]
        words = ["trtexec", "--onnx=MODEL", *(f"--{self._type(low)}" for low in plan.lows)]
        precisions = {node.name: self._type(node.precision.compute) for node in spelled}
        outputs = {
            node.name: self._type(node.precision.output)
            for node in spelled
            if node.precision.output is not node.precision.compute
        }
        words += ["--precisionConstraints=obey", f"--layerPrecisions={spell_layers(precisions)}"]
        words += [f"--layerOutputTypes={spell_layers(outputs)}"] if outputs else []
        return f"{self.as_comments(plan, notes)}{shlex.join(words)}\n"

    def _type(self, dtype: DType) -> str:
        """trtexec's name of a type. Raises InputError: it has none."""
        if dtype not in _TYPES:
            raise InputError(
                f"TensorRT has no {dtype}; wanted one of {', '.join(map(str, _TYPES))}; plan for"
                " the target 'tensorrt'"
            )
        return _TYPES[dtype]
