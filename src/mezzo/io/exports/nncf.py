"""NNCF: an ignored scope, by the names of nodes.

Source: nncf.IgnoredScope, nncf.quantize and nncf.compress_weights, NNCF 3.4.0.
"""

from mezzo.contracts.plans import Plan
from mezzo.io.plan_export import PlanExporter, kept, operators, quantized_levels, quantizer_notes


class Nncf(PlanExporter):
    name = "nncf"
    also = ("openvino",)
    tool = "NNCF"
    summary = "ignored_scope for nncf.quantize and nncf.compress_weights"
    written_for = "NNCF 3.4.0, on ONNX models"
    tried_with = "NNCF 3.4.0"
    usage = "ignored_scope=nncf.IgnoredScope(**json.load(open(FILE))['ignored_scope'])"

    def render(self, plan: Plan) -> str:
        """A JSON document with the arguments of nncf.IgnoredScope."""
        self.refuse(plan, "onnx", "export the model to ONNX, which NNCF quantizes by these names")
        names = kept(operators(plan), quantized_levels(plan))
        # A plan of a simplified model may name an operator that the file does not have.
        scope = {"names": names, "validate": dict(plan.settings).get("fuse") == "none"}
        return self.as_json(plan, {"ignored_scope": scope}, quantizer_notes(plan, self.tool))
