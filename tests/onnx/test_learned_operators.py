"""Every operator of the machine learning domain, between neighbours that go low: converted, emulated and compared."""

import numpy as np
import onnx
import onnx.helper as h
import onnx.numpy_helper
import pytest
from onnx import TensorProto as T

import mezzo
from mezzo.onnx.run.session import Engine, native_session

_ML = "ai.onnx.ml"
_TREE = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.1, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}  # fmt: skip
_LEAVES = {"class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [0, 1], "class_weights": [1.0, 1.0]}
_LINES = {"coefficients": [1.0, 2.0, 3.0, 4.0, -1.0, -2.0, -3.0, -4.0], "intercepts": [0.5, 0.1]}
_VECTORS = {
    "kernel_params": [0.5, 0.0, 3.0], "kernel_type": "RBF", "rho": [0.1],
    "support_vectors": [1.0, 2.0, 3.0, 4.0, 0.0, 1.0, 0.0, 1.0],
}  # fmt: skip
_TO_FLOATS = {"keys_int64s": [0, 1], "values_floats": [0.5, 0.25]}


def _ml(op: str, reads: list[str], makes: list[str], **attributes: object) -> onnx.NodeProto:
    return h.make_node(op, reads, makes, domain=_ML, **attributes)


# What stands behind a product: h is its result, r what goes on as floats, `s` and `lab` come out as they are.
_TREES = _ml("TreeEnsembleClassifier", ["h"], ["lab", "r"], **_TREE, **_LEAVES, classlabels_int64s=[0, 1])
_NAMED_TREES = _ml("TreeEnsembleClassifier", ["h"], ["lab", "p"], **_TREE, **_LEAVES, classlabels_strings=["a", "b"])
CASES: dict[str, list[onnx.NodeProto]] = {
    "ArrayFeatureExtractor": [_ml("ArrayFeatureExtractor", ["h", "places"], ["r"])],
    "Binarizer": [_ml("Binarizer", ["h"], ["r"], threshold=0.1)],
    "FeatureVectorizer": [_ml("FeatureVectorizer", ["h", "x"], ["r"], inputdimensions=[4, 4])],
    "Imputer": [_ml("Imputer", ["h"], ["r"], imputed_value_floats=[1.0], replaced_value_float=0.0)],
    "LabelEncoder of floats": [_ml("LabelEncoder", ["h"], ["r"], keys_floats=[0.0], values_floats=[5.0])],
    "LabelEncoder to floats": [
        _TREES, _ml("LabelEncoder", ["lab"], ["f"], **_TO_FLOATS), h.make_node("Sin", ["f"], ["s"])
    ],
    "LabelEncoder of text": [
        _NAMED_TREES,
        _ml("LabelEncoder", ["lab"], ["s"], keys_strings=["a", "b"], values_floats=[1.0, 2.0]),
        h.make_node("Mul", ["s", "s"], ["r"]),
    ],
    "LabelEncoder to text": [
        _TREES, _ml("LabelEncoder", ["lab"], ["s"], keys_int64s=[0, 1], values_strings=["u", "v"])
    ],
    "LabelEncoder to whole numbers": [
        _NAMED_TREES,
        _ml("LabelEncoder", ["lab"], ["s"], keys_strings=["a", "b"], values_int64s=[1, 2]),
        h.make_node("Cast", ["s"], ["r"], to=T.FLOAT),
    ],
    "LinearClassifier": [_ml("LinearClassifier", ["h"], ["lab", "r"], **_LINES, classlabels_ints=[0, 1])],
    "LinearClassifier of text": [
        _ml("LinearClassifier", ["h"], ["lab", "r"], **_LINES, classlabels_strings=["a", "b"])
    ],
    "LinearRegressor": [
        _ml("LinearRegressor", ["h"], ["r"], coefficients=[1.0, 2.0, 3.0, 4.0], intercepts=[0.5], targets=1)
    ],
    "Normalizer": [_ml("Normalizer", ["h"], ["r"], norm="L2")],
    "OneHotEncoder": [_ml("OneHotEncoder", ["h"], ["r"], cats_int64s=[0, 1, 2])],
    "SVMClassifier": [
        _ml("SVMClassifier", ["h"], ["lab", "r"], **_VECTORS, classlabels_ints=[0, 1], coefficients=[1.0, -1.0],
            vectors_per_class=[1, 1])
    ],
    "SVMRegressor": [_ml("SVMRegressor", ["h"], ["r"], **_VECTORS, coefficients=[1.0, 2.0], n_supports=2)],
    "Scaler": [_ml("Scaler", ["h"], ["r"], offset=[0.1] * 4, scale=[2.0] * 4)],
    "TreeEnsembleClassifier": [_TREES],
    "TreeEnsembleRegressor": [
        _ml("TreeEnsembleRegressor", ["h"], ["r"], **_TREE, n_targets=1, target_treeids=[0, 0],
            target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[1.5, -2.0])
    ],
}  # fmt: skip
_FEEDS = {"x": np.random.default_rng(3).standard_normal((2, 4)).astype(np.float32)}


def _model(case: str, opset: int, version: int, infos: str) -> onnx.ModelProto:
    """The case with a product before it and pointwise operators behind it. `infos` says what is told of values."""
    nodes = [h.make_node("MatMul", ["x", "w"], ["h0"]), h.make_node("Relu", ["h0"], ["h"]), *CASES[case]]
    made = {name for node in nodes for name in node.output}
    nodes += [h.make_node("Mul", ["r", "r"], ["m"]), h.make_node("Add", ["m", "r"], ["y"])]
    ports = [h.make_tensor_value_info("y", T.FLOAT, None)]
    if "s" in made:
        texts = {"LabelEncoder to text": T.STRING, "LabelEncoder to whole numbers": T.INT64}
        ports.append(h.make_tensor_value_info("s", texts.get(case, T.FLOAT), None))
    inits = [
        onnx.numpy_helper.from_array(np.random.default_rng(4).standard_normal((4, 4)).astype(np.float32), "w"),
        onnx.numpy_helper.from_array(np.array([0, 2]), "places"),
    ]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, [2, 4])], ports, inits)
    if infos == "empty":
        graph.value_info.extend(onnx.ValueInfoProto(name=name) for name in sorted(made - {"s"}))
    imports = [h.make_opsetid("", opset), h.make_opsetid(_ML, version)]
    model = h.make_model(graph, opset_imports=imports, ir_version=8)
    return onnx.shape_inference.infer_shapes(model) if infos == "inferred" else model


@pytest.mark.parametrize("infos", ["none", "inferred", "empty"])
@pytest.mark.parametrize("to", ["fp16", "bf16"])
@pytest.mark.parametrize("case", CASES)
def test_result_is_emulated_and_compared(case: str, to: str, infos: str) -> None:
    for opset, version in ((11, 2), (21, 3)):
        model = _model(case, opset, version, infos)
        native_session(model, Engine.ONNXRUNTIME).run(_FEEDS)
        made = mezzo.convert(model, to=to, policy="aggressive")
        assert made.summary.low_nodes
        mezzo.emulate(made.model, _FEEDS)
        # Trees and encoders jump, so an answer may be another: what counts is that both run, in both precisions.
        assert mezzo.compare(model, made.model, _FEEDS, max_error=0.1).outputs
