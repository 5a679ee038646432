"""What the ONNX checker refuses goes back to FP32 with the reason "contract". The checker is played by a stand-in, as
no known model makes the real one refuse."""

from collections.abc import Callable

import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import DType
from mezzo.onnx.edit.checking import OnnxValidity
from mezzo.onnx.model import OnnxModel, suspects
from mezzo.onnx.opening import open_model

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N,2] x) => (float[N,2] y) <float[2,2] u = {1,2,3,4}, float[2,2] v = {1,2,3,4}, float[2,2] w = {1,2,3,4}> {
    [first] a = MatMul(x, u)
    [second] b = Gemm(a, v)
    [third] y = MatMul(b, w)
}"""
WEIGHTS = {"u": "first", "v": "second", "w": "third"}
Refuse = Callable[[set[str]], str | None]


def low_of(model: onnx.ModelProto) -> set[str]:
    """The operators of a result that run low, told by their weights."""
    stored = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return {node.name for node in model.graph.node for name in node.input if stored.get(name, 1) != 1}


def refuse(monkeypatch: pytest.MonkeyPatch, message: Refuse) -> list[set[str]]:
    """Let the checker refuse results by what runs low in them. Gives what it was shown, results only."""
    shown: list[set[str]] = []
    source = onnx.parser.parse_model(TEXT).SerializeToString(deterministic=True)

    def fault(self: OnnxModel, model: onnx.ModelProto) -> str | None:
        if model.SerializeToString(deterministic=True) == source:
            return None
        shown.append(low_of(model))
        return message(low_of(model))

    monkeypatch.setattr(OnnxModel, "find_fault", fault)
    return shown


def convert(**options: object) -> mezzo.Converted:
    return mezzo.convert(onnx.parser.parse_model(TEXT), **options)  # type: ignore[arg-type]  # names are those of `convert`


def told(plan: Plan) -> dict[str, tuple[str, str]]:
    """Precision and rule of each operator."""
    return {node.name: (str(node.precision.compute), node.rule) for node in plan.nodes if node.kind == "op"}


def test_without_a_refusal_all_of_it_runs_low(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = refuse(monkeypatch, lambda low: None)
    assert set(told(convert().plan).values()) == {("f16", "linear")}
    assert shown == [{"first", "second", "third"}]


def test_node_that_the_checker_names_goes_back_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "(op_type:Gemm, node name: second): b has inconsistent type"
    shown = refuse(monkeypatch, lambda low: words if "second" in low else None)
    result = convert()
    assert low_of(result.model) == {"first", "third"} == shown[-1]
    assert told(result.plan) == {"first": ("f16", "linear"), "second": ("f32", "contract"), "third": ("f16", "linear")}
    assert result.plan.by_name["second"].because == f"the ONNX checker refused it low: {words}"
    assert len(shown) == 2


def test_checker_that_names_an_operator_means_all_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, lambda low: "Bad node spec (MatMul)" if low & {"first", "third"} else None)
    result = convert()
    assert low_of(result.model) == {"second"}
    assert {name for name, (_, rule) in told(result.plan).items() if rule == "contract"} == {"first", "third"}


def test_refusals_that_follow_each_other_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, lambda low: f"node {min(low & {'first', 'second'})}" if low & {"first", "second"} else None)
    result = convert()
    assert low_of(result.model) == {"third"}
    because = {node.name: node.because for node in result.plan.nodes if node.rule == "contract"}
    assert because == {name: f"the ONNX checker refused it low: node {name}" for name in ("first", "second")}


def test_checker_that_names_nobody_sends_all_back(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = refuse(monkeypatch, lambda low: "it is no good" if low else None)
    result = convert()
    assert shown == [{"first", "second", "third"}]  # what came next was the source
    assert low_of(result.model) == set()
    assert {rule for _, rule in told(result.plan).values()} == {"contract"}


def test_nodes_that_run_high_are_never_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names a node that is FP32 already: who runs low goes back instead, or it would never end."""
    shown = refuse(monkeypatch, lambda low: "node second is wrong" if low else None)
    result = convert(exclude=("second",))
    assert told(result.plan)["second"] == ("f32", "exclude")
    assert low_of(result.model) == set()
    assert shown == [{"first", "third"}]


def test_what_is_low_in_the_model_itself_is_neither_blamed_nor_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[N,2] x) => (float[N,2] y) <float[2,2] u = {1,2,3,4}> {
            [down]  h = Cast<to=10>(x)
            [typed] r = Relu(h)
            [up]    k = Cast<to=1>(r)
            [last]  y = MatMul(k, u)
        }""")
    before = model.SerializeToString(deterministic=True)

    def fault(self: OnnxModel, result: onnx.ModelProto) -> str | None:
        return None if result.SerializeToString(deterministic=True) == before else "node name: typed"

    monkeypatch.setattr(OnnxModel, "find_fault", fault)
    plan = mezzo.convert(model).plan
    assert told(plan) == {"typed": ("f16", "typed"), "last": ("f32", "contract")}
    assert plan.by_name["down"].rule == "existing-cast"


def test_after_some_refusals_all_that_runs_low_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of many faulty nodes is not planned once for each of them."""
    lines = "\n".join(f"[node{n}] v{n + 1} = MatMul(v{n}, w{n})" for n in range(12))
    weights = ", ".join(f"float[2,2] w{n} = {{1,0,0,1}}" for n in range(12))
    text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[N,2] v0) => (float[N,2] v12) <{weights}> {{{lines}}}'
    model, rounds = onnx.parser.parse_model(text), 0

    def fault(self: OnnxModel, result: onnx.ModelProto) -> str | None:
        nonlocal rounds
        low = sorted(low_of(result), key=lambda name: int(name.removeprefix("node")))
        rounds += bool(low)
        return f"node name: {low[-1]}" if low else None

    monkeypatch.setattr(OnnxModel, "find_fault", fault)
    result = mezzo.convert(model)
    assert low_of(result.model) == set()
    assert rounds == 4
    assert {node.rule for node in result.plan.nodes if node.kind == "op"} == {"contract"}


def test_model_that_may_not_be_changed_at_all_comes_out_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def fault(self: OnnxModel, model: onnx.ModelProto) -> str | None:
        nonlocal calls
        calls += 1
        return "x" * 500

    monkeypatch.setattr(OnnxModel, "find_fault", fault)
    result = convert()
    assert result.model.graph == onnx.parser.parse_model(TEXT).graph
    assert told(result.plan) == dict.fromkeys(WEIGHTS.values(), ("f32", "contract"))
    because = f"the ONNX checker refuses any change: {'x' * 200}"
    assert {node.because for node in result.plan.nodes} == {because}
    assert result.plan.edits == () and result.plan.version is None
    assert calls == 5


def test_model_that_is_not_valid_is_told_so_and_is_not_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OnnxModel, "find_fault", lambda self, model: "the result's")
    monkeypatch.setattr(OnnxModel, "standing", OnnxValidity(None, "why " * 100))
    with pytest.raises(mezzo.ModelError) as caught:
        convert()
    assert str(caught.value) == f"the model is not valid ONNX: {'why ' * 75}; mend the model first"


def test_plan_whose_result_is_refused_is_an_error_and_not_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = convert().plan
    refuse(monkeypatch, lambda low: "ill " * 100 if low else None)
    with pytest.raises(mezzo.ContractError) as caught:
        convert(plan=plan)
    assert str(caught.value) == f"the plan's result would not be valid ONNX: {'ill ' * 75}; change the plan"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("node name: second", {"second"}),
        ("(op_type:Gemm, node name: ): bad", {"second"}),
        ("Bad node spec for node(MatMul)", {"first", "third"}),
        ("No Op registered for (Gemm) with domain_version", {"second"}),
        ("MatMul", set()),
        ("nothing", set()),
    ],
)
def test_suspects_are_named_by_node_or_by_operator(fault: str, expected: set[str]) -> None:
    graph = open_model(onnx.parser.parse_model(TEXT)).read(DType.FLOAT16).graph
    assert {graph.nodes[number].name for number in suspects(graph, fault)} == expected
