"""Which nodes a selector picks: names, regions, attributes, constants, shapes and functions."""

from dataclasses import replace

import pytest
import toy_dialect

from mezzo.ir.graph import ConstantFacts, Graph
from mezzo.ir.selectors import (
    ByAttribute,
    ByConstant,
    ByFunction,
    ByName,
    ByRegion,
    ByShape,
    Selector,
    Site,
    Tier,
    is_same_value,
)

INF = float("inf")


def site(
    name: str = "/encoder/layer.3/Exp",
    *,
    module: str | None = None,
    attributes: dict[str, object] | None = None,
    defaults: dict[str, object] | None = None,
    shape: tuple[int | None, ...] | None = None,
    largest: float = 5.0,
) -> Site:
    """A node that reads a value and a constant, and leaves a third operand out."""
    graph: Graph = toy_dialect.read("in x 8\nconst w 4\nh = product x w\nout h")
    node = graph.nodes[2]
    signature = replace(node.signature, attributes=defaults or {})
    node = node._replace(name=name, inputs=(*node.inputs, None), attributes=attributes or {}, signature=signature)
    facts = ConstantFacts(4, largest, 1.0, False, False, False, None)
    modules = {} if module is None else {node.id: module}
    shapes = {} if shape is None else {0: shape}
    return Site(replace(graph, constants={1: facts}, modules=modules, shapes=shapes), node)


def test_written_attribute_counts_more_than_its_default() -> None:
    held = site(attributes={"axis": 2}, defaults={"axis": 1, "keepdims": 0})
    assert (held.attribute("axis"), held.attribute("keepdims"), held.attribute("other")) == (2, 0, None)


def test_operand_that_is_computed_left_out_or_not_there_is_no_constant() -> None:
    held = site(shape=(2, None))
    assert held.constant(1) == ConstantFacts(4, 5.0, 1.0, False, False, False, None)
    assert [held.constant(operand) for operand in (0, 2, 3)] == [None] * 3
    assert [held.shape(operand) for operand in range(4)] == [(2, None), None, None, None]


def test_regions_are_the_name_and_the_module_with_its_operator() -> None:
    assert site().regions == ("encoder/layer/3/Exp",)
    assert site("a", module="net.layer.0").regions == ("a", "net/layer/0/product")
    assert site("./a./b/.").regions == ("a//b",)


@pytest.mark.parametrize(
    ("selector", "is_picked"),
    [
        (ByName("/encoder/layer.3/Exp"), True),
        (ByName("*/Exp"), True),
        (ByName("*/exp"), False),
        (ByName("Exp"), False),
        (ByName("re:/enc.*p"), True),
        (ByName("re:/enc"), False),
        (ByName("re:Exp"), False),
        (ByRegion("encoder"), True),
        (ByRegion("/encoder.layer/"), True),
        (ByRegion("encoder/layer.*"), True),
        (ByRegion("enc"), False),
        (ByRegion("layer.3"), False),
        (ByRegion("encoder/layer.3/Exp"), True),
        (ByAttribute("axis", (0, 1)), True),
        (ByAttribute("axis", ("1.0",)), True),
        (ByAttribute("axis", (2,)), False),
        (ByAttribute("nothing", (None,)), False),
        (ByConstant(1), True),
        (ByConstant(0), False),
        (ByConstant(1, 5.0, 5.0), True),
        (ByConstant(1, 5.1), False),
        (ByConstant(1, 0.0, 4.9), False),
        (ByShape(0, 0, 2, 2), True),
        (ByShape(0, -2, 2, 2), True),
        (ByShape(0, 0, 3), False),
        (ByShape(0, 0, 0, 1), False),
        (ByShape(0, 0), True),
        (ByShape(0, 1), False),  # unknown
        (ByShape(0, 2), False),
        (ByShape(0, -3), False),
        (ByShape(1, 0), False),
        (ByFunction(lambda asked: asked.node.op == "product"), True),
        (ByFunction(lambda asked: False), False),
    ],
    ids=str,
)
def test_selector_picks_what_it_says(selector: Selector, is_picked: bool) -> None:
    assert selector.matches(site(attributes={"axis": 1}, shape=(2, None))) is is_picked


def test_name_with_glob_signs_matches_itself() -> None:
    assert ByName("a[0]").matches(site("a[0]")) and ByName("a[0]").matches(site("a0"))
    assert not ByName("a[0]").matches(site("a1"))


@pytest.mark.parametrize(
    ("selector", "spelled", "tier"),
    [
        (ByName("a*"), "node a*", Tier.NAME),
        (ByRegion("a/b"), "region a/b", Tier.REGION),
        (ByAttribute("axis", (1, "x")), "axis = 1 or x", Tier.ATTRIBUTE),
        (ByConstant(1), "constant operand 1", Tier.ATTRIBUTE),
        (ByConstant(1, 2.0), "constant operand 1 from 2 to inf", Tier.ATTRIBUTE),
        (ByConstant(1, 0.0, 1e5), "constant operand 1 from 0 to 100000", Tier.ATTRIBUTE),
        (ByConstant(1, 0.0, INF), "constant operand 1", Tier.ATTRIBUTE),
        (ByShape(0, -1, 4), "operand 0 has 4 along axis -1", Tier.ATTRIBUTE),
        (ByShape(0, 1, 4, 8), "operand 0 has 4 to 8 along axis 1", Tier.ATTRIBUTE),
        (ByFunction(test_name_with_glob_signs_matches_itself), "function test_name_with_glob_signs_matches_itself",
         Tier.ATTRIBUTE),  # type: ignore[arg-type]  # only its name is asked for
    ],
)  # fmt: skip
def test_selector_says_what_it_is_about(selector: Selector, spelled: str, tier: Tier) -> None:
    assert (str(selector), selector.tier) == (spelled, tier)


def test_function_without_a_name_is_told_as_one() -> None:
    class Asked:
        def __call__(self, asked: Site) -> bool:
            return True

    assert str(ByFunction(Asked())) == "function of the node"


def test_tiers_are_in_the_order_in_which_they_win() -> None:
    assert list(Tier) == sorted(Tier) == [Tier.PRESET, Tier.TYPE, Tier.ATTRIBUTE, Tier.REGION, Tier.NAME]


@pytest.mark.parametrize(
    ("held", "wanted", "is_same"),
    [
        (1, "1.0", True),
        ("1", 1, True),
        (True, 1, True),
        (1, 2, False),
        ("SAME_UPPER", "SAME_UPPER", True),
        ("SAME_UPPER", "SAME_LOWER", False),
        (0.10000000149011612, 0.1, True),  # as FP32 stores it
        (0.1001, 0.1, False),
        (0.1, 0.1 * (1 + 2.0**-24), True),
        (0.1, 0.1 * (1 + 2.0**-22), False),
        (-0.1, 0.1, False),
        (0.0, 1e-30, False),
        ((1, 2), [1.0, "2"], True),
        ([1, 2], (1, 3), False),
        ((1, 2), (1,), False),
        ((1,), 1, False),
        (1, [1], False),
        (b"x", "b'x'", True),
        (None, "None", True),
        ("nan", 1, False),
    ],
)
def test_values_compare_as_a_person_means_them(held: object, wanted: object, is_same: bool) -> None:
    assert is_same_value(held, wanted) is is_same
