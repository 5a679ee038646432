"""AIMET: encodings of the quantized tensors; those that are not listed stay floats.

Source: aimet_onnx.quantsim.load_encodings_to_sim, AIMET 2.42.0, format 1.0.0.
"""

from mezzo.common.errors import InputError
from mezzo.contracts.plans import Plan
from mezzo.formats.quantization import Quantization
from mezzo.io.encodings import offsets_of, read_encodings
from mezzo.io.plan_export import PlanExporter, to_text

_BITS = 8


class Aimet(PlanExporter):
    name = "aimet"
    also = ("aimet-onnx",)
    tool = "AIMET"
    summary = "encodings for load_encodings_to_sim of aimet_onnx"
    written_for = "aimet-onnx 2.42.0, encodings 1.0.0"
    tried_with = "aimet-onnx 2.42.0"
    usage = (
        "load_encodings_to_sim(sim, encodings, strict=False), with the entries of"
        " sim.qc_quantize_op_dict; it disables the quantizers of all other tensors"
    )

    def render(self, plan: Plan) -> str:
        """A JSON document by value name; the header is its entry "producer"."""
        self.refuse(plan, "onnx", "export the model to ONNX, which aimet_onnx reads")
        encodings = read_encodings(plan, self.tool)
        if not encodings.integers:
            raise InputError(
                "AIMET takes scales, and the plan has none; plan int8 on data: mezzo convert MODEL"
                " OUT --to int8 --data DATA --save-plan FILE"
            )
        groups: dict[str, list[object]] = {"activation_encodings": [], "param_encodings": []}
        for value, how in encodings.integers.items():
            is_constant = value in encodings.constants
            group = "param_encodings" if is_constant else "activation_encodings"
            groups[group].append(_spell(value, how))
        notes = [
            "AIMET simulates integers alone: floats of 16 bits in the plan are not exported",
            "AIMET fuses a MatMul with the Add of its bias, and refuses an encoding of the value"
            " between; drop entries whose names are not in sim.qc_quantize_op_dict",
        ]
        return to_text({"version": "1.0.0", "producer": self.header(plan, notes), **groups})


def _spell(value: str, how: Quantization) -> dict[str, object]:
    return {
        "name": value,
        "enc_type": "PER_TENSOR" if how.axis is None else "PER_CHANNEL",
        "dtype": "INT",
        "bw": _BITS,
        "is_sym": how.is_symmetric and how.span[0] < 0,
        "scale": list(how.scales),
        "offset": offsets_of(how),
    }
