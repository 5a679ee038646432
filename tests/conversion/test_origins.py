"""What mezzo's own nodes and names tell of where they belong."""

import random

import onnx
import onnx.parser
import pytest
from random_models import random_model
from sweeps import swept

import mezzo
from mezzo.formats.dtypes import DType
from mezzo.onnx.opening import open_model

_SCOPES = "pkg.torch.onnx.name_scopes"
_NOTED = {
    _SCOPES: "['', 'encoder', 'encoder.proj', 'mm']",
    "pkg.torch.onnx.class_hierarchy": "['Net', 'Encoder', 'Linear', 'aten.linear.default']",
    "pkg.torch.onnx.stack_trace": 'File "net.py", line 7, in forward\n    return self.proj(x)',
    "namespace": ": Net/encoder: Encoder/encoder.proj: Linear/mm: aten.linear.default",
}
_MODEL = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[4,4] x) => (float[4,4] y) <float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}>
    { [mm] h = MatMul(x, w)  [sm] s = Softmax<axis=-1>(h)  [last] y = MatMul(s, w) }"""


def _noted_model(*names: str) -> onnx.ModelProto:
    """The model, with what an exporter notes at the nodes of these names, and the node's name in it."""
    model = onnx.parser.parse_model(_MODEL)
    for node in model.graph.node:
        for key, value in _NOTED.items() if node.name in names else ():
            node.metadata_props.add(key=key, value=value.replace("mm", node.name))
        node.metadata_props.add(key="pkg.torch.onnx.fx_node", value="not of the module")
    return model


def _casts(model: onnx.ModelProto) -> dict[str, dict[str, str]]:
    """What each Cast notes, by what it reads."""
    return {
        node.input[0]: {entry.key: entry.value for entry in node.metadata_props}
        for node in model.graph.node
        if node.op_type == "Cast"
    }


def test_a_cast_notes_the_module_of_the_node_whose_result_it_casts() -> None:
    casts = _casts(mezzo.convert(_noted_model("mm", "sm", "last")).model)
    assert casts["h"] == _NOTED
    assert casts["s"] == {key: value.replace("mm", "sm") for key, value in _NOTED.items()}


def test_a_cast_of_an_input_notes_the_module_of_who_reads_it() -> None:
    assert _casts(mezzo.convert(_noted_model("mm")).model)["x"] == _NOTED


def test_a_cast_notes_nothing_where_nothing_is_known() -> None:
    assert not any(_casts(mezzo.convert(_noted_model()).model).values())


def test_a_region_holds_the_casts_inside_it() -> None:
    result = mezzo.convert(_noted_model("mm", "sm", "last")).model
    graph = open_model(result).read(DType.FLOAT16).graph
    cast = next(node for node in graph.nodes if node.name.startswith("x_f16"))
    assert graph.modules[cast.id] == "encoder.proj"


@pytest.mark.parametrize("seed", range(swept(60)))
def test_nodes_keep_their_names_through_a_conversion(seed: int) -> None:
    """Unnamed ones too, whose name is made up from an output's, and those in bodies and functions."""
    model = random_model(random.Random(seed), 1 + seed % 12)
    before = open_model(model).read(DType.FLOAT16).graph
    after = open_model(mezzo.convert(model, io=("keep", "low")[seed % 2], fuse="none").model).read(DType.FLOAT16).graph
    wanted = [node.name for node in before.nodes if node.kind.value in ("op", "tie", "input", "output")]
    assert set(wanted) <= after.by_name.keys()
