"""Core ML: an op_selector for FP16ComputePrecision, as a Python module.

Source: coremltools 9.0, transform.FP16ComputePrecision and Operation.scopes. Core ML's operators
have a type of their own, and the names of the modules that were called, without containers such as
ModuleList.
"""

from mezzo.common.errors import InputError
from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import DType
from mezzo.io.module_paths import TORCH, module_of, onnx_operator
from mezzo.io.plan_export import PlanExporter, operators, say

# ONNX operators, and the types of Core ML's operators that PyTorch's become.
_MIL = {
    "Abs": ("abs",),
    "Add": ("add",),
    "Attention": ("scaled_dot_product_attention",),
    "AveragePool": ("avg_pool",),
    "BatchNormalization": ("batch_norm",),
    "Clip": ("clip",),
    "Concat": ("concat",),
    "Conv": ("conv",),
    "ConvTranspose": ("conv_transpose",),
    "Cos": ("cos",),
    "CumSum": ("cumsum",),
    "Div": ("real_div",),
    "Erf": ("erf",),
    "Exp": ("exp",),
    "Gather": ("gather",),
    "Gelu": ("gelu",),
    "Gemm": ("linear",),
    "GlobalAveragePool": ("reduce_mean", "avg_pool"),
    "InstanceNormalization": ("instance_norm",),
    "LayerNormalization": ("layer_norm",),
    "Log": ("log",),
    "LogSoftmax": ("softmax", "log"),
    "MatMul": ("linear", "matmul"),
    "Max": ("maximum",),
    "MaxPool": ("max_pool",),
    "Min": ("minimum",),
    "Mul": ("mul",),
    "Neg": ("mul",),
    "Pow": ("pow",),
    "Reciprocal": ("inverse",),
    "ReduceL2": ("reduce_l2_norm",),
    "ReduceLogSumExp": ("reduce_log_sum_exp",),
    "ReduceMax": ("reduce_max",),
    "ReduceMean": ("reduce_mean",),
    "ReduceMin": ("reduce_min",),
    "ReduceSum": ("reduce_sum",),
    "ReduceSumSquare": ("reduce_sum_square",),
    "Relu": ("relu",),
    "Reshape": ("reshape",),
    "Sigmoid": ("sigmoid",),
    "Sin": ("sin",),
    "Slice": ("slice_by_index",),
    "Softmax": ("softmax",),
    "Softplus": ("softplus",),
    "Sqrt": ("sqrt",),
    "Sub": ("sub",),
    "Tanh": ("tanh",),
    "Transpose": ("transpose",),
    "Where": ("select",),
    "linear": ("linear",),
    "rsqrt": ("rsqrt",),
    "silu": ("silu",),
}  # fmt: skip
_CODE = '''\
from coremltools.converters.mil.mil.scope import ScopeSource

# Whether the operators of a type run in FP16, by the path of their module.
IN_FP16 = {{{table}}}


def op_selector(op):
    """Whether an operator of the Core ML program runs in FP16."""
    names = op.scopes[ScopeSource.TORCHSCRIPT_MODULE_NAME][:-1]
    planned = IN_FP16.get(op.op_type, {{}})
    return all(is_low for path, is_low in planned.items() if _matches(names, path))


def _matches(names, path):
    """Whether the modules that were called are those of a path, whose containers are not called."""
    parts = path.split(".") if path else []
    rest = iter(parts)
    return names[-1:] == parts[-1:] and all(name in rest for name in names)
'''


class CoreMLTools(PlanExporter):
    name = "coremltools"
    also = ("coreml", "core-ml")
    tool = "coremltools"
    summary = "op_selector for FP16ComputePrecision, as Python"
    written_for = "coremltools 9.0, models traced by torch.jit.trace"
    tried_with = "coremltools 9.0, conversion on Linux"
    usage = (
        "ct.convert(torch.jit.trace(model, example), inputs=..., compute_precision="
        "ct.transform.FP16ComputePrecision(op_selector=op_selector))"
    )

    def render(self, plan: Plan) -> str:
        """A Python module, with the header in comments. Of a plan of an ONNX model, names of nodes
        give the modules.
        """
        if frozenset(plan.lows) != {DType.FLOAT16}:
            lows = ", ".join(map(str, plan.lows))
            raise InputError(
                f"coremltools lowers to f16 alone, and the plan to {lows}; plan with --to fp16"
            )
        table: dict[str, dict[str, bool]] = {}
        unknown, shared = [], []
        for node in operators(plan):
            types = _MIL.get(node.op) or _MIL.get(onnx_operator(plan, node), ())
            is_low = node.precision.compute is DType.FLOAT16
            if not types and not is_low:
                unknown.append(node.name)
            for mil_type in types:
                by_path = table.setdefault(mil_type, {})
                path = module_of(plan, node)
                if by_path.setdefault(path, is_low) is not is_low:
                    shared.append(node.name)
                    by_path[path] = False
        notes = [
            f"{say(len(names), names)}: {text}"
            for names, text in (
                (unknown, "kept in f32 by the plan; Core ML's type of the operator is not known"
                 " here, so coremltools decides"),
                (shared, "of a type and a module that the plan runs in both; all of them stay in"
                 " f32"),
            )
            if names
        ]  # fmt: skip
        if plan.dialect != TORCH:
            notes.append("coremltools reads no ONNX: trace the PyTorch model that was exported")
        return f"{self.as_comments(plan, notes)}{_CODE.format(table=_literals(table))}"


def _literals(table: dict[str, dict[str, bool]]) -> str:
    lines = []
    for mil_type, by_path in sorted(table.items()):
        lines.append(f"    {mil_type!r}: {{")
        lines += [f"        {path!r}: {is_low}," for path, is_low in sorted(by_path.items())]
        lines.append("    },")
    return "\n" + "\n".join(lines) + "\n" if lines else ""
