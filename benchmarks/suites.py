"""Where the models of the conformance run come from."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from float_nodes import holds_float32

from mezzo.onnx.run.session import Engine, native_session

RANDOM_OPS = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
)


@dataclass(frozen=True, slots=True)
class Case:
    """A model with one example. `expected` is by output name; None asks for the original's own FP32 answers.

    `random_because` says why answers cannot be compared, if they cannot.
    """

    name: str
    model: onnx.ModelProto
    feeds: dict[str, Any] = field(repr=False)
    expected: dict[str, Any] | None = field(repr=False)
    random_because: str | None = None


def operators() -> Iterator[Case]:
    """ONNX's own operator test models that hold FP32 and pass the full check, with ONNX's answers."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases compute infinities on purpose
        cases = collect_testcases(None)
    for case in cases:
        model = case.model
        if model is None or not case.data_sets:
            continue
        try:
            onnx.checker.check_model(model, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            continue
        if not holds_float32(model):
            continue
        inputs, outputs = case.data_sets[0]
        feeds = {port.name: _datum(value) for port, value in zip(model.graph.input, inputs, strict=False)}
        expected = {port.name: _datum(value) for port, value in zip(model.graph.output, outputs, strict=True)}
        yield Case(case.name, model, feeds, expected, why_random(model))


def zoo() -> Iterator[Case]:
    """The onnx package's light models as they are: full graphs whose weights are constants of one number."""
    for path in _light_models():
        model = onnx.load(path)
        yield Case(path.stem, model, _image_feeds(model), None)


def zoo_weights() -> Iterator[Case]:
    """The light models with seeded random weights of the usual sizes in place of their constants.

    Batch normalizations get statistics that fit their inputs, as training would have left them.
    """
    for path in _light_models():
        model = fill_weights(onnx.load(path), seed=11)
        feeds = _image_feeds(model)
        set_statistics(model, feeds)
        yield Case(f"{path.stem}_weights", model, feeds, None)


def architectures(cache: Path) -> Iterator[Case]:
    """The exports that `architectures.py` left in `cache`, with PyTorch's FP32 answers."""
    for path in sorted(cache.glob("*.onnx")):
        with np.load(path.with_suffix(".npz")) as stored:
            arrays = {name: stored[name] for name in stored.files}
        feeds = {name[3:]: value for name, value in arrays.items() if name.startswith("in:")}
        expected = {name[4:]: value for name, value in arrays.items() if name.startswith("out:")}
        yield Case(path.stem, onnx.load(path), feeds, expected)


def why_random(model: onnx.ModelProto) -> str | None:
    """Say which operator draws random numbers, if one does; bodies and functions count."""
    for node in _all_nodes(model):
        if node.op_type in RANDOM_OPS:
            return f"{node.op_type} draws random numbers"
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
            return "Dropout in training mode draws random numbers"
    return None


def fill_weights(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """Replace the ConstantOfShape nodes of a model, in place, by initializers with random weights."""
    generator = np.random.default_rng(seed)
    shapes = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    users: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in model.graph.node:
        for operand, name in enumerate(node.input):
            users.setdefault(name, []).append((node, operand))
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in shapes:
            kept.append(node)
            continue
        user, operand = users[node.output[0]][0]
        if user.op_type == "Unsqueeze":
            user, operand = users[user.output[0]][0]
        weight = _draw(generator, tuple(shapes[node.input[0]]), user.op_type, operand)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.ir_version = max(model.ir_version, 4)  # before, every initializer had to be an input
    return model


def set_statistics(model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    """Set the statistics of every BatchNormalization, in place: mean 0, variance the mean square of its input.

    Random weights behind subtracted means blow up any rounding from layer to layer, as trained ones do not.
    Source: Yang et al., "A mean field theory of batch normalization", 2019.
    """
    norms = [node for node in model.graph.node if node.op_type == "BatchNormalization"]
    if not norms:
        return
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    statistics = {name: onnx.numpy_helper.to_array(weights[name]) for node in norms for name in node.input[3:5]}
    session = native_session(_measuring(model, norms, list(statistics)), Engine.ONNXRUNTIME)
    for node in norms:  # in their order: each changes what the next ones see
        seen = session.run(feeds | statistics)
        statistics[node.input[3]] = np.zeros_like(statistics[node.input[3]])
        statistics[node.input[4]] = seen[f"{node.input[0]}_square"] + np.float32(1e-3)
    for name, value in statistics.items():
        weights[name].CopyFrom(onnx.numpy_helper.from_array(value, name))


def _measuring(model: onnx.ModelProto, norms: list[onnx.NodeProto], statistics: list[str]) -> onnx.ModelProto:
    """Make a model that takes the statistics of its norms as inputs and gives the mean square of the norms' inputs."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    for tensor in [tensor for tensor in graph.initializer if tensor.name in statistics]:
        graph.initializer.remove(tensor)
    declared = {port.name for port in graph.input}
    for name in statistics:
        if name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    del graph.output[:]
    for name in dict.fromkeys(node.input[0] for node in norms):
        squares, square = f"{name}_squares", f"{name}_square"
        graph.node.append(onnx.helper.make_node("Mul", [name, name], [squares]))
        graph.node.append(onnx.helper.make_node("ReduceMean", [squares], [square], axes=[0, 2, 3], keepdims=0))
        graph.output.append(onnx.helper.make_tensor_value_info(square, onnx.TensorProto.FLOAT, None))
    return result


def _draw(generator: np.random.Generator, shape: tuple[int, ...], op: str, operand: int) -> np.ndarray[Any, Any]:
    """Draw weights the way networks are initialised: He et al. 2015 for products, scales near 1, offsets near 0."""
    normal = generator.standard_normal(shape, dtype=np.float32)
    match op, operand:
        case ("Conv", 1):
            return normal * np.float32(np.sqrt(2 / np.prod(shape[1:])))
        case ("Gemm", 1):
            return normal * np.float32(np.sqrt(2 / max(shape)))
        case ("BatchNormalization", 1 | 4) | ("Mul", _):
            return np.float32(0.5) + generator.random(shape, dtype=np.float32)
        case _:
            return normal * np.float32(0.05)


def _image_feeds(model: onnx.ModelProto) -> dict[str, Any]:
    constants = {tensor.name for tensor in model.graph.initializer}
    generator = np.random.default_rng(5)
    return {
        port.name: generator.standard_normal(
            [dim.dim_value for dim in port.type.tensor_type.shape.dim], dtype=np.float32
        )
        for port in model.graph.input
        if port.name not in constants
    }


def _light_models() -> list[Path]:
    import onnx.backend.test

    return sorted((Path(onnx.backend.test.__file__).parent / "data" / "light").glob("*.onnx"))


def _all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    pending = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                pending.extend(attribute.g.node)


def _datum(value: Any) -> Any:
    """Test data as numpy arrays, lists of them and None."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return onnx.numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return onnx.numpy_helper.to_optional(value)
    if isinstance(value, list | tuple):
        return [_datum(element) for element in value]
    return value if value is None else np.asarray(value)
