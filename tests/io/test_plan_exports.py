"""Plans as other tools take them: whole texts as goldens, and what no export expresses as notes.

`python tests/io/test_plan_exports.py --write` writes tests/io/exports again. benchmarks/exported_plans.py runs the
tools themselves; where one of them is installed, the tests here ask it too.
"""

import ast
import json
import re
import shlex
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.contracts.plans import NodeAliases, Plan, PlannedNode
from mezzo.formats.dtypes import DType
from mezzo.formats.precision_line import Precision, PrecisionLine, uniform
from mezzo.formats.quantization import Quantization
from mezzo.io.trtexec_grammar import read_layers
from mezzo.plugins.discovery import exporter, names

_GOLDEN = Path(__file__).parent / "exports"
_F32, _F16, _INT8 = (uniform(d) for d in (DType.FLOAT32, DType.FLOAT16, DType.QUANTIZED8))


def _plan(
    precisions: dict[str, Precision], dialect: str = "onnx", aliases: NodeAliases | None = None, **fields: object
) -> Plan:
    """A plan by hand; each key is a name and an operator, "NAME OP", of kind "op" unless OP is a kind."""
    nodes = []
    for key, precision in precisions.items():
        name, _, op = key.rpartition(" ")
        kind = op if op in ("input", "output", "tie", "cast") else "op"
        nodes.append(PlannedNode(name, op, kind, precision, None, "rule", "because", None))
    lows = sorted({p.compute for p in precisions.values()} - {DType.FLOAT32}, key=str)
    line = PrecisionLine((_F32, *(uniform(low) for low in lows)), 0)
    settings = (("to", ",".join(map(str, lows))), ("policy", "balanced"), ("target", "any"), ("fuse", "none"))
    return Plan(
        line=line, dialect=dialect, version=None, settings=settings, edits=(), limits=(), notes=(),
        make_nodes=lambda: tuple(nodes), make_fingerprint=lambda: "0" * 32,
        **({} if aliases is None else {"make_names": lambda: aliases}), **fields,
    )  # type: ignore[arg-type]  # fmt: skip


def _aliases(makers: dict[str, str], readers: dict[str, tuple[str, ...]]) -> NodeAliases:
    return NodeAliases({value: (node,) for value, node in makers.items()}, readers, {}, {})


FLOATS = _plan(
    {
        "input x input": _F32, "/a.b/MatMul MatMul": _F16, "/a.b/Softmax Softmax": _F32,
        "Relu:r Relu": _F16, "y, z Add": Precision(DType.FLOAT16, DType.FLOAT32, DType.FLOAT32),
        "If:o.output[0] tie": _F16, "If:o/then/Exp Exp": _F16, "output y output": _F32,
    },
    aliases=_aliases(
        {"x": "input x", "m": "/a.b/MatMul", "s": "/a.b/Softmax", "r": "Relu:r", "y": "y, z"},
        {"w": ("/a.b/MatMul",), "b": ("y, z", "/a.b/Softmax")},
    ),
)  # fmt: skip
INTEGERS = _plan(
    {"input x input": _F32, "fc MatMul": _INT8, "relu Relu": _F32, "out Gemm": _F32, "output y output": _F32},
    aliases=_aliases({"x": "input x", "h": "fc", "r": "relu", "y": "out"}, {"w": ("fc",), "v": ("out",)}),
    quantized=(
        ("x", Quantization(dtype=DType.UINT8, scales=(0.5,), zero_points=(3,))),
        ("w", Quantization(dtype=DType.INT8, scales=(0.25, 0.125), zero_points=(0, 0), axis=1)),
        ("b of fc", Quantization(dtype=DType.INT32, scales=(0.125,), zero_points=(0,))),
    ),
)
TORCH = _plan(
    {
        "input x input": _F32, "layers.0.fc/linear linear": _F16, "layers.0.norm/layer_norm layer_norm": _F32,
        "layers.1.fc/linear linear": _F32, "layers.1/softmax softmax": _F32, "softmax softmax": _F32,
        "softmax#1 softmax": _F16, "head/weird_op weird_op": _F32, "head/addmm addmm": _F16,
    },
    "aten",
)  # fmt: skip
PLANS = {"floats": FLOATS, "integers": INTEGERS, "torch": TORCH}
# What each exporter is given.
CASES = [
    *((plan, tool) for plan in ("floats", "integers") for tool in ("nncf", "modelopt", "trt", "genai", "qnn")),
    ("integers", "aimet"),
    ("floats", "coremltools"),
    ("torch", "coremltools"),
    ("torch", "torch-autocast"),
]


@pytest.mark.parametrize(("plan", "tool"), CASES)
def test_export_is_what_it_was(plan: str, tool: str) -> None:
    assert _text(plan, tool) == (_GOLDEN / f"{plan}.{tool}.txt").read_text()


def test_every_exporter_has_a_golden_text_and_no_golden_text_is_left_over() -> None:
    assert {tool for _, tool in CASES} == set(names("exporter"))
    assert {path.name for path in _GOLDEN.iterdir()} == {f"{plan}.{tool}.txt" for plan, tool in CASES}


@pytest.mark.parametrize("tool", names("exporter"))
def test_every_exporter_names_versions_that_it_was_written_for_and_tried_with(tool: str) -> None:
    chosen = exporter(tool)
    assert re.search(r"\d", chosen.written_for)
    assert re.search(r"\d", chosen.tried_with) or chosen.tried_with.startswith("none: ")


@pytest.mark.parametrize(
    ("plan", "tool", "message"),
    [
        (
            "torch", "nncf",
            "NNCF takes no plan of a model in dialect 'aten', wanted 'onnx'; export the model to ONNX, which NNCF"
            " quantizes by these names",
        ),
        (
            "floats", "torch-autocast",
            "torch.autocast takes no plan of a model in dialect 'onnx', wanted 'aten'; plan the PyTorch program in"
            " Python: mezzo.plan(torch.export.export(model, example))",
        ),
        ("integers", "coremltools", "coremltools lowers to f16 alone, and the plan to int8; plan with --to fp16"),
        (
            "floats", "aimet",
            "AIMET takes scales, and the plan has none; plan int8 on data: mezzo convert MODEL OUT --to int8 --data"
            " DATA --save-plan FILE",
        ),
    ],
)  # fmt: skip
def test_plan_that_a_tool_does_not_take_is_one_line(plan: str, tool: str, message: str) -> None:
    with pytest.raises(mezzo.InputError) as error:
        exporter(tool).render(PLANS[plan])
    assert str(error.value) == message


@pytest.mark.parametrize("tool", ["qnn", "aimet"])
def test_saved_plan_has_no_names_of_values_and_says_what_to_give(tool: str, tmp_path: Path) -> None:
    mezzo.save_plan(INTEGERS, tmp_path / "plan.json")
    with pytest.raises(mezzo.InputError) as error:
        mezzo.export_plan(tmp_path / "plan.json", tool)
    assert str(error.value) == (
        f"{exporter(tool).tool} goes by the names of values, which a saved plan does not have; give the model too, as"
        " model='x.onnx'"
    )


def test_saved_plan_with_its_model_exports_as_the_plan_itself(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2,4] x) => (float[2,2] y)'
        "<float[4,2] w = {1,2,3,4,5,6,7,8}> { [mm] h = MatMul(x, w)  [sm] y = Softmax<axis=-1>(h) }"
    )
    plan = mezzo.plan(model, to="fp16")
    mezzo.save_plan(plan, tmp_path / "plan.json")
    exported = mezzo.export_plan(tmp_path / "plan.json", "qnn", model=model)
    assert exported == mezzo.export_plan(plan, "qnn")
    document = json.loads(exported)
    half = [{"bitwidth": 16, "dtype": "float"}]
    assert (document["activation_encodings"], document["param_encodings"]) == ({"h": half}, {"w": half})


def test_other_things_are_no_plan() -> None:
    with pytest.raises(mezzo.InputError, match=r"^list is no plan, and a plan is exported; results have one as \.plan"):
        mezzo.export_plan([], "nncf")  # type: ignore[arg-type]
    with pytest.raises(mezzo.InputError, match=r"^exporter 'trex' is unknown; did you mean 'trt'\?|^exporter 'trex'"):
        mezzo.export_plan(FLOATS, "trex")


_HOSTILE = "a'\"\\\n);import os#${IFS}`id`</script>\u202e, b:fp16"


def _hostile(dialect: str) -> Plan:
    module = _HOSTILE.replace("/", "")
    return _plan({f"{module}/softmax Softmax": _F32, f"{module}b/x MatMul": _F16}, dialect)


@pytest.mark.parametrize("tool", ["nncf", "modelopt", "genai"])
def test_hostile_names_stay_json(tool: str) -> None:
    text = exporter(tool).render(_hostile("onnx"))
    assert text.isascii()
    assert json.loads(text)["tool"] == exporter(tool).tool


def test_hostile_names_stay_patterns_of_one_name() -> None:
    plan = _hostile("onnx")
    excluded = json.loads(exporter("modelopt").render(plan))["autocast"]["nodes_to_exclude"]
    assert [[n.name for n in plan.nodes if re.match(p, n.name)] for p in excluded] == [[plan.nodes[0].name]]


@pytest.mark.parametrize("tool", ["coremltools", "torch-autocast"])
def test_hostile_names_stay_literals_of_python(tool: str) -> None:
    tree = ast.parse(exporter(tool).render(_hostile("aten")))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert "os" not in imported


def test_line_for_trtexec_is_read_back_and_leaves_out_what_it_would_split() -> None:
    text = exporter("trt").render(FLOATS)
    words = shlex.split(text, comments=True)
    assert words[:3] == ["trtexec", "--onnx=MODEL", "--fp16"]
    layers = dict(word.partition("=")[::2] for word in words)["--layerPrecisions"]
    assert read_layers(layers) == [("/a.b/MatMul", "fp16"), ("/a.b/Softmax", "fp32")]
    assert "a name with ',' or ':'" in text


def test_op_selector_follows_modules_without_their_containers() -> None:
    code = exporter("coremltools").render(TORCH)
    code = code.replace("from coremltools.converters.mil.mil.scope import ScopeSource\n", "")
    space: dict[str, object] = {}
    exec(compile(code, "selector", "exec"), space)
    matches = space["_matches"]
    assert callable(matches)
    cases = {("0", "fc"): True, ("layers", "0", "fc"): True, ("1", "fc"): False, ("0",): False, (): False}
    assert {names: matches(list(names), "layers.0.fc") for names in cases} == cases
    assert matches([], "")


def test_nncf_takes_the_scope_where_it_is_installed() -> None:
    nncf = pytest.importorskip("nncf", reason="NNCF is not installed")
    scope = nncf.IgnoredScope(**json.loads(exporter("nncf").render(INTEGERS))["ignored_scope"])
    assert scope.names == ["relu", "out"]


def test_torch_runs_what_is_written_for_autocast() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.ModuleDict({"fc": torch.nn.Linear(4, 4)}) for _ in range(2)])
            self.layers[0]["norm"] = torch.nn.LayerNorm(4)
            self.head = torch.nn.Linear(4, 4)

    space: dict[str, object] = {}
    exec(compile(exporter("torch-autocast").render(TORCH), "autocast", "exec"), space)
    keep = space["keep_fp32"]
    assert callable(keep)
    model = keep(Model(), "cpu")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.layers[0]["fc"](torch.ones(1, 4)).dtype is torch.bfloat16
        assert model.layers[1]["fc"](torch.ones(1, 4, dtype=torch.bfloat16)).dtype is torch.float32


def _text(plan: str, tool: str) -> str:
    return exporter(tool).render(PLANS[plan]).replace(f"mezzo {mezzo.__version__}", "mezzo VERSION")


if __name__ == "__main__" and "--write" in sys.argv:
    _GOLDEN.mkdir(exist_ok=True)
    for plan, tool in CASES:
        (_GOLDEN / f"{plan}.{tool}.txt").write_text(_text(plan, tool))
