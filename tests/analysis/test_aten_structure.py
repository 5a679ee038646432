"""Structure rules and estimates say of ATen programs what they say of ONNX models."""

import math

import numpy as np
import pytest
from aten_programs import Program, rows_of

from mezzo.analysis.estimates import Estimates, estimate
from mezzo.analysis.structure import StructureView, structure_rules
from mezzo.analysis.structure.exact_masks import exact_masks
from mezzo.analysis.structure.masks import mask_limits
from mezzo.analysis.structure.saturating import saturated
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.ir.graph import Graph

F16 = FORMATS[DType.FLOAT16]


def view(graph: Graph, low: DType = DType.FLOAT16) -> StructureView:
    return StructureView(graph=graph, rows=rows_of(graph), low=FORMATS[low])


def found(graph: Graph, rule: str) -> set[str]:
    """Names of the nodes of which a rule finds something."""
    seen = view(graph)
    (search,) = (one for one in structure_rules() if one.name == rule)
    return {graph.nodes[finding.node].name for finding in search.findings(seen)}


def inputs() -> Program:
    return Program({"x": (4, 64)})


# -- norms and softmax ------------------------------------------------------------------------------------------------


def test_layer_norm_as_inductor_writes_it() -> None:
    graph = (
        inputs()
        .call("var_mean", "v m", self="x", dim=[1], correction=0, keepdim=True)
        .call("add", "e", self="v", other=1e-5)
        .call("rsqrt", "r", self="e")
        .call("sub", "c", self="x", other="m")
        .call("mul", "y", self="c", other="r")
        .graph("y")
    )
    assert found(graph, "layer-norm") == {"v", "e", "r", "c", "y"}
    assert found(graph, "rms-norm") == set()


def test_layer_norm_with_the_mean_apart() -> None:
    graph = (
        inputs()
        .call("mean", "m", self="x", dim=[1], keepdim=True)
        .call("var", "v", self="x", dim=[1], correction=0, keepdim=True)
        .call("sub", "c", self="x", other="m")
        .call("add", "e", self="v", other=1e-5)
        .call("sqrt", "r", self="e")
        .call("div", "y", self="c", other="r")
        .graph("y")
    )
    assert found(graph, "layer-norm") == {"m", "v", "c", "e", "r", "y"}


def test_layer_norm_of_squared_differences() -> None:
    graph = (
        inputs()
        .call("mean", "m", self="x", dim=[1], keepdim=True)
        .call("sub", "c", self="x", other="m")
        .call("pow", "s", self="c", exponent=2)
        .call("mean", "v", self="s", dim=[1], keepdim=True)
        .call("add", "e", self="v", other=1e-5)
        .call("rsqrt", "r", self="e")
        .call("mul", "y", self="c", other="r")
        .graph("y")
    )
    assert found(graph, "layer-norm") == {"m", "c", "s", "v", "e", "r", "y"}


def test_rms_norm_as_llama_writes_it() -> None:
    graph = (
        inputs()
        .call("pow", "s", self="x", exponent=2)
        .call("mean", "v", self="s", dim=[-1], keepdim=True)
        .call("add", "e", self="v", other=1e-6)
        .call("rsqrt", "r", self="e")
        .call("mul", "y", self="x", other="r")
        .graph("y")
    )
    assert found(graph, "rms-norm") == {"s", "v", "e", "r", "y"}


def test_l2_norm_behind_a_floor() -> None:
    graph = (
        inputs()
        .call("square", "s", self="x")
        .call("sum", "t", self="s", dim=[1], keepdim=True)
        .call("sqrt", "r", self="t")
        .call("clamp_min", "f", self="r", min=1e-12)
        .call("expand", "w", self="f", size=[4, 64])
        .call("div", "y", self="x", other="w")
        .graph("y")
    )
    assert {"s", "t", "r", "y"} <= found(graph, "l2-norm")
    assert found(graph, "sum-of-squares") == {"s", "t"}
    assert found(graph, "guard") == {"f", "w", "y"}


def test_softmax_as_inductor_writes_it() -> None:
    graph = (
        inputs()
        .call("amax", "m", self="x", dim=[-1], keepdim=True)
        .call("sub", "d", self="x", other="m")
        .call("exp", "p", self="d")
        .call("sum", "s", self="p", dim=[-1], keepdim=True)
        .call("div", "y", self="p", other="s")
        .graph("y")
    )
    assert found(graph, "softmax-decomposed") == {"m", "d", "p", "s", "y"}


def test_log_sum_exp() -> None:
    graph = (
        inputs().call("exp", "p", self="x").call("sum", "s", self="p", dim=[-1]).call("log", "y", self="s").graph("y")
    )
    assert found(graph, "log-sum-exp") == {"p", "s", "y"}


# -- constants --------------------------------------------------------------------------------------------------------


def test_epsilon_that_is_an_argument_vanishes() -> None:
    graph = (
        inputs()
        .call("var", "v", self="x", dim=[1])
        .call("add", "e", self="v", other=1e-9)
        .call("rsqrt", "r", self="e")
        .graph("r")
    )
    assert found(graph, "guard") == {"e", "r"}


@pytest.mark.parametrize("number", [-1e9, -3.4028234663852886e38])
def test_mask_that_is_filled_in_is_limited(number: float) -> None:
    graph = (
        Program({"x": (4, 64), "keep": (4, 64)}, {"keep": DType.BOOL})
        .call("masked_fill", "f", self="x", mask="keep", value=number)
        .call("_softmax", "y", self="f", dim=-1, half_to_float=False)
        .graph("y")
    )
    seen = view(graph)
    assert set(mask_limits(seen).values()) == {F16.max_finite / 2}
    assert exact_masks(view(graph, DType.BFLOAT16), lambda node: True) == frozenset(seen.graph.constants)


def test_mask_of_a_filled_tensor_is_limited() -> None:
    graph = (
        Program({"x": (4, 64), "keep": (4, 64)}, {"keep": DType.BOOL})
        .call("full", "low", size=[], fill_value=-3.4028234663852886e38)
        .call("where", "f", condition="keep", self="x", other="low")
        .call("_softmax", "y", self="f", dim=-1, half_to_float=False)
        .graph("y")
    )
    (limit,) = mask_limits(view(graph)).values()
    assert limit == F16.max_finite / 2


def test_attribute_past_the_range_is_found() -> None:
    graph = (
        inputs().call("constant_pad_nd", "p", self="x", pad=[1, 1], value=-1e9).call("relu", "y", self="p").graph("y")
    )
    assert found(graph, "attribute-out-of-range") == {"p", "y"}


def test_positions_times_frequencies_are_angles() -> None:
    graph = (
        Program({"f": (32,)})
        .call("arange", "n", end=64)
        .call("unsqueeze", "c", self="n", dim=1)
        .call("mul", "a", self="c", other="f")
        .call("cos", "y", self="a")
        .graph("y")
    )
    assert found(graph, "angles") == {"n", "c", "a", "y"}


def test_polynomial_before_a_tanh_saturates() -> None:
    graph = (
        inputs()
        .call("pow", "c", self="x", exponent=3)
        .call("mul", "d", self="c", other=0.044715)
        .call("add", "s", self="x", other="d")
        .call("mul", "u", self="s", other=0.7978845608)
        .call("tanh", "y", self="u")
        .graph("y")
    )
    assert set(saturated(view(graph))) == {"c", "d", "s", "u"}


# -- estimates --------------------------------------------------------------------------------------------------------


def estimated(graph: Graph, **given: tuple[float, float]) -> Estimates:
    return estimate(graph, rows_of(graph), F16, given)


def held(graph: Graph, name: str, **given: tuple[float, float]) -> tuple[float, float, float, float]:
    """Mean, spread and ends that are estimated of a value."""
    number = next(k for k, value in enumerate(graph.values) if value.name == name)
    x = estimated(graph, **given).moments[number]
    return x.mean, x.std, x.low, x.high


@pytest.mark.parametrize("ends", [(0.5, 2.0), (3.0, 3.5), (1.0, 9.0)])
def test_reciprocal_root_is_estimated_as_its_data(ends: tuple[float, float]) -> None:
    data = 1.0 / np.sqrt(np.random.default_rng(0).uniform(*ends, 100_000))
    mean, std, low, high = held(inputs().call("rsqrt", "y", self="x").graph("y"), "y", x=ends)
    # A law samples few points, and takes even numbers for a bell: a tenth of the size and a third of the spread.
    assert mean == pytest.approx(data.mean(), rel=0.1)
    assert std == pytest.approx(data.std(), rel=0.4)
    assert low <= data.min() + data.std() and high >= data.max() - data.std()


@pytest.mark.parametrize("ends", [(-2.0, 2.0), (3.0, 3.5), (-1.0, 9.0)])
def test_square_is_estimated_as_its_data(ends: tuple[float, float]) -> None:
    data = np.random.default_rng(0).uniform(*ends, 100_000) ** 2
    mean, std, low, high = held(inputs().call("square", "y", self="x").graph("y"), "y", x=ends)
    assert mean == pytest.approx(data.mean(), rel=0.05)
    assert std == pytest.approx(data.std(), rel=0.6)  # even numbers have a smaller fourth moment than normal ones
    assert low <= data.min() * 1.01 and high >= data.max() * 0.99


@pytest.mark.parametrize("ends", [(-2.0, 2.0), (100.0, 101.0)])
@pytest.mark.parametrize("op", ["var", "var_mean"])
def test_variance_is_estimated_as_its_data(op: str, ends: tuple[float, float]) -> None:
    data = np.random.default_rng(0).uniform(*ends, (1000, 64)).var(axis=1)
    results = "y m" if op == "var_mean" else "y"
    graph = inputs().call(op, results, self="x", dim=[1], correction=0, keepdim=True).graph("y")
    mean, std, low, high = held(graph, "y", x=ends)
    assert mean == pytest.approx(data.mean(), rel=0.05)
    assert std == pytest.approx(data.std(), rel=0.8)  # as above
    assert low <= data.min() and high >= data.max() * 0.95


def test_addition_to_a_product_is_taken_off_the_third_operand() -> None:
    """`addmm` names what it adds first; the law takes the factors first."""
    graph = Program({"b": (8,), "x": (4, 64), "w": (64, 8)}).call("addmm", "y", self="b", mat1="x", mat2="w").graph("y")
    mean, std, *_ = held(graph, "y", b=(99.0, 101.0), x=(-1.0, 1.0), w=(-1.0, 1.0))
    assert mean == pytest.approx(100.0, rel=0.01)
    assert std == pytest.approx(math.sqrt(64) / 3.0, rel=0.2)  # 64 products, each with a variance of a ninth


def test_difference_from_the_second_operand() -> None:
    graph = Program({"x": (4, 64), "z": (4, 64)}).call("rsub", "y", self="x", other="z").graph("y")
    assert held(graph, "y", x=(1.0, 2.0), z=(10.0, 11.0))[0] == pytest.approx(9.0)


def test_convolution_counts_its_kernel() -> None:
    graph = (
        Program({"x": (1, 16, 8, 8), "w": (32, 16, 3, 3)}).call("convolution", "y", input="x", weight="w").graph("y")
    )
    assert held(graph, "y", x=(-1.0, 1.0), w=(-1.0, 1.0))[1] == pytest.approx(math.sqrt(16 * 9) / 3.0, rel=0.2)


def test_transposed_convolution_counts_its_strides() -> None:
    graph = (
        Program({"x": (1, 16, 8, 8), "w": (16, 32, 2, 2)})
        .call("convolution", "y", input="x", weight="w", stride=[2, 2], transposed=True)
        .graph("y")
    )
    assert held(graph, "y", x=(-1.0, 1.0), w=(-1.0, 1.0))[1] == pytest.approx(math.sqrt(16) / 3.0, rel=0.2)


def test_sums_count_their_axes() -> None:
    shape = Program({"x": (4, 8, 64)})
    one = held(shape.call("sum", "y", self="x", dim=[2]).graph("y"), "y", x=(0.0, 2.0))
    both = held(Program({"x": (4, 8, 64)}).call("sum", "y", self="x", dim=[1, 2]).graph("y"), "y", x=(0.0, 2.0))
    whole = held(Program({"x": (4, 8, 64)}).call("sum", "y", self="x").graph("y"), "y", x=(0.0, 2.0))
    assert [round(size[0]) for size in (one, both, whole)] == [64, 512, 2048]


def test_running_sum_counts_its_axis() -> None:
    graph = Program({"x": (4, 64)}).call("cumsum", "y", self="x", dim=1).graph("y")
    assert held(graph, "y", x=(0.0, 2.0))[3] == pytest.approx(64 * 2.0, rel=0.5)  # its end is all of them


def test_filled_and_counted_values_are_known_without_operands() -> None:
    graph = Program({}).call("full", "y", size=[4], fill_value=7.0).call("arange", "n", end=64).graph("y", "n")
    assert held(graph, "y") == (7.0, 0.0, 7.0, 7.0)
    assert held(graph, "n")[3] == 4096.0
    assert estimated(graph).not_followed == ()


@pytest.mark.parametrize(("op", "at_minus_two"), [("elu", math.expm1(-2.0)), ("leaky_relu", -0.02), ("prelu", -0.5)])
def test_what_lies_below_zero_is_bent_as_the_operator_bends_it(op: str, at_minus_two: float) -> None:
    program = Program({"x": (4, 64), "a": (1,)})
    program = program.call(op, "y", self="x", weight="a") if op == "prelu" else program.call(op, "y", self="x")
    assert held(program.graph("y"), "y", x=(-2.0, 2.0), a=(0.25, 0.25))[2] == pytest.approx(at_minus_two, abs=1e-3)
