"""Functions that call each other without end, or so often that no machine could follow: one line, at once."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as h
import pytest

import mezzo
from mezzo.common.errors import ModelError

_IMPORTS = [h.make_opsetid("", 21), h.make_opsetid("f", 1)]
_DATA = {"x": np.ones((2, 2), np.float32)}
Calls = dict[str, list[str]]


def _function(name: str, callees: list[str], *, in_a_body: bool = False) -> onnx.FunctionProto:
    """A function that hands its input through its callees, or through Relu where it has none; all of it in both
    branches of an If if asked.
    """
    steps = [("f", callee) for callee in callees] or [("", "Relu")]
    names = [*(f"v{number}" for number in range(len(steps))), "y"]
    nodes = [
        h.make_node(op, [names[number - 1] if number else "x"], [names[number]], domain=domain)
        for number, (domain, op) in enumerate(steps)
    ]
    nodes.append(h.make_node("Identity", [names[len(steps) - 1]], ["y"]))
    if in_a_body:
        body = h.make_graph(nodes, "body", [], [h.make_tensor_value_info("y", 1, [2, 2])])
        one = h.make_node("Constant", [], ["c"], value=h.make_tensor("c", onnx.TensorProto.BOOL, [], [True]))
        nodes = [one, h.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)]
    return h.make_function("f", name, ["x"], ["y"], nodes, _IMPORTS)


def _model(calls: Calls, *, in_a_body: bool = False, main: str = "f0") -> onnx.ModelProto:
    ports = [[h.make_tensor_value_info(name, 1, [2, 2])] for name in "xy"]
    domain = "f" if main in calls else ""
    graph = h.make_graph([h.make_node(main, ["x"], ["y"], domain=domain)], "g", *ports)
    functions = [_function(name, callees, in_a_body=in_a_body) for name, callees in calls.items()]
    return h.make_model(graph, opset_imports=_IMPORTS, functions=functions, ir_version=10)


def _chain(length: int, times: int) -> Calls:
    """Functions of which each calls the next one so often."""
    return {f"f{n}": [f"f{n + 1}"] * times for n in range(length - 1)} | {f"f{length - 1}": []}


_DOUBLING = _chain(31, 2)
CASES: dict[str, tuple[onnx.ModelProto, str]] = {
    "doubling": (_model(_DOUBLING), "make more than 10^10 nodes"),
    "doubling in bodies": (_model(_chain(12, 2), in_a_body=True), "make 53127847 nodes, most of them in 'f0'"),
    "wide": (_model(_chain(3, 700)), "make 2943504 nodes, most of them in 'f0'"),
    "itself": (_model({"f0": ["f0"]}), "function 'f0' calls itself, which no run would end"),
    "each other": (_model({"f0": ["f1"], "f1": ["f0"]}), "function 'f0' calls itself through 'f1'"),
    "itself in a body": (_model({"f0": ["f1"], "f1": ["f1"]}, in_a_body=True), "function 'f1' calls itself"),
    "deep": (_model(_chain(5000, 1)), "calls of functions nest deeper than 64"),
}
VERBS: dict[str, Callable[[onnx.ModelProto], object]] = {
    "convert": mezzo.convert,
    "plan": mezzo.plan,
    "show": mezzo.show,
    "compare_strategies": mezzo.compare_strategies,
    "emulate": lambda model: mezzo.emulate(model, _DATA),
    "compare": lambda model: mezzo.compare(model, model, _DATA),
    "ranges": lambda model: mezzo.ranges(model, _DATA),
    "sensitivity": lambda model: mezzo.sensitivity(model, _DATA),
    "tune": lambda model: mezzo.tune(model, data=_DATA, max_error=1e-2),
    "convert on data": lambda model: mezzo.convert(model, data=_DATA),
}


@pytest.mark.parametrize("case", CASES)
def test_calls_are_counted_before_they_are_followed(case: str) -> None:
    model, told = CASES[case]
    with pytest.raises(ModelError) as caught:
        mezzo.plan(model)
    assert told in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_counts_first(verb: str) -> None:
    with pytest.raises(ModelError, match="at most 400000 can be planned"):
        VERBS[verb](_model(_DOUBLING))


def test_folder_with_such_a_model_names_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    onnx.save(_model(_DOUBLING), tmp_path / "in" / "m.onnx")
    with pytest.raises(ModelError, match=r"'m.onnx': .* at most 400000 can be planned"):
        mezzo.convert_folder(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("in_a_body", [False, True])
def test_functions_that_end_are_converted(in_a_body: bool) -> None:
    model = _model(_chain(5, 2), in_a_body=in_a_body)
    onnx.checker.check_model(mezzo.convert(model, policy="aggressive").model)


def test_what_nobody_calls_counts_for_nothing() -> None:
    assert mezzo.plan(_model(_DOUBLING, main="Relu")).nodes
