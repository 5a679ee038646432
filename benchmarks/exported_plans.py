"""Plans as other tools take them: each tool converts by the exported plan; the result is compared with the plan.

    python benchmarks/exported_plans.py --make out/exported                        # a Python with mezzo
    python benchmarks/exported_plans.py --make-torch out/exported                  # with mezzo and torch
    PYTHON benchmarks/exported_plans.py --check nncf out/exported                  # each in the tool's environment
    python benchmarks/exported_plans.py --table out/exported [--out out/exported_plans.json]

Tools: nncf, modelopt, onnxruntime, genai, aimet, qnn (read by AIMET), coremltools, torch-autocast. The ONNX model is
the demo's, planned for FP16 and, on its data, for INT8, with one encoder's attention excluded; the PyTorch model is
TinyModel below. "kept": of the nodes that the plan keeps in FP32 (or out of INT8), how many the tool's result has
there. "lowered": of the nodes that the plan lowers, how many the result lowers; a quantizer counts matmuls and
convolutions alone, since it chooses the others by the runtime's kernels. trtexec runs nowhere here: its line is read
back by its documented grammar, as --make does.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "examples" / "digits" / "digits.onnx"
DATA = ROOT / "examples" / "digits" / "heldout.npz"
ONNX_TOOLS = ("nncf", "modelopt", "trt", "genai", "qnn", "aimet")
TORCH_TOOLS = ("coremltools", "torch-autocast")
EXCLUDED = "/encoder.0/attention/*"
_PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})
_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class Row:
    """What a tool made of a plan: nodes that stayed and nodes that were lowered, of those that the plan names."""

    tool: str
    call: str
    versions: str
    kept: int
    to_keep: int
    lowered: int
    to_lower: int
    wrong: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        return self.kept == self.to_keep and self.lowered == self.to_lower


def compared(
    tool: str, call: str, packages: Iterable[str], plan: Mapping[str, bool], result: Mapping[str, bool]
) -> Row:
    """Compare by node whether it is lowered; nodes that one of the two does not know are left out."""
    both = [name for name in plan if name in result]
    keep, lower = [n for n in both if not plan[n]], [n for n in both if plan[n]]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    wrong = tuple(name for name in both if plan[name] is not result[name])
    kept, lowered = sum(not result[n] for n in keep), sum(result[n] for n in lower)
    return Row(tool, call, versions, kept, len(keep), lowered, len(lower), wrong)


def make(folder: Path) -> None:
    """Write the model, its plans and every export of them."""
    import mezzo
    from mezzo.io.trtexec_grammar import read_layers

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(MODEL.read_bytes())
    plans = {
        "fp16": mezzo.plan(MODEL, to="fp16", target="tensorrt", exclude=[EXCLUDED]),
        "int8": mezzo.convert(
            MODEL, to="int8", data=DATA, labels=["label"], exclude=[EXCLUDED], fuse="none", correct="none"
        ).plan,
    }
    for kind, plan in plans.items():
        nodes = {n.name: [n.op, str(n.precision.compute)] for n in plan.nodes if n.kind == "op"}
        (folder / f"{kind}.nodes.json").write_text(json.dumps(nodes))
        for tool in ONNX_TOOLS:
            if (kind, tool) != ("fp16", "aimet"):
                (folder / f"{kind}.{tool}").write_text(mezzo.export_plan(plan, tool))
    line = shlex.split((folder / "fp16.trt").read_text(), comments=True)
    value = next(word for word in line if word.startswith("--layerPrecisions=")).partition("=")[2]
    types = {"fp32": False, "fp16": True}
    read = {name: types[dtype] for name, dtype in read_layers(value)}
    save(folder, "trt", [compared("trt", "trtexec, read back", (), plan_of(folder, "fp16"), read)])


def make_torch(folder: Path) -> None:
    """Write the exports of a PyTorch program's plan."""
    import torch

    import mezzo

    folder.mkdir(parents=True, exist_ok=True)
    model, example = tiny_model()
    plan = mezzo.plan(torch.export.export(model, (example,)), to="fp16", policy="balanced", exclude=["layers.1*"])
    nodes = {n.name: [n.op, str(n.precision.compute)] for n in plan.nodes if n.kind == "op"}
    (folder / "torch.nodes.json").write_text(json.dumps(nodes))
    for tool in TORCH_TOOLS:
        (folder / f"torch.{tool}.py").write_text(mezzo.export_plan(plan, tool))


def tiny_model() -> tuple[Any, Any]:
    """A model of two residual layers in a ModuleList, one in a Sequential, and a head."""
    import torch

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(16, 16)
            self.norm = torch.nn.LayerNorm(16)

        def forward(self, x: Any) -> Any:
            return torch.softmax(self.norm(self.fc(x)), -1) * 2

    class TinyModel(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([Layer() for _ in range(2)])
            self.last = torch.nn.Sequential(Layer(), torch.nn.GELU())
            self.head = torch.nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = x + torch.relu(layer(x))
            return self.head(self.last(x))

    torch.manual_seed(0)
    return TinyModel().eval(), torch.randn(2, 16)


def plan_of(folder: Path, kind: str, *, products: bool = False) -> dict[str, bool]:
    """Whether each node of a plan is lowered. `products`: of lowered ones, matmuls and convolutions alone."""
    nodes = json.loads((folder / f"{kind}.nodes.json").read_text())
    return {
        name: dtype != "f32" for name, (op, dtype) in nodes.items() if dtype == "f32" or not products or op in _PRODUCTS
    }


def export_of(folder: Path, kind: str, tool: str) -> Any:
    return json.loads((folder / f"{kind}.{tool}").read_text())


def samples() -> list[dict[str, Any]]:
    import numpy as np

    images = np.load(DATA)["image"][:_SAMPLES]
    return [{"image": image[None]} for image in images]


def quantized_nodes(model: Any, plan: Mapping[str, bool]) -> dict[str, bool]:
    """Whether each node of a file with Q/DQ nodes reads a dequantized operand.

    Q/DQ nodes are on values: one that a lowered node reads or produces is dequantized for all its readers.
    """
    nodes = model.graph.node
    kinds = {out: node.op_type for node in nodes for out in node.output}
    source = {node.output[0]: node.input[0] for node in nodes if node.op_type in ("QuantizeLinear", "DequantizeLinear")}

    def origin(name: str) -> str:
        while name in source:
            name = source[name]
        return name

    others = [node for node in nodes if node.op_type not in ("QuantizeLinear", "DequantizeLinear")]
    lowered = [node for node in others if plan.get(node.name, False)]
    theirs = {origin(name) for node in lowered for name in (*node.input, *node.output)}
    return {
        node.name: any(
            kinds.get(name) == "DequantizeLinear" and (plan.get(node.name, False) or origin(name) not in theirs)
            for name in node.input
        )
        for node in others
    }


def float_nodes(model: Any) -> dict[str, bool]:
    """Whether each node of a typed file computes in 16 bits, by its float inputs and outputs."""
    import onnx

    graph, types = model.graph, {}
    low, high = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16), onnx.TensorProto.FLOAT
    types |= {v.name: v.type.tensor_type.elem_type for v in graph.input}
    types |= {w.name: w.data_type for w in graph.initializer}
    result = {}
    for node in [*graph.node] * 2:  # converters may append a Cast behind its readers
        dtypes = [types[name] for name in node.input if types.get(name) in (*low, high)]
        made = next((a.i for a in node.attribute if a.name == "to"), dtypes[0] if dtypes else None)
        types |= {name: made for name in node.output if made is not None}
        if node.op_type != "Cast" and dtypes:
            result[node.name] = high not in dtypes
    return result


def check_nncf(folder: Path) -> list[Row]:
    import nncf
    import onnx

    rows, model = [], onnx.load(folder / "model.onnx")
    scope = nncf.IgnoredScope(**export_of(folder, "int8", "nncf")["ignored_scope"])
    whole, plan = plan_of(folder, "int8"), plan_of(folder, "int8", products=True)
    result = nncf.quantize(model, nncf.Dataset(samples()), ignored_scope=scope)
    rows.append(compared("nncf", "quantize", ("nncf",), plan, quantized_nodes(result, whole)))
    weights = nncf.compress_weights(onnx.load(folder / "model.onnx"), ignored_scope=scope)
    operators = {node.name: node.op_type for node in model.graph.node}
    # Convolutions are compressed by INT8 modes alone, and matmuls of two activations have no weight.
    with_weight = {w.name for w in model.graph.initializer}
    of_weights = {
        node.name for node in model.graph.node
        if operators[node.name] in _PRODUCTS and len(node.input) > 1 and node.input[1] in with_weight
    }  # fmt: skip
    plan = {name: low for name, low in plan.items() if name in of_weights or not low}
    rows.append(compared("nncf", "compress_weights", ("nncf",), plan, quantized_nodes(weights, whole)))
    return rows


def check_modelopt(folder: Path) -> list[Row]:
    import numpy as np
    import onnx
    from modelopt.onnx.autocast import convert_to_mixed_precision
    from modelopt.onnx.quantization import quantize

    path, packages = str(folder / "model.onnx"), ("nvidia-modelopt",)
    result = convert_to_mixed_precision(path, **export_of(folder, "fp16", "modelopt")["autocast"])
    rows = [compared("modelopt", "autocast", packages, plan_of(folder, "fp16"), float_nodes(result))]
    out = str(folder / "modelopt.onnx")
    data = {"image": np.concatenate([sample["image"] for sample in samples()])}
    quantize(
        path, calibration_data=data, calibration_eps=["cpu"], high_precision_dtype="fp32", output_path=out,
        **export_of(folder, "int8", "modelopt")["quantize"],
    )  # fmt: skip
    plan = plan_of(folder, "int8", products=True)
    return [
        *rows,
        compared("modelopt", "quantize", packages, plan, quantized_nodes(onnx.load(out), plan_of(folder, "int8"))),
    ]


def check_onnxruntime(folder: Path) -> list[Row]:
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, quantize_static
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.transformers.float16 import convert_float_to_float16

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # a base without types
        def __init__(self) -> None:
            self.left = iter(samples())

        def get_next(self) -> dict[str, Any] | None:
            return next(self.left, None)

    packages, source = ("onnxruntime",), str(folder / "model.onnx")
    export = export_of(folder, "fp16", "genai")
    result = convert_float_to_float16(onnx.load(source), **export["convert_float_to_float16"])
    rows = [compared("onnxruntime", "float16", packages, plan_of(folder, "fp16"), float_nodes(result))]
    out = str(folder / "onnxruntime.onnx")
    export = export_of(folder, "int8", "genai")
    quantize_static(source, out, Reader(), **export["quantize_static"])
    plan = plan_of(folder, "int8", products=True)
    rows.append(
        compared(
            "onnxruntime", "quantize_static", packages, plan, quantized_nodes(onnx.load(out), plan_of(folder, "int8"))
        )
    )
    bits = MatMulNBitsQuantizer(onnx.load(source), **export["MatMulNBitsQuantizer"])
    bits.process()
    weights = {w.name for w in onnx.load(source).graph.initializer}
    matmuls = [n for n in onnx.load(source).graph.node if n.op_type == "MatMul" and n.input[1] in weights]
    made = {node.output[0]: node.op_type == "MatMulNBits" for node in bits.model.graph().node}
    # By default a packed node's name is another; its output keeps its own.
    result = {node.name: made[node.output[0]] for node in matmuls}
    return [*rows, compared("onnxruntime", "MatMulNBitsQuantizer", packages, plan, result)]


def check_aimet(folder: Path) -> list[Row]:
    return [_encodings(folder, "aimet")]


def check_qnn(folder: Path) -> list[Row]:
    return [_encodings(folder, "qnn")]


def _encodings(folder: Path, tool: str) -> Row:
    """Load encodings into AIMET's simulation; quantizers of other tensors, and those of floats, are no integers."""
    import onnx
    from aimet_onnx.quantsim import QuantizationSimModel, load_encodings_to_sim

    sim = QuantizationSimModel(onnx.load(folder / "model.onnx"), dummy_input=samples()[0])
    document, quantizers, fused = export_of(folder, "int8", tool), sim.qc_quantize_op_dict, []
    for key in ("activation_encodings", "param_encodings"):  # AIMET refuses values inside what it fuses
        names = [e["name"] for e in document[key]] if tool == "aimet" else [*document[key]]
        fused += [name for name in names if name not in quantizers]
        document[key] = (
            [entry for entry in document[key] if entry["name"] in quantizers] if tool == "aimet"
            else {name: entry for name, entry in document[key].items() if name in quantizers}
        )  # fmt: skip
    load_encodings_to_sim(sim, document, strict=False)
    groups = [document["activation_encodings"], document["param_encodings"]]
    if tool == "aimet":
        listed = {entry["name"]: True for group in groups for entry in group}
    else:
        listed = {name: entry[0]["dtype"] == "int" for group in groups for name, entry in group.items()}
    # Values that share a quantizer have one setting.
    enabled = {id(quantizers[name]) for name, is_integer in listed.items() if is_integer}
    plan = {name: id(quantizer) in enabled for name, quantizer in quantizers.items()}
    result = {name: q.enabled and "int" in str(q.data_type) for name, q in quantizers.items()}
    call = f"load_encodings_to_sim, {document['version']}; {len(fused)} values fused away"
    return compared(tool, call, ("aimet-onnx",), plan, result)


def check_genai(folder: Path) -> list[Row]:
    """A tiny model in FP32, planned by the folder's mezzo, then built in INT4 without the plan's nodes."""
    import genai
    import onnx

    source = folder / "genai"
    if not (source / "qwen3-fp32" / "model.onnx").exists():
        genai.build("qwen3", source, None)
        raise SystemExit("the FP32 model is there; run --make-genai with mezzo, then --check genai again")
    options = json.loads((folder / "genai.genai").read_text())["extra_options"]["nodes_to_exclude"]
    places = ["-i", str(source / "huggingface" / "qwen3"), "-o", str(source / "planned"), "-c", str(source / "cache")]
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-p", "int4", "-e", "cpu", *places]
    command += ["--extra_options", f"nodes_to_exclude={options}", "algo_config=rtn"]
    subprocess.run(command, check=True, capture_output=True)
    built = onnx.load(source / "planned" / "model.onnx", load_external_data=False)
    result = {n.name.removesuffix("_Q4").removesuffix("NBits"): n.op_type != "MatMul" for n in built.graph.node}
    nodes = json.loads((folder / "genai.nodes.json").read_text())
    plan = {name: dtype != "f32" for name, (op, dtype) in nodes.items() if op == "MatMul"}
    return [compared("genai", "builder -p int4", ("onnxruntime-genai",), plan, result)]


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_").replace(".", "_"), path)
    assert spec is not None and spec.loader is not None, "a Python file"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_coremltools(folder: Path) -> list[Row]:
    import coremltools as ct
    import torch

    selector = _module(folder / "torch.coremltools.py").op_selector
    model, example = tiny_model()
    order: list[tuple[str, str]] = []

    def recording(op: Any) -> bool:
        order.append((op.op_type, op.name))
        return bool(selector(op))

    program = ct.convert(
        torch.jit.trace(model, example), inputs=[ct.TensorType(name="x", shape=tuple(example.shape))],
        minimum_deployment_target=ct.target.iOS16, skip_model_load=True,
        compute_precision=ct.transform.FP16ComputePrecision(op_selector=recording),
    )._mil_program  # fmt: skip
    made = [op for op in program.functions["main"].operations if op.op_type not in ("const", "cast")]
    # In both, operators of one type come in the order in which the model calls them.
    nodes, result = json.loads((folder / "torch.nodes.json").read_text()), {}
    for kind in {op.op_type for op in made}:
        names = [name for name, (op, _) in nodes.items() if op == kind]
        of_kind = [op for op in made if op.op_type == kind]
        assert len(names) == len(of_kind), f"{kind}: {len(names)} in the plan, {len(of_kind)} in Core ML"
        for name, op in zip(names, of_kind, strict=True):
            result[name] = "fp16" in ct.converters.mil.mil.types.builtin_to_string(op.outputs[0].dtype)
    return [compared("coremltools", "convert", ("coremltools", "torch"), plan_of(folder, "torch"), result)]


def check_torch_autocast(folder: Path) -> list[Row]:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    export = _module(folder / "torch.torch-autocast.py")
    model, example = tiny_model()
    export.keep_fp32(model, "cpu")
    names, dtypes = [], []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _module, _args, name=name: names.append(f"{name}/linear"))

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if "addmm" in str(func) or "linear" in str(func):
                dtypes.append(result.dtype)
            return result

    with torch.no_grad(), torch.autocast("cpu", dtype=export.DTYPE), Watching():
        model(example)
    result = {name: dtype is export.DTYPE for name, dtype in zip(names, dtypes, strict=True)}
    return [compared("torch-autocast", "autocast on CPU", ("torch",), plan_of(folder, "torch"), result)]


CHECKS: Mapping[str, Callable[[Path], list[Row]]] = {
    "nncf": check_nncf, "modelopt": check_modelopt, "onnxruntime": check_onnxruntime, "genai": check_genai,
    "aimet": check_aimet, "qnn": check_qnn, "coremltools": check_coremltools, "torch-autocast": check_torch_autocast,
}  # fmt: skip


def save(folder: Path, tool: str, rows: list[Row]) -> None:
    (folder / f"rows.{tool}.json").write_text(json.dumps([asdict(row) for row in rows]))
    for row in rows:
        print(spell(row))


def make_genai(folder: Path) -> None:
    """Plan the FP32 model of onnxruntime-genai's builder."""
    import mezzo

    plan = mezzo.plan(
        folder / "genai" / "qwen3-fp32" / "model.onnx", to="fp16", target="onnxruntime-cuda",
        exclude=["/model/layers.0/mlp/*", "/lm_head/*"],
    )  # fmt: skip
    nodes = {n.name: [n.op, str(n.precision.compute)] for n in plan.nodes if n.kind == "op"}
    (folder / "genai.nodes.json").write_text(json.dumps(nodes))
    (folder / "genai.genai").write_text(mezzo.export_plan(plan, "genai"))


def spell(row: Row) -> str:
    counts = f"{row.kept} of {row.to_keep} | {row.lowered} of {row.to_lower}"
    wrong = f" wrong: {', '.join(row.wrong[:4])}" if row.wrong else ""
    return f"| {row.tool} | {row.call} | {row.versions or 'none'} | {counts} |{wrong}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--make", action="store_true")
    group.add_argument("--make-torch", action="store_true")
    group.add_argument("--make-genai", action="store_true")
    group.add_argument("--check", choices=CHECKS)
    group.add_argument("--table", action="store_true")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "exported_plans.json")
    asked = parser.parse_args()
    if asked.check:
        save(asked.folder, asked.check, CHECKS[asked.check](asked.folder))
        return 0
    makers = {"make": make, "make_torch": make_torch, "make_genai": make_genai}
    maker = next((made for name, made in makers.items() if getattr(asked, name)), None)
    if maker is not None:
        maker(asked.folder)
        return 0
    rows = [Row(**row) for path in sorted(asked.folder.glob("rows.*.json")) for row in json.loads(path.read_text())]
    print("| tool | call | tried with | kept | lowered |\n|---|---|---|---|---|")
    print("\n".join(map(spell, rows)))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0 if all(row.is_right and not row.wrong for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
