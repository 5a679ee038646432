"""Qualcomm AI Engine Direct (QNN): quantization overrides for its converters.

Source: Qualcomm AI Engine Direct SDK, "Quantization overrides" (--quantization_overrides of
qnn-onnx-converter and qairt-converter); its format is AIMET's 0.6.1.
"""

from mezzo.contracts.plans import Plan
from mezzo.formats.quantization import Quantization
from mezzo.io.encodings import offsets_of, read_encodings
from mezzo.io.plan_export import PlanExporter, say, to_text

_BITS = 8


class Qnn(PlanExporter):
    name = "qnn"
    also = ("qairt", "snpe")
    tool = "QNN"
    summary = "quantization_overrides for qnn-onnx-converter and qairt-converter"
    written_for = "Qualcomm AI Engine Direct SDK 2.x, encodings 0.6.1"
    tried_with = "not QNN, whose SDK is not public; AIMET 2.42.0 reads the same format"
    usage = "qairt-converter --input_network MODEL --quantization_overrides FILE"

    def render(self, plan: Plan) -> str:
        """A JSON document by value name; the header is its entry "producer"."""
        self.refuse(plan, "onnx", "export the model to ONNX, which QNN's converter reads")
        encodings = read_encodings(plan, self.tool)
        notes = [
            "values without an entry stay in f32, which the converter's --float_fallback leaves so",
        ]
        if encodings.without:
            notes.append(
                f"{say(len(encodings.without), encodings.without)}: quantized without scales, since"
                " the plan was made without data; left to the converter's own calibration"
            )
        groups: dict[str, dict[str, object]] = {"activation_encodings": {}, "param_encodings": {}}
        for value, how in encodings.integers.items():
            groups[_group(value in encodings.constants)][value] = _integers(how)
        for value in encodings.halves:
            half = [{"bitwidth": 16, "dtype": "float"}]
            groups[_group(value in encodings.constants)][value] = half
        return to_text({"version": "0.6.1", "producer": self.header(plan, notes), **groups})


def _group(is_constant: bool) -> str:
    return "param_encodings" if is_constant else "activation_encodings"


def _integers(how: Quantization) -> list[dict[str, object]]:
    """One entry per scale."""
    levels = (1 << _BITS) - 1
    return [
        {
            "bitwidth": _BITS,
            "dtype": "int",
            "is_symmetric": str(how.is_symmetric),
            "min": scale * offset,
            "max": scale * (levels + offset),
            "scale": scale,
            "offset": offset,
        }
        for scale, offset in zip(how.scales, offsets_of(how), strict=True)
    ]
