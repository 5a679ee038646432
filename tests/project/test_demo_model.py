"""The committed demo model is what the demo says it is. Needs onnx and onnxruntime, both base dependencies."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
MODEL = DIGITS / "digits.onnx"


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load(MODEL, load_external_data=False)


@pytest.fixture(scope="module")
def held_out() -> dict[str, np.ndarray]:
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as file:
        return dict(file)


def test_file_is_small_enough_to_commit() -> None:
    assert MODEL.stat().st_size < 2_000_000


def test_model_passes_the_full_checker(model: onnx.ModelProto) -> None:
    onnx.checker.check_model(model, full_check=True)


def test_weights_are_inside_the_file(model: onnx.ModelProto) -> None:
    external = [tensor.name for tensor in model.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL]
    assert external == []


def test_batch_is_symbolic(model: onnx.ModelProto) -> None:
    for value in (*model.graph.input, *model.graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch", value.name


def test_node_names_are_present_and_unique(model: onnx.ModelProto) -> None:
    names = [node.name for node in model.graph.node]
    assert all(names)
    assert len(set(names)) == len(names)


def test_network_has_the_parts_that_make_mixed_precision_hard(model: onnx.ModelProto) -> None:
    ops = {node.op_type for node in model.graph.node}
    assert ops >= {"Conv", "BatchNormalization", "MatMul", "Softmax", "LayerNormalization", "Erf", "ReduceMean"}


def test_attention_softmax_stands_between_two_products_of_activations(model: onnx.ModelProto) -> None:
    weights = {tensor.name for tensor in model.graph.initializer}
    producers = {output: node for node in model.graph.node for output in node.output}
    attended = [
        node
        for node in model.graph.node
        if node.op_type == "MatMul" and not weights & set(node.input) and producers[node.input[0]].op_type == "Softmax"
    ]
    assert len(attended) == 2


def test_model_carries_no_traces_of_the_exporting_machine(model: onnx.ModelProto) -> None:
    owners = (model, model.graph, *model.graph.node, *model.graph.initializer, *model.graph.value_info)
    assert not any(owner.metadata_props or owner.doc_string for owner in owners)


def test_held_out_digits_cover_every_class_as_the_model_wants_them(held_out: dict[str, np.ndarray]) -> None:
    images, labels = held_out["image"], held_out["label"]
    assert (images.dtype, labels.dtype) == (np.float32, np.int64)
    assert images.shape == (len(labels), 1, 8, 8)
    assert images.min() == -1.0
    assert images.max() == 1.0
    assert np.bincount(labels, minlength=10).min() >= 50


def test_accuracy_on_held_out_digits_is_at_least_97_percent(held_out: dict[str, np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"image": held_out["image"]})
    assert (logits.argmax(axis=1) == held_out["label"]).mean() >= 0.97
