"""Ways to spoil an ONNX model: in its bytes, in its fields, and in the files beside it.

Every mutation takes a seeded generator, so that a mutant is made again from its number.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import onnx
from onnx import AttributeProto, TensorProto, helper

FieldMutation = Callable[[onnx.ModelProto, random.Random], None]

_OPS = (
    "Add", "MatMul", "Cast", "CastLike", "Constant", "ConstantOfShape", "If", "Loop", "Scan", "SequenceAt",
    "SequenceConstruct",
    "SequenceMap", "SplitToSequence", "Optional", "OptionalGetElement", "Resize", "Split", "TopK", "Where",
    "BatchNormalization",
    "LayerNormalization", "LSTM", "QuantizeLinear", "DequantizeLinear", "Identity", "Reshape", "Mystery", "", "\x00",
    "Ünïcode\n",
)  # fmt: skip
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "local", "unknown.domain", "ai.onnx.training", "a b\nc")
_NUMBERS = (0, 1, -1, 2, 3, 7, 16, 255, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
_FLOATS = (0.0, -1.0, 1e38, -3.4e38, 65520.0, 1e-45, float("inf"), float("-inf"), float("nan"))
_TEXTS = ("", " ", "x", "\n", "a/b:0", "é" * 50, "n" * 5000, "..", "../../etc/passwd", "in0", "v1", "v2", "flag")
_ATTRIBUTES = (
    "to",
    "axis",
    "axes",
    "perm",
    "value",
    "body",
    "then_branch",
    "dtype",
    "num_scan_inputs",
    "alpha",
    "slope",
    "zz",
)
_DATA_TYPES = (0, 1, 2, 7, 8, 9, 10, 11, 14, 16, 17, 21, 23, 24, 25, 99, -1, 2**31 - 1)


def _graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    found = [model.graph]
    for graph in found:
        found += [a.g for node in graph.node for a in node.attribute if a.type == AttributeProto.GRAPH]
        if len(found) > 50:
            break
    return found


def _node(model: onnx.ModelProto, rng: random.Random) -> onnx.NodeProto:
    pools = [graph.node for graph in _graphs(model)] + [function.node for function in model.functions]
    pools = [pool for pool in pools if len(pool)]
    return rng.choice(rng.choice(pools)) if pools else onnx.NodeProto()


def _tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    for graph in _graphs(model):
        yield from graph.initializer
        for node in graph.node:
            yield from (a.t for a in node.attribute if a.type == AttributeProto.TENSOR)


def _tensor(model: onnx.ModelProto, rng: random.Random) -> TensorProto:
    found = list(_tensors(model))
    if not found:
        model.graph.initializer.append(helper.make_tensor("weight", TensorProto.FLOAT, [2, 2], [1.0, 2.0, 3.0, 4.0]))
        found = [model.graph.initializer[-1]]
    return rng.choice(found)


def _names(model: onnx.ModelProto) -> list[str]:
    return [name for graph in _graphs(model) for node in graph.node for name in (*node.input, *node.output)] or ["x"]


def _change_op(model: onnx.ModelProto, rng: random.Random) -> None:
    _node(model, rng).op_type = rng.choice(_OPS)


def _change_domain(model: onnx.ModelProto, rng: random.Random) -> None:
    _node(model, rng).domain = rng.choice(_DOMAINS)


def _change_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if not node.attribute or rng.random() < 0.2:
        node.attribute.add(name=rng.choice(_ATTRIBUTES), type=rng.randrange(16) or 1, i=rng.choice(_NUMBERS))
        return
    attribute = rng.choice(node.attribute)
    match rng.randrange(9):
        case 0:
            attribute.type = rng.choice(list(AttributeProto.AttributeType.values()))
        case 1:
            attribute.i = rng.choice(_NUMBERS)
        case 2:
            attribute.f = rng.choice(_FLOATS)
        case 3:
            attribute.s = rng.choice([b"", b"\xff\xfe", b"linear", b"\x00" * 100])
        case 4:
            attribute.ints[:] = [rng.choice(_NUMBERS) for _ in range(rng.randrange(5))]
        case 5:
            attribute.ref_attr_name = rng.choice(_ATTRIBUTES)
        case 6:
            node.attribute.remove(attribute)
        case 7:
            node.attribute.append(attribute)
        case _:
            attribute.name = rng.choice(_ATTRIBUTES)


def _change_dims(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = _tensor(model, rng)
    if tensor.dims and rng.random() < 0.6:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(_NUMBERS)
    else:
        tensor.dims[:] = [rng.choice(_NUMBERS) for _ in range(rng.choice([0, 1, 3, 200]))]


def _change_data_type(model: onnx.ModelProto, rng: random.Random) -> None:
    _tensor(model, rng).data_type = rng.choice(_DATA_TYPES)


def _change_payload(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = _tensor(model, rng)
    match rng.randrange(6):
        case 0:
            tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
        case 1:
            tensor.raw_data += bytes(rng.randrange(1, 9))
        case 2:
            tensor.float_data.extend([1.0, 1e6])
        case 3:
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
        case 4:
            tensor.int32_data.extend([1, 2, 70_000])
        case _:
            tensor.segment.begin, tensor.segment.end = 0, rng.choice([1, 2**62])


def _point_outside(model: onnx.ModelProto, rng: random.Random) -> None:
    """Say that a tensor's payload is in a file; some of them exist (see `make_neighbours`)."""
    tensor = _tensor(model, rng)
    if rng.random() < 0.8:
        tensor.data_location = TensorProto.EXTERNAL
    if rng.random() < 0.7:
        tensor.ClearField("raw_data")
        tensor.ClearField("float_data")
    places = (
        "../outside.bin", "/etc/passwd", "/dev/zero", "", ".", "data.bin", "data.bin", "link.bin", "loop.bin",
        "pipe.bin", "folder",
        "model.onnx", "missing.bin", "a\x00b", "folder/../../outside.bin", "C:\\data.bin", "n" * 300, "~/data.bin",
    )  # fmt: skip
    entries = {"location": rng.choice(places)}
    if rng.random() < 0.6:
        entries["offset"] = rng.choice(["0", "4", "-1", "x", "", str(2**63), "9" * 40, " 1", "1e3"])
    if rng.random() < 0.6:
        entries["length"] = rng.choice(["64", "0", "-5", "zz", str(2**62), "9" * 40])
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


def _change_nodes(model: onnx.ModelProto, rng: random.Random) -> None:
    nodes = rng.choice(_graphs(model)).node
    if not nodes:
        return
    match rng.randrange(6):
        case 0:
            nodes.append(rng.choice(nodes))
        case 1:
            del nodes[rng.randrange(len(nodes))]
        case 2:
            mixed = list(nodes)
            rng.shuffle(mixed)
            del nodes[:]
            nodes.extend(mixed)
        case 3:  # a cycle
            late = rng.choice(nodes)
            early = nodes[0]
            if late.output and early.input:
                early.input[rng.randrange(len(early.input))] = late.output[0]
        case 4:
            node = rng.choice(nodes)
            node.input.extend(rng.choices(_names(model), k=rng.choice([1, 1, 30])))
        case _:
            node = rng.choice(nodes)
            ports = node.input if rng.random() < 0.5 else node.output
            if ports:
                del ports[rng.randrange(len(ports))]


def _change_names(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    pool = [*_TEXTS, *_names(model)]
    ports = node.input if rng.random() < 0.5 else node.output
    if ports and rng.random() < 0.8:
        ports[rng.randrange(len(ports))] = rng.choice(pool)
    else:
        node.name = rng.choice(pool)


def _change_interface(model: onnx.ModelProto, rng: random.Random) -> None:
    graph = rng.choice(_graphs(model))
    infos = rng.choice([graph.input, graph.output, graph.value_info])
    if not infos:
        infos.append(helper.make_tensor_value_info(rng.choice(_names(model)), rng.choice([1, 7, 10]), [4, 4]))
    info = rng.choice(infos)
    match rng.randrange(8):
        case 0:
            info.type.tensor_type.elem_type = rng.choice(_DATA_TYPES)
        case 1:
            info.ClearField("type")
        case 2:
            info.type.sequence_type.elem_type.tensor_type.elem_type = rng.choice(_DATA_TYPES)
        case 3:
            info.type.optional_type.elem_type.sequence_type.elem_type.tensor_type.elem_type = 1
        case 4:
            infos.append(info)
        case 5:
            infos.remove(info)
        case 6:
            info.name = rng.choice([*_TEXTS, *_names(model)])
        case _:
            info.type.tensor_type.shape.dim.add(dim_value=rng.choice(_NUMBERS))


def _change_versions(model: onnx.ModelProto, rng: random.Random) -> None:
    match rng.randrange(6):
        case 0:
            del model.opset_import[:]
        case 1:
            model.opset_import.add(domain=rng.choice(_DOMAINS), version=rng.choice(_NUMBERS))
        case 2 | 3 if model.opset_import:
            version = rng.choice([*range(1, 30), 0, -5, 10**9, 2**62])
            rng.choice(model.opset_import).version = version
        case 4:
            model.ir_version = rng.choice([0, 1, 3, 4, 10, 11, 12, 13, 999, -1, 2**62])
        case _:
            model.opset_import.extend(list(model.opset_import))


def _nest(model: onnx.ModelProto, rng: random.Random) -> None:
    """Wrap the graph's first node into Ifs within Ifs."""
    graph = model.graph
    if not graph.node or not graph.node[0].output:
        return
    inner = onnx.GraphProto(name="deepest")
    inner.node.append(graph.node[0])
    name = graph.node[0].output[0]
    inner.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    for level in range(rng.choice([1, 2, 5, 20, 45, 70])):
        outer = onnx.GraphProto(name=f"level{level}")
        outer.node.append(
            helper.make_node("If", ["flag"], [f"{name}_{level}"], then_branch=inner, else_branch=onnx.GraphProto())
        )
        outer.node[0].attribute[1].g.CopyFrom(onnx.GraphProto(name="empty"))
        outer.output.append(helper.make_tensor_value_info(f"{name}_{level}", TensorProto.FLOAT, None))
        inner = outer
    graph.node[0].CopyFrom(inner.node[0])
    graph.node[0].output[0] = name


def _change_functions(model: onnx.ModelProto, rng: random.Random) -> None:
    if not model.functions or rng.random() < 0.3:
        made = helper.make_function("local", "Again", ["a"], ["b"], [], [helper.make_opsetid("", 17)])
        called = rng.choice(["Again", "Relu", "Other"])
        domain = "" if called == "Relu" else "local"
        made.node.append(helper.make_node(called, ["a"], ["b"], domain=domain))
        model.functions.append(made)
        model.opset_import.add(domain="local", version=1)
        node = _node(model, rng)
        node.op_type, node.domain = "Again", "local"
        return
    function = rng.choice(model.functions)
    match rng.randrange(8):
        case 0:
            function.node.add(op_type=function.name, domain=function.domain, input=function.input, output=["again"])
        case 1:
            del function.opset_import[:]
        case 2:
            model.functions.append(function)
        case 3:
            function.input.append(rng.choice(_TEXTS))
        case 4:
            function.output.append(rng.choice(_TEXTS))
        case 5:
            model.functions.remove(function)
        case 6:
            function.name = rng.choice(_TEXTS)
        case _:
            del function.attribute[:]


def _change_initializers(model: onnx.ModelProto, rng: random.Random) -> None:
    graph = rng.choice(_graphs(model))
    tensor = TensorProto()
    tensor.CopyFrom(_tensor(model, rng))
    match rng.randrange(4):
        case 0:
            tensor.name = rng.choice([*_TEXTS, *_names(model)])
            graph.initializer.append(tensor)
        case 1:
            sparse = graph.sparse_initializer.add(dims=[rng.choice(_NUMBERS)])
            sparse.values.CopyFrom(tensor)
            sparse.indices.data_type = rng.choice(_DATA_TYPES)
        case 2 if graph.initializer:
            del graph.initializer[rng.randrange(len(graph.initializer))]
        case _:
            graph.quantization_annotation.add(tensor_name=tensor.name).quant_parameter_tensor_names.add(
                key="SCALE_TENSOR", value="q"
            )


def _clear(model: onnx.ModelProto, rng: random.Random) -> None:
    match rng.randrange(4):
        case 0:
            model.ClearField("graph")
        case 1:
            del model.graph.node[:]
        case 2:
            del model.graph.output[:]
        case _:
            model.training_info.add().algorithm.CopyFrom(model.graph)


FIELD_MUTATIONS: tuple[FieldMutation, ...] = (
    _change_op, _change_op, _change_domain, _change_attribute, _change_attribute, _change_dims, _change_data_type,
    _change_payload,
    _point_outside, _change_nodes, _change_nodes, _change_names, _change_names, _change_interface, _change_interface,
    _change_versions, _nest, _change_functions, _change_initializers, _clear,
)  # fmt: skip


def spoil_bytes(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """Flip, cut, insert, repeat, splice, or break the text of a name."""
    if not data:
        return rng.randbytes(rng.randrange(64))
    at = rng.randrange(len(data))
    match rng.randrange(8):
        case 0 | 1:
            return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        case 2:
            return data[:at]
        case 3:
            return data[:at] + rng.randbytes(rng.choice([1, 2, 8, 100])) + data[at:]
        case 4:
            return data[:at] + data[at + rng.choice([1, 4, 50]) :]
        case 5:
            end = at + rng.choice([2, 30, 300])
            return data[:end] + data[at:end] + data[end:]
        case 6:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            return data[:at] + other[start : start + rng.choice([4, 60, 1000])] + data[at:]
        case _:
            name = rng.choice([b"in0", b"v1", b"v2", b"Add", b"random", b"x"])
            return data.replace(name, (b"\xff\xfe\xfd" * 3)[: len(name)], rng.choice([1, 9]))


def make_neighbours(folder: Path) -> None:
    """Put beside the model what external data may name: a file, links out of the folder, a pipe, a folder."""
    (folder / "data.bin").write_bytes(bytes(range(256)) * 4)
    (folder / "folder").mkdir()
    (folder / "link.bin").symlink_to("/etc/passwd")
    (folder / "loop.bin").symlink_to("loop.bin")
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.bin")


def spoil(model: onnx.ModelProto, others: Sequence[bytes], rng: random.Random) -> bytes:
    """Make a mutant: one in ten is left whole, one in three is spoilt in its bytes, the others in their fields."""
    draw = rng.random()
    if draw < 0.1:
        return model.SerializeToString()
    if draw < 0.4:
        data = model.SerializeToString()
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            data = spoil_bytes(data, others, rng)
        return data
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        try:
            rng.choice(FIELD_MUTATIONS)(copy, rng)
        except (ValueError, TypeError):
            continue  # protobuf itself refuses the number or the text
    return copy.SerializeToString()
