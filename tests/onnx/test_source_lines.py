"""The module and the line of a program that a node was exported from, as PyTorch's exporters note them."""

import onnx
import onnx.parser
import pytest

from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import SourceLine
from mezzo.onnx.opening import open_model
from mezzo.report.views.outline import OutlinedNode, outline

_TRACE = "pkg.torch.onnx.stack_trace"
_SCOPES = "pkg.torch.onnx.name_scopes"
_OURS = 'File "/home/me/net.py", line 7, in forward\n    x = self.proj(x)\n'
_LAYER = 'File "/v/lib/python3.11/site-packages/zoo/bert.py", line 408, in forward\n    y = chunk(self.ff, x)\n'
_TORCH = 'File "/v/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 134, in forward\n    return F.linear('


def node_with(name: str = "sm", doc: str = "", **noted: str) -> OutlinedNode:
    """What an outline tells of an operator at which this was noted."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { y = Exp(x) }'
    )
    node = model.graph.node[0]
    node.name, node.doc_string = name, doc
    for key, value in {_TRACE: noted.get("trace"), _SCOPES: noted.get("scopes")}.items():
        if value is not None:
            node.metadata_props.add(key=key, value=value)
    model = onnx.ModelProto.FromString(model.SerializeToString().replace(b"NOT8", b"\xff\xfe\xff\xfe"))
    graph = open_model(model).read(DType.FLOAT16).graph
    return next(found for found in outline(graph, []).nodes if found.op == "Exp")


@pytest.mark.parametrize(
    ("trace", "line"),
    [
        (_OURS, SourceLine("/home/me/net.py", 7, "x = self.proj(x)")),
        (_OURS + _LAYER, SourceLine("zoo/bert.py", 408, "y = chunk(self.ff, x)")),
        (_OURS + _LAYER + _TORCH, SourceLine("zoo/bert.py", 408, "y = chunk(self.ff, x)")),
        (_TORCH, SourceLine("torch/nn/modules/linear.py", 134, "return F.linear(")),
        ('File "net.py", line 7, in forward', SourceLine("net.py", 7, "")),
        ("no trace", None),
        (f"{_OURS}{' ' * 60_000}", None),
        ('File "NOT8", line 7, in forward', None),
    ],
    ids=["own", "package", "behind torch", "torch alone", "without code", "other text", "endless", "not UTF-8"],
)
def test_line_is_the_innermost_outside_pytorch(trace: str, line: SourceLine | None) -> None:
    assert node_with(trace=trace).line == line


def test_verbose_exports_of_the_older_exporter_note_lines_innermost_first() -> None:
    torch = "/v/lib/python3.11/site-packages/torch/nn/modules"
    frames = (f"{torch}/linear.py(134): forward", f"{torch}/module.py(1768): _slow_forward", "/me/net.py(4): forward")
    doc = "\n".join((*frames, "/me/go.py(9): run", ""))
    assert node_with(doc=doc).line == SourceLine("/me/net.py", 4, "")
    assert node_with(doc="A sentence of its author (2): or more.").line is None


@pytest.mark.parametrize(
    ("name", "scopes", "module"),
    [
        ("sm", "['', 'encoder', 'encoder.layer.0', 'exp']", "encoder.layer.0"),
        ("sm", "['', 'exp']", ""),
        ("sm", None, None),
        ("/encoder/layer.0/attention/Exp", None, "encoder.layer.0.attention"),
        ("/layer1/layer1.0/conv1/Exp", None, "layer1.0.conv1"),
        ("/Exp", None, ""),
        ("model/block/Exp", None, None),
        ("sm", "['', 'NOT8', 'exp']", None),
    ],
)
def test_module_is_spelled_as_pytorch_does(name: str, scopes: str | None, module: str | None) -> None:
    noted = {} if scopes is None else {"scopes": scopes}
    assert node_with(name, **noted).module == module
