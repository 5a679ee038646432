"""torch.autocast: modules that run outside it, as a Python module.

Source: torch.amp, PyTorch 2.13: which operators autocast lowers, and which it runs in FP32.
"""

from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.formats.dtypes import HIGH, DType
from mezzo.io.module_paths import TORCH, module_of
from mezzo.io.plan_export import PlanExporter, operators, say
from mezzo.tables.facts import Cost
from mezzo.tables.ops import op_facts

_TYPES = {DType.FLOAT16: "float16", DType.BFLOAT16: "bfloat16"}
_CODE = '''\
import torch

DTYPE = torch.{dtype}
# Every operator in these modules stays in FP32.
FP32_MODULES = [{modules}]


def keep_fp32(model, device_type):
    """Make the modules of FP32_MODULES run outside autocast, on FP32 inputs."""
    for name in FP32_MODULES:
        for module in _called(model.get_submodule(name)):
            module.forward = _outside_autocast(module.forward, device_type)
    return model


def _called(module):
    """The module, or those in a container, which is never called itself."""
    if isinstance(module, (torch.nn.ModuleList, torch.nn.ModuleDict)):
        return [inner for child in module.children() for inner in _called(child)]
    return [module]


def _outside_autocast(forward, device_type):
    def run(*args, **kwargs):
        with torch.autocast(device_type, enabled=False):
            return forward(*_as_fp32(args), **_as_fp32(kwargs))

    return run


def _as_fp32(value):
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    if isinstance(value, dict):
        return {{key: _as_fp32(item) for key, item in value.items()}}
    if type(value) in (tuple, list):
        return type(value)(_as_fp32(item) for item in value)
    return value
'''


class TorchAutocast(PlanExporter):
    name = "torch-autocast"
    also = ("autocast", "amp", "torch")
    tool = "torch.autocast"
    summary = "modules to wrap in torch.autocast(enabled=False), as Python"
    written_for = "PyTorch 2.13"
    tried_with = "PyTorch 2.13.0, CPU"
    usage = (
        "keep_fp32(model, device_type), once; then with torch.autocast(device_type, dtype=DTYPE):"
        " model(...)"
    )

    def render(self, plan: Plan) -> str:
        """A Python module, with the header in comments."""
        self.refuse(
            plan,
            TORCH,
            "plan the PyTorch program in Python: mezzo.plan(torch.export.export(model, example))",
        )
        nodes = operators(plan)
        modules = _whole_modules(plan, nodes)
        rest = [n for n in nodes if n.precision.compute is HIGH and not _is_in(plan, n, modules)]
        lowered = [node.name for node in rest if _is_linear(node)]
        others = [node.name for node in rest if not _is_linear(node)]
        free = [n.name for n in nodes if n.precision.compute is not HIGH and not _is_linear(n)]
        notes = [
            f"{say(len(names), names)}: {text}"
            for names, text in (
                (lowered, "kept in f32 by the plan in a module with nodes that are not, where"
                 " autocast lowers it; wrap the call itself in torch.autocast(enabled=False)"),
                (others, "kept in f32 by the plan, outside these modules: autocast runs some"
                 " operators in f32 and the others in the type of their inputs"),
                (free, "lowered by the plan; autocast runs some of these in f32"),
            )
            if names
        ]  # fmt: skip
        low = next((_TYPES[dtype] for dtype in plan.lows if dtype in _TYPES), None)
        code = _CODE.format(dtype=low or "float32", modules=_literals(modules))
        return f"{self.as_comments(plan, notes)}{code}"


def _literals(names: list[str]) -> str:
    return "".join(f"\n    {name!r}," for name in names) + ("\n" if names else "")


def _whole_modules(plan: Plan, nodes: list[PlannedNode]) -> list[str]:
    """The outermost modules in which the plan keeps every node in FP32."""
    mixed = {""}
    for node in nodes:
        if node.precision.compute is not HIGH:
            parts = module_of(plan, node).split(".")
            mixed |= {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    whole = set()
    for node in nodes:
        parts = module_of(plan, node).split(".")
        paths = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
        whole |= {*[path for path in paths if path not in mixed][:1]}
    return sorted(whole)


def _is_in(plan: Plan, node: PlannedNode, modules: list[str]) -> bool:
    path = f"{module_of(plan, node)}."
    return any(path.startswith(f"{module}.") for module in modules)


def _is_linear(node: PlannedNode) -> bool:
    """Whether autocast lowers the operator: matmuls and convolutions."""
    facts = op_facts(TORCH).get(node.op)
    return facts is not None and facts.cost is Cost.LINEAR
