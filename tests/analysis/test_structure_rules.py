"""Structure rules on graphs of a few operators: which nodes a pattern takes in, which it leaves, and the evidence."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
import toy_dialect

from mezzo.analysis.structure import StructureView, structure_rules
from mezzo.analysis.structure.masks import mask_limits
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts
from mezzo.tables.policy import Finding

F16 = DType.FLOAT16
MAX = 65504.0
_BY_FUNCTION = {
    "add": Function.ADD, "sub": Function.SUBTRACT, "mul": Function.MULTIPLY, "div": Function.DIVIDE,
    "exp": Function.EXP, "log": Function.LOG, "sqrt": Function.SQRT, "rsqrt": Function.RSQRT,
    "reciprocal": Function.RECIPROCAL, "square": Function.SQUARE, "clip": Function.CLIP, "least": Function.MAXIMUM,
    "where": Function.SELECT, "identity": Function.IDENTITY,
}  # fmt: skip
_OVER_AXIS = {"sum": Function.SUM, "mean": Function.MEAN, "max": Function.MAX, "energy": Function.SUM_OF_SQUARES}
ROWS: dict[str, OpFacts] = {
    **{op: facts(op, Cost.POINTWISE, function=function) for op, function in _BY_FUNCTION.items()},
    **{op: facts(op, Cost.REDUCTION, function=function) for op, function in _OVER_AXIS.items()},
    "move": facts("move", Cost.MOVEMENT, keeps_values=True),
    "softmax": facts("softmax", Cost.NORMALIZATION, function=Function.SOFTMAX, is_bounded=True),
    "attention": facts("attention", Cost.ATTENTION),
    "norm": facts("norm", Cost.NORMALIZATION),
    "mm": facts("mm", Cost.LINEAR, function=Function.MATMUL),
    "tanh": facts("tanh", Cost.POINTWISE, is_bounded=True),
    "sin": facts("sin", Cost.POINTWISE, Risk.PERIODIC),
    "count": facts("count", Cost.GENERATOR, Risk.POSITION, function=Function.RANGE),
    "quantize": facts("quantize", Cost.QUANTIZE),
    "measure": facts("measure", Cost.QUANTIZE, transfer=Transfer.QUANTIZE),
    "dequantize": facts("dequantize", Cost.QUANTIZE, transfer=Transfer.DEQUANTIZE),
}


def view(text: str, **constants: tuple[float, ...]) -> StructureView:
    """A graph under the rows of this file; constants by name get these values."""
    graph = toy_dialect.read(text)
    names = {value.name: number for number, value in enumerate(graph.values)}
    held = dict(graph.constants)
    for name, values in constants.items():
        sizes = [abs(value) for value in values if value]
        held[names[name]] = held[names[name]]._replace(
            largest=max(sizes, default=0.0), smallest=min(sizes, default=0.0), values=values
        )
    graph = replace(graph, constants=held)
    rows = tuple(ROWS.get(node.op) if node.kind is Kind.OP else None for node in graph.nodes)
    return StructureView(graph=graph, rows=rows, low=FORMATS[F16])


def found(rule: str, seen: StructureView) -> dict[str, str | None]:
    """What a rule finds: nodes by name, and the node that caused it."""
    (search,) = [known.findings for known in structure_rules() if known.name == rule]
    findings: Iterable[Finding] = list(search(seen))
    assert all(finding.rule == rule and finding.because for finding in findings)
    nodes = seen.graph.nodes
    return {nodes[f.node].name: None if f.cause is None else nodes[f.cause].name for f in findings}


def node_of(seen: StructureView, name: str) -> Node:
    return seen.graph.nodes[seen.graph.by_name[name]]


# -- walks ------------------------------------------------------------------------------------------------------------


def test_producer_is_seen_through_what_hands_on_its_input() -> None:
    seen = view("in x 8\na = exp x\nb = identity a\nc = identity b\nd = move c\ne = add c d\nout e")
    assert seen.producer(node_of(seen, "e"), 0) is node_of(seen, "a")
    assert seen.producer(node_of(seen, "e"), 1) is node_of(seen, "d")  # it moves values
    assert seen.producer(node_of(seen, "e"), 0) is node_of(seen, "a")  # and again, from what is kept
    assert seen.producer(node_of(seen, "b"), 0) is node_of(seen, "a")
    assert seen.producer(node_of(seen, "e"), 2) is None


def test_operand_that_is_left_out_has_no_producer_and_no_constant() -> None:
    seen = view("in x 8\na = add x x\nout a")
    bare = node_of(seen, "a")._replace(inputs=(None, 0))
    assert seen.producer(bare, 0) is None and seen.constant(bare, 0) is None
    assert seen.producer(bare, 1) is node_of(seen, "input x")


def test_neighbours_share_the_precision() -> None:
    seen = view("in x 8\na = exp x\nb = add a x\nc = log a\nout b\nout c")
    nodes = [
        node._replace(signature=replace(node.signature, inputs=(Role.FIXED,))) if node.name == "c" else node
        for node in seen.graph.nodes
    ]
    seen = replace(seen, graph=replace(seen.graph, nodes=tuple(nodes)))
    assert [node.name for node in seen.readers(node_of(seen, "a"))] == ["b"]
    assert [node.name for node in seen.producers(node_of(seen, "b"))] == ["a", "input x"]
    assert seen.producers(node_of(seen, "c")) == []


def test_constant_is_seen_through_what_moves_it() -> None:
    moves = "\n".join(f"m{n} = move {'w' if not n else f'm{n - 1}'}" for n in range(9))
    seen = view(f"in x 8\nconst w 1\n{moves}\ne = exp m2\na = add x w\nb = add x m6\nc = add x m8\nd = add x e\nout a")
    assert [seen.constant(node_of(seen, name), 1) is not None for name in "abcd"] == [True, True, False, False]
    assert seen.constant(node_of(seen, "a"), 0) is None and seen.constant(node_of(seen, "a"), 2) is None


def test_nodes_are_found_by_their_facts_and_functions_in_order() -> None:
    seen = view("in x 8\na = exp x\nb = add a a\nc = exp b\nd = conjure c\nout d")
    assert [node.name for node in seen.nodes(Function.EXP)] == ["a", "c"]
    assert [node.name for node in seen.nodes(Function.ADD, Function.EXP)] == ["b", "a", "c"]
    assert [node.name for node in seen.nodes_where(lambda row: row.cost is Cost.POINTWISE)] == ["a", "b", "c"]
    assert list(seen.nodes(Function.LOG)) == []
    assert [seen.function(node) for node in seen.graph.nodes[3:]] == [Function.EXP, Function.NONE, Function.NONE]


def test_search_is_made_once() -> None:
    calls: list[StructureView] = []

    def search(seen: StructureView) -> int:
        calls.append(seen)
        return len(calls)

    seen = view("in x 8\nout x")
    assert (seen.once(search), seen.once(search), view("in x 8\nout x").once(search)) == (1, 1, 2)


def test_rules_are_in_the_order_of_their_names() -> None:
    names = [rule.name for rule in structure_rules()]
    assert names == sorted(set(names)) and "softmax-decomposed" in names
    assert all(rule.summary for rule in structure_rules())


# -- softmax ----------------------------------------------------------------------------------------------------------


def test_softmax_is_its_differences_exponentials_sum_and_quotient() -> None:
    seen = view("in x 8\nm = max x\ns = sub x m\ne = exp s\nt = sum e\ny = div e t\nz = log e\nout y\nout z")
    assert found("softmax-decomposed", seen) == {"e": None, "t": "e", "y": "e", "s": "e", "m": "e"}


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("in x 8\ne = exp x\nt = sum e\ny = div e t\nout y", {"e", "t", "y"}),
        ("in x 8\nin m 8\ns = sub x m\ne = exp s\nt = sum e\ny = div e t\nout y", {"e", "t", "y", "s"}),
        ("in x 8\ne = exp x\nt = sum e\ny = div x t\nout y", set()),  # divides something else
        ("in x 8\ne = exp x\nt = mean e\ny = div e t\nout y", set()),
        ("in x 8\ne = log x\nt = sum e\ny = div e t\nout y", set()),
    ],
)
def test_softmax_is_no_more_and_no_less(text: str, taken: set[str]) -> None:
    assert set(found("softmax-decomposed", view(text))) == taken


def test_logarithm_of_summed_exponentials() -> None:
    seen = view("in x 8\ne = exp x\nt = sum e\nl = log t\nd = div e t\nout l\nout d")
    assert found("log-sum-exp", seen) == {"e": None, "t": "e", "l": "e"}
    assert found("log-sum-exp", view("in x 8\ne = exp x\nt = mean e\nl = log t\nout l")) == {}


# -- constants --------------------------------------------------------------------------------------------------------


def test_constant_past_the_range_is_followed_until_something_bounds_it() -> None:
    seen = view("in x 8\nconst w 8\na = add x w\nb = mul a x\nc = tanh b\nd = exp c\nout d", w=(1e6,))
    assert found("constant-out-of-range", seen) == {"a": None, "b": "a", "c": "b"}


@pytest.mark.parametrize("text", ["a = mul x w", "a = mul w x"])
@pytest.mark.parametrize(("size", "is_lost"), [(2.0**-24 * 1.13, False), (2.0**-24 * 1.16, True), (2.0**-25, True)])
def test_scale_is_tiny_where_rounding_takes_more_than_an_eighth(text: str, size: float, is_lost: bool) -> None:
    """Steps are 2^-24 there: of 1.13 steps 0.13 are lost, 11.5 %, of 1.16 13.8 %."""
    seen = view(f"in x 8\nconst w 8\n{text}\nb = tanh a\nout b", w=(size,))
    assert found("tiny-constant", seen) == ({"a": None, "b": "a"} if is_lost else {})


def test_mask_that_is_multiplied_drowns_the_sum_it_enters() -> None:
    seen = view("in x 8\nconst w 8\na = mul x w\nm = move a\nb = add m x\nc = tanh b\nout c", w=(-30000.0,))
    assert found("absorbing-constant", seen) == {"a": None, "m": None, "b": None, "c": "b"}


# -- norms ------------------------------------------------------------------------------------------------------------

EPS = "const eps 1\n"


@pytest.mark.parametrize(
    ("text", "rule", "taken"),
    [
        ("s = mul x x\nm = mean s\nr = sqrt m\ny = div x r\nout y", "rms-norm", "r m s y"),
        ("s = square x\nm = mean s\na = add m eps\nr = rsqrt a\ny = mul x r\nout y", "rms-norm", "r a m s y"),
        ("s = mul x x\nm = sum s\na = least m eps\nr = sqrt a\ny = div x r\nout y", "l2-norm", "r a m s y"),
        ("m = energy x\nr = sqrt m\nc = clip r\ny = div x c\nout y", "l2-norm", "r m c y"),
        ("m = energy x\nr = sqrt m\nc = least r eps\nv = move c\ny = div x v\nout y", "l2-norm", "r m c y"),
        ("u = mean x\nc = sub x u\ns = mul c c\nm = mean s\nr = sqrt m\ny = div c r\nout y", "layer-norm",
         "r m s c u y"),
        ("c = sub x eps\ns = mul c c\nm = mean s\nr = sqrt m\ny = div c r\nout y", "rms-norm", "r m s y"),
        ("s = mul x x\nm = mean s\nr = sqrt m\nq = reciprocal r\ny = mul x q\nout y", "rms-norm", "r m s q y"),
        ("s = mul x x\nm = mean s\nr = sqrt m\nq = div eps r\ny = mul x q\nout y", "rms-norm", "r m s q y"),
        ("s = mul x x\nm = mean s\na = add eps m\nr = sqrt a\ny = log r\nout y", "rms-norm", "r a m s"),
    ],
)  # fmt: skip
def test_norm_is_its_squares_their_mean_or_sum_the_root_and_what_it_scales(text: str, rule: str, taken: str) -> None:
    seen = view(f"in x 8\n{EPS}{text}")
    assert set(found(rule, seen)) == set(taken.split())
    assert found(rule, seen)["r"] is None and set(found(rule, seen).values()) == {None, "r"}
    others = {"layer-norm", "rms-norm", "l2-norm"} - {rule}
    assert all(found(other, seen) == {} for other in others)


@pytest.mark.parametrize(
    "text",
    [
        "s = mul x eps\nm = mean s\nr = sqrt m\ny = div x r\nout y",  # no square
        "s = mul x x\nm = max s\nr = sqrt m\ny = div x r\nout y",
        "s = mul x x\nm = mean s\nr = log m\ny = div x r\nout y",
        "s = mul x x\nt = mul eps eps\nm = mean s\nn = mean t\na = add m n\nr = sqrt a\ny = div x r\nout y",
    ],
)
def test_what_only_looks_like_a_norm_is_none(text: str) -> None:
    seen = view(f"in x 8\n{EPS}{text}")
    assert all(found(rule, seen) == {} for rule in ("layer-norm", "rms-norm", "l2-norm"))


def test_squares_that_are_summed_are_found_with_their_sum() -> None:
    seen = view("in x 8\na = mul x x\nb = sum a\nc = square x\nd = mean c\ne = mul x a\nf = sum e\ng = max a\nout b")
    assert found("sum-of-squares", seen) == {"a": None, "b": "a", "c": None, "d": "c"}


# -- masks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_mask"),
    [
        ("a = add x w\ny = softmax a\nout y", True),
        ("v = move w\na = where x v\nb = move a\ny = softmax b\nout y", True),
        ("a = add x w\ny = attention a\nout y", True),
        ("a = add x w\ny = exp a\nout y", False),
        ("a = add x w\ny = softmax a\nout y\nout a", False),
        ("a = add x w\ny = softmax a\nb = log a\nout y\nout b", False),
        ("y = softmax x\nout y", False),  # nobody reads it
        ("a = add x w\ny = softmax x\nout y", False),
        ("a = add x w\nb = mul x w\ny = softmax a\nz = softmax b\nout y\nout z", True),
        ("a = add x w\nb = mm x w\ny = softmax a\nz = softmax b\nout y\nout z", False),
    ],
)
def test_constant_is_a_mask_if_all_its_ways_lead_to_a_softmax(text: str, is_mask: bool) -> None:
    seen = view(f"in x 8\nconst w 8 1e9\n{text}")
    assert mask_limits(seen) == ({1: MAX / 2} if is_mask else {})


@pytest.mark.parametrize(("largest", "is_limited"), [(MAX / 2, False), (MAX / 2 + 1, True)])
def test_mask_is_limited_past_half_the_range(largest: float, is_limited: bool) -> None:
    seen = view("in x 8\nconst w 8\na = add x w\ny = softmax a\nout y", w=(-largest, 0.0))
    assert mask_limits(seen) == ({1: MAX / 2} if is_limited else {})


# -- quantized parts, integers ----------------------------------------------------------------------------------------


def test_operators_between_dequantizing_and_quantizing_are_one() -> None:
    seen = view("in x 8\nq = quantize x\na = mm q x\nb = tanh a\ny = quantize b\nz = exp b\nout y\nout z")
    assert found("quantized-part", seen) == {"b": "y", "a": "y"}
    plain = view("in x 8\na = mm x x\nb = tanh a\ny = quantize b\nout y")
    assert found("quantized-part", plain) == {}
    heavy = view("in x 8\nq = quantize x\na = mm q x\nb = mm a x\ny = quantize b\nout y")
    assert found("quantized-part", heavy) == {}


_DEQUANTIZED = "in x 8\nconst w 8\nconst b 8\nd = dequantize x\ne = dequantize w\n"


def test_kernel_of_dequantized_factors_ends_where_another_value_comes_in() -> None:
    seen = view(f"{_DEQUANTIZED}a = mm d e\nc = add b a\nt = tanh c\ns = add t x\nr = tanh s\nout r")
    assert found("quantized-unit", seen) == {"a": None, "c": "a", "t": "a"}


def test_kernel_takes_in_an_activation_whole_or_not_at_all() -> None:
    whole = view(f"{_DEQUANTIZED}a = mm d e\nt = tanh a\nu = add t b\ny = mul u a\nz = exp y\nout z")
    assert found("quantized-unit", whole) == {"a": None, "t": "a", "u": "a", "y": "a", "z": "a"}
    torn = view(f"{_DEQUANTIZED}a = mm d e\nt = tanh a\nu = add t x\ny = mul u a\nout y")
    assert found("quantized-unit", torn) == {"a": None}
    shown = view(f"{_DEQUANTIZED}a = mm d e\nt = tanh a\ny = mul t a\nout y\nout t")
    assert found("quantized-unit", shown) == {"a": None}


def test_long_arithmetic_behind_a_product_is_no_activation() -> None:
    def behind(steps: int) -> dict[str, str | None]:
        inside = "\n".join(f"t{n} = tanh {f't{n - 1}' if n else 'a'}\ns{n} = add t{n} a" for n in range(steps))
        joined = "\n".join(f"j{n} = add {f'j{n - 1}' if n else 'a'} s{n}" for n in range(steps))
        return found("quantized-unit", view(f"{_DEQUANTIZED}a = mm d e\n{inside}\n{joined}\nout j{steps - 1}"))

    assert len(behind(3)) == 10
    assert len(behind(9)) == 1


def test_what_only_moves_dequantized_values_belongs_to_the_kernel() -> None:
    seen = view(f"{_DEQUANTIZED}m = move d\nn = move m\nk = move e\na = mm n k\nz = mm m x\nout a\nout z")
    assert found("quantized-unit", seen) == {"a": None, "m": "a", "n": "a", "k": "a"}
    changed = view(f"{_DEQUANTIZED}m = tanh d\na = mm m e\nout a")
    assert found("quantized-unit", changed) == {}


def test_elementwise_reader_of_dequantized_values_is_no_kernel() -> None:
    assert found("quantized-unit", view(f"{_DEQUANTIZED}a = add d e\nt = tanh a\nout t")) == {}


def test_scale_that_quantizing_found_belongs_to_the_kernel() -> None:
    text = f"{_DEQUANTIZED}q = measure x\na = mm d e\ns = mul q b\ny = mul a s\nout y"
    assert found("quantized-unit", view(text)) == {"a": None, "s": "a", "y": "a"}
    assert found("quantized-unit", view(text.replace("mul q b", "mul q x"))) == {"a": None}
    assert found("quantized-unit", view(text.replace("mul q b", "mul b b"))) == {"a": None}
    assert found("quantized-unit", view(text.replace("y = mul a s", "y = mul a q"))) == {"a": None, "y": "a"}


def test_product_with_a_dequantized_weight_reads_it_without_casts() -> None:
    seen = view(f"{_DEQUANTIZED}m = move e\na = mm x m\nc = mm x d\nf = mm x b\ng = mm d e\nout a\nout c\nout f")
    assert found("quantized-weight", seen) == {"a": "m", "m": "a"}
    picked = view(f"{_DEQUANTIZED}m = join e x\na = mm x m\nout a")
    assert found("quantized-weight", picked) == {}


def test_positions_under_a_sine_are_angles() -> None:
    text = "in x 8\nconst w 8\np = count x\nf = mm p w\nm = mul f w\ns = sin m\nt = sin x\nout s\nout t"
    assert found("angles", view(text)) == {"s": None, "m": "s", "f": "m", "p": "f"}
    assert found("angles", view(text.replace("p = count x", "p = tanh x"))) == {}
    assert set(found("angles", view(text.replace("m = mul f w", "m = tanh f")))) == set()


def test_arithmetic_for_an_operand_that_is_read_in_fp32_is_exact() -> None:
    seen = view("in x 8\na = add x x\nb = mul a x\nc = tanh x\nd = mul c b\ny = mm x d\nout y")
    nodes = [
        node._replace(signature=replace(node.signature, inputs=(Role.GROUP, Role.FIXED))) if node.name == "y" else node
        for node in seen.graph.nodes
    ]
    seen = replace(seen, graph=replace(seen.graph, nodes=tuple(nodes)))
    assert found("exact-operand", seen) == {"d": "y", "b": "d", "a": "b"}  # tanh is bounded
