"""What Inductor computes in kernels of its own, and which sums are stored in low precision all the same."""

import pytest
from aten_programs import Program, rows_of

from mezzo.analysis.fusion import kernels_of
from mezzo.analysis.fusion.partition import partition
from mezzo.analysis.fusion.view import FusionView
from mezzo.plugins.discovery import built_in_targets

_FILTER = (8, 8, 1, 1)


def _outside(program: Program, *outputs: str) -> set[str]:
    """Names of the operators that stand in no kernel of Inductor's own, products apart."""
    graph = program.graph(*outputs)
    split = partition(
        FusionView(graph=graph, rows=rows_of(graph)), kernels_of(built_in_targets()["torch-cpu"]), "torch-cpu"
    )
    return {graph.nodes[node].name for node in split.alone if graph.nodes[node].op not in ("convolution", "mm")}


def _network(*more: str) -> Program:
    """A convolution `a` of an image, and filters for more."""
    inputs = {"x": (2, 8, 6, 6), "w": _FILTER, "v": _FILTER, **dict.fromkeys(more, (8,))}
    return _product(Program(inputs), "a", "x")


def _product(program: Program, name: str, x: str) -> Program:
    about = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "output_padding": [0, 0]}
    return program.call("convolution", name, input=x, weight="w", transposed=False, groups=1, **about)


def _normed(program: Program, name: str, x: str) -> Program:
    statistics = {"weight": "g", "bias": "b", "running_mean": "m", "running_var": "s"}
    call = program.call
    return call("_native_batch_norm_legit_no_training", name, input=x, momentum=0.1, eps=1e-5, **statistics)


def test_a_sum_of_products_that_several_read_is_stored_once() -> None:
    """As in residual networks: a convolution and the next sum read it."""
    network = _product(_network().call("relu", "r", self="a"), "c", "r").call("add", "y", self="c", other="r")
    network = _product(network.call("relu", "end", self="y"), "d", "end").call("add", "last", self="d", other="end")
    assert _outside(network, "last") == {"r", "end"}


def test_behind_norms_of_given_statistics_too() -> None:
    network = _normed(_network("g", "b", "m", "s"), "n", "a").call("relu", "r", self="n")
    network = _normed(_product(network, "c", "r"), "o", "c").call("add", "y", self="o", other="r")
    network = _product(network, "d", "y").call("add", "last", self="d", other="y")
    assert _outside(network, "last") == {"r", "y"}


def test_a_relu_that_several_read_is_stored_once() -> None:
    """A product reads it, and the backward, or another branch: one low copy serves both."""
    network = _product(_network().call("relu", "r", self="a"), "c", "r").call("exp", "last", self="r")
    assert _outside(network, "c", "last") == {"r"}
    alone = _product(_network().call("relu", "r", self="a"), "c", "r")
    assert _outside(alone, "c") == set()
    wide = _network().call("exp", "e", self="a").call("relu", "r", self="e")
    assert _outside(_product(wide, "c", "r").call("sin", "last", self="r"), "c", "last") == set()


def test_norms_of_their_own_statistics_give_what_they_read() -> None:
    """As autocast has it in training: the ReLU behind one is stored low where its backward reads it too."""
    statistics = {"weight": "g", "bias": "b", "running_mean": "m", "running_var": "s"}
    network = _network("g", "b", "m", "s").call(
        "_native_batch_norm_legit_functional", "n", input="a", training=True, momentum=0.1, eps=1e-5, **statistics
    )
    network = _product(network.call("relu", "r", self="n"), "c", "r").call("le", "mask", self="r", other="c")
    assert _outside(network, "c", "mask") == {"r"}


def test_the_gradient_of_an_activation_is_stored_once() -> None:
    """Products read it, and the sum that is the gradient of a bias; one reader alone takes it on the way."""
    alone, several = (
        _product(_network(), "g", "a").call("gelu_backward", "d", grad="g", self="a", approximate="none") for _ in "12"
    )
    several = _product(several.call("view", "v2", self="d", size=[2, 8, 36]), "c", "d")
    assert _outside(several.call("sum", "last", self="v2", dim=[2]), "c", "last") == {"d", "v2"}
    assert _outside(_product(alone, "c", "d"), "c") == set()


def test_a_sum_that_one_operator_reads_is_computed_on_the_way() -> None:
    network = _product(_network(), "c", "a").call("add", "y", self="c", other="a").call("relu", "r", self="y")
    assert _outside(_product(network, "last", "r"), "last") == set()


@pytest.mark.parametrize("other", ["x", "e"])
def test_a_sum_with_what_autocast_has_in_fp32_stays(other: str) -> None:
    """An input, and an exponential: as are the residual sums of transformers, which begin at embeddings and norms."""
    network = _network().call("exp", "e", self="a").call("add", "y", self="a", other=other)
    network = _product(network, "d", "y").call("add", "last", self="d", other="y")
    assert _outside(network, "last") == set()


def test_pools_of_largest_numbers_read_low_ones() -> None:
    network = _network().call("relu", "r", self="a")
    network = network.call("max_pool2d", "p", self="r", kernel_size=[2, 2]).call("exp", "e", self="x")
    network = network.call("max_pool2d", "q", self="e", kernel_size=[2, 2])
    assert _outside(_product(network, "last", "p"), "last", "q") == {"p"}
