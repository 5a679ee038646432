"""A plan as data: its lines are made when asked for, and changed lines make another plan."""

from pairs import F16_LINE

from mezzo.contracts.plans import AddCopy, Plan, PlannedNode, Retype
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.precision_line import Precision, uniform
from mezzo.tables.policy import Category

F16 = DType.FLOAT16
LINE = PlannedNode("a", "Exp", "op", uniform(F16), Category.ALLOW, "rule", "why", None)
OTHER = LINE._replace(name="b", precision=Precision(F16, HIGH, HIGH))


def plan(lines: tuple[PlannedNode, ...], asked: list[str]) -> Plan:
    def nodes() -> tuple[PlannedNode, ...]:
        asked.append("nodes")
        return lines

    def fingerprint() -> str:
        asked.append("fingerprint")
        return "abc"

    return Plan(
        line=F16_LINE,
        dialect="onnx",
        version=21,
        settings=(("to", "fp16"),),
        edits=(),
        limits=(("w", 1.0),),
        notes=("note",),
        make_nodes=nodes,
        make_fingerprint=fingerprint,
    )


def test_uniform_precision_is_one_dtype_throughout() -> None:
    assert uniform(F16) == Precision(compute=F16, accumulate=F16, output=F16)


def test_lines_and_fingerprint_are_made_once_and_only_when_asked_for() -> None:
    asked: list[str] = []
    made = plan((LINE, OTHER), asked)
    assert asked == []
    assert made.nodes is made.nodes and made.nodes == (LINE, OTHER)
    assert made.fingerprint == made.fingerprint == "abc"
    assert made.by_name == {"a": LINE, "b": OTHER}
    assert asked == ["nodes", "fingerprint"]


def test_plan_with_other_lines_is_the_same_otherwise() -> None:
    made = plan((LINE,), [])
    other = made.with_nodes(line for line in (OTHER, LINE))
    assert other.nodes == other.nodes == (OTHER, LINE) and made.nodes == (LINE,)
    assert other == made  # its lines do not enter
    assert other.fingerprint == made.fingerprint


def test_plans_are_compared_and_shown_by_what_is_known_of_them() -> None:
    made, other = plan((LINE,), []), plan((OTHER,), [])
    assert made == other and repr(made) == repr(other)
    assert "function" not in repr(made) and "abc" not in repr(made)


def test_constants_are_stored_without_bounds_unless_one_is_given() -> None:
    assert Retype(1, F16).limit is None and AddCopy(1, F16).limit is None
