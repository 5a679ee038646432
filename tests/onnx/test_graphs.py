"""Traversal of subgraphs: of any operator, in attributes with one graph or several, and in functions."""

import onnx
from onnx import helper

from mezzo.onnx.protos.entries import add_initializer
from mezzo.onnx.protos.graphs import all_graphs, all_nodes, nodes_of, reads_of
from mezzo.onnx.protos.names import free_prefix, names_of


def _graph(name: str, *nodes: onnx.NodeProto, weights: tuple[str, ...] = ()) -> onnx.GraphProto:
    port = helper.make_tensor_value_info(f"{name}_out", onnx.TensorProto.FLOAT, None)
    tensors = [helper.make_tensor(weight, onnx.TensorProto.FLOAT, [1], [1.0]) for weight in weights]
    return helper.make_graph(list(nodes), name, [], [port], tensors)


def _model() -> onnx.ModelProto:
    """A custom operator with one subgraph, in which another has two; and a function with an If."""
    first = _graph("first", helper.make_node("Neg", ["x"], ["first_out"]))
    second = _graph("second", helper.make_node("Add", ["w", "y"], ["second_out"]), weights=("w",))
    many = helper.make_node("Choose", ["c"], ["outer_out"], domain="custom", branches=[first, second])
    outer = helper.make_node("Run", ["a"], ["main_out"], domain="custom", body=_graph("outer", many))
    inside = _graph("inside", helper.make_node("Abs", ["p"], ["inside_out"]))
    function = helper.make_function(
        "own", "f", ["p"], ["r"], [helper.make_node("If", ["p"], ["r"], then_branch=inside)], []
    )  # fmt: skip
    return helper.make_model(_graph("main", outer), functions=[function])


def test_subgraphs_of_any_operator_are_visited() -> None:
    model = _model()
    assert [graph.name for graph in all_graphs(model.graph)] == ["main", "outer", "first", "second"]
    assert [node.op_type for node in all_nodes(model.graph)] == ["Run", "Choose", "Neg", "Add"]
    assert [node.op_type for node in nodes_of(model)] == ["Run", "Choose", "Neg", "Add", "If", "Abs"]


def test_captures_are_reads_and_names_of_subgraphs_are_not() -> None:
    assert [*reads_of(_model().graph.node[0])] == ["a", "c", "x", "y"]


def test_names_of_functions_and_weights_of_subgraphs_are_in_use() -> None:
    assert names_of(_model()) >= {"a", "w", "y", "p", "r", "inside_out", "second_out"}
    assert free_prefix(_model().graph, "second_") == "second__"


def test_a_renamed_weight_of_an_old_model_is_an_input_of_its_new_name() -> None:
    model = helper.make_model(_graph("main"), ir_version=3)
    weight = helper.make_tensor("w", onnx.TensorProto.FLOAT, [1], [1.0])
    added = add_initializer(model, model.graph, weight, "w_2")
    assert (added.name, [port.name for port in model.graph.input]) == ("w_2", ["w_2"])
