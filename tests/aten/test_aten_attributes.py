"""Arguments of ATen operators become what rules and laws read."""

from collections.abc import Mapping

import pytest

from mezzo.aten.read.attributes import attributes_of, number_filled_in, operand_order, scalar_operands

CASES: tuple[tuple[str, Mapping[str, object], Mapping[str, object]], ...] = (
    # Reductions: axes as a tuple, all of them where none is named.
    ("sum", {"dim": [1, 2], "keepdim": True}, {"axes": (1, 2), "keepdims": 1}),
    ("mean", {"dim": [-1], "keepdim": False}, {"axes": (-1,), "keepdims": 0}),
    ("amax", {"dim": []}, {}),
    ("max.dim", {"dim": 1}, {"axes": (1,)}),
    ("var_mean", {"dim": [2], "correction": 0}, {"axes": (2,), "correction": 0}),
    ("linalg_vector_norm", {"ord": 2, "dim": None}, {"p": 2}),
    # One axis.
    ("_softmax", {"dim": -1, "half_to_float": False}, {"axis": -1, "half_to_float": False}),
    ("cumsum", {"dim": 1, "dtype": None}, {"axis": 1}),
    ("cat", {"dim": 1}, {"axis": 1}),
    ("permute", {"dims": [0, 2, 1]}, {"perm": (0, 2, 1)}),
    # Norms.
    ("native_layer_norm", {"normalized_shape": [4, 8], "eps": 1e-5}, {"axis": -2, "epsilon": 1e-5}),
    ("rms_norm", {"normalized_shape": [8], "eps": None}, {"axis": -1}),
    ("_native_batch_norm_legit_no_training", {"momentum": 0.1, "eps": 1e-3}, {"momentum": 0.1, "epsilon": 1e-3}),
    # Windows.
    ("avg_pool2d", {"kernel_size": [3], "stride": [2, 2]}, {"kernel_shape": (3, 3), "strides": (2, 2)}),
    ("max_pool2d_with_indices", {"kernel_size": [3, 2]}, {"kernel_shape": (3, 2)}),
    ("convolution", {"stride": [2], "transposed": True}, {"strides": (2,), "transposed": True}),
    # Numbers of the arithmetic are floats, and a factor of 1 is none.
    ("add", {"alpha": 1}, {}),
    ("sub", {"alpha": 2}, {"alpha": 2.0}),
    ("addmm", {"beta": 1, "alpha": 0.5}, {"alpha": 0.5}),
    ("elu", {"alpha": 1}, {"alpha": 1.0}),
    ("leaky_relu", {"negative_slope": 1}, {"alpha": 1.0}),
    ("hardtanh", {}, {"min": -1.0, "max": 1.0}),
    ("hardtanh", {"min_val": 0, "max_val": 6}, {"min": 0.0, "max": 6.0}),
    ("relu6", {}, {"min": 0.0, "max": 6.0}),
    ("constant_pad_nd", {"pad": [1, 1], "value": 3}, {"pad": (1, 1), "value": 3.0}),
    # How values meet.
    ("index_put", {"accumulate": True}, {"reduction": "add"}),
    ("index_put", {"accumulate": False}, {}),
    ("scatter_reduce", {"dim": 0, "reduce": "amax"}, {"axis": 0, "reduction": "max"}),
    ("scatter_add", {"dim": 0}, {"axis": 0, "reduction": "add"}),
    ("mse_loss", {"reduction": 1}, {"reduction": "mean"}),
    # Draws.
    ("rand", {}, {"low": 0.0, "high": 1.0}),
    ("uniform", {"from": -1, "to": 2}, {"low": -1.0, "high": 2.0}),
    ("inductor_random", {"size": [2], "mode": "rand"}, {"size": (2,), "mode": "rand", "low": 0.0, "high": 1.0}),
    ("inductor_random", {"mode": "randn"}, {"mode": "randn"}),
    # Text.
    ("einsum", {"equation": "ij,jk->ik"}, {"equation": "ij,jk->ik"}),
    ("gelu", {"approximate": "tanh"}, {"approximate": "tanh"}),
    # What is no plain value, or says how a tensor is stored.
    ("expand", {"size": [2, object()], "implicit": False}, {}),
    (
        "full",
        {"size": [2], "fill_value": 1.5, "dtype": object(), "pin_memory": False},
        {"size": (2,), "fill_value": 1.5},
    ),
    # What is an operand is no attribute.
    ("add", {"other": 1e-5, "alpha": 1}, {}),
    ("clamp", {"min": 0.0, "max": None}, {}),
    ("pow", {"exponent": 2}, {}),
    # An operator that no table knows.
    ("unheard_of", {"dim": 1, "eps": 1}, {"axis": 1, "epsilon": 1.0}),
)


@pytest.mark.parametrize(("op", "arguments", "expected"), CASES)
def test_arguments_become_attributes_that_rules_read(
    op: str, arguments: Mapping[str, object], expected: Mapping[str, object]
) -> None:
    found = attributes_of(op, arguments)
    assert found == expected
    assert {name: type(value) for name, value in found.items()} == {n: type(value) for n, value in expected.items()}


def test_scalars_of_the_arithmetic_are_operands() -> None:
    assert scalar_operands("add") == ("self", "other")
    assert scalar_operands("clamp") == ("min", "max")
    assert scalar_operands("masked_fill") == ("value",)
    assert scalar_operands("pow") == ("self", "exponent")
    assert scalar_operands("softmax") == ()


def test_operands_come_in_the_order_of_laws() -> None:
    assert operand_order("addmm") == ("mat1", "mat2", "self")
    assert operand_order("rsub") == ("other", "self")
    assert operand_order("mm") == ()


@pytest.mark.parametrize(
    ("op", "arguments", "expected"),
    [
        ("full", {"fill_value": float("-inf")}, float("-inf")),
        ("full_like", {"fill_value": True}, 1.0),
        ("scalar_tensor", {"s": -3.4e38}, -3.4e38),
        ("zeros", {"size": [2]}, 0.0),
        ("ones_like", {}, 1.0),
        ("full", {"fill_value": object()}, None),
        ("empty", {}, None),
        ("add", {"other": 2.0}, None),
    ],
)
def test_number_that_is_filled_in_is_known(op: str, arguments: Mapping[str, object], expected: float | None) -> None:
    assert number_filled_in(op, arguments) == expected
