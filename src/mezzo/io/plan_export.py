"""Plan exporter contract: a plan in, the settings with which another tool keeps and lowers the same
nodes out. Pure text from a plan; what a tool cannot express is a note in it.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from mezzo.common.errors import InputError
from mezzo.common.message_style import either
from mezzo.common.packages import VERSION
from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.formats.dtypes import QUANTIZED, DType
from mezzo.ir.nodes import Kind

_SHOWN = 3
# Settings of a plan that a header states.
_STATED = ("to", "policy", "target")


class PlanExporter(ABC):
    """One tool that takes decisions of a plan. `name`: on the command line; `also`: aliases;
    `tool`: its own name; `summary`: what is written; `written_for`: versions whose documents or
    sources were read; `tried_with`: versions that ran with the result, or why none did; `usage`:
    how the tool is given the file.
    """

    name: ClassVar[str]
    also: ClassVar[tuple[str, ...]] = ()
    tool: ClassVar[str]
    summary: ClassVar[str]
    written_for: ClassVar[str]
    tried_with: ClassVar[str]
    usage: ClassVar[str]

    @abstractmethod
    def render(self, plan: Plan) -> str:
        """The text for the tool. Raises InputError: it takes no such plan."""

    def header(self, plan: Plan, notes: Sequence[str]) -> dict[str, object]:
        """The fields that precede the settings: origin, versions, usage, notes."""
        settings = dict(plan.settings)
        stated = {name: settings[name] for name in _STATED if name in settings}
        return {
            "made_by": f"mezzo {VERSION}",
            "tool": self.tool,
            "written_for": self.written_for,
            "tried_with": self.tried_with,
            "usage": self.usage,
            "plan": {**stated, "fingerprint": plan.fingerprint},
            "notes": [*notes, *common_notes(plan, self.tool)],
        }

    def as_json(self, plan: Plan, settings: dict[str, object], notes: Sequence[str] = ()) -> str:
        """A JSON document: the header, then the settings."""
        return to_text({**self.header(plan, notes), **settings})

    def as_comments(self, plan: Plan, notes: Sequence[str] = ()) -> str:
        """The header as comment lines of a shell or Python file."""
        header = self.header(plan, notes)
        stated = header.pop("plan")
        assert isinstance(stated, dict), "made above"
        lines = [
            f"{header.pop('made_by')}, for {header.pop('tool')}",
            f"plan: {', '.join(f'{name} {value}' for name, value in stated.items())}",
        ]
        all_notes = header.pop("notes")
        assert isinstance(all_notes, list), "made above"
        lines += [f"{name.replace('_', ' ')}: {value}" for name, value in header.items()]
        lines += [f"note: {note}" for note in all_notes]
        # A name of a model may hold a line break, which would end the comment.
        return "".join(f"# {' '.join(line.split())}\n" for line in lines)

    def refuse(self, plan: Plan, dialect: str, remedy: str) -> None:
        """Raises InputError: the plan is not of a model of this dialect."""
        if plan.dialect != dialect:
            raise InputError(
                f"{self.tool} takes no plan of a model in dialect {plan.dialect!r}, wanted"
                f" {dialect!r}; {remedy}"
            )


def to_text(document: dict[str, object]) -> str:
    """A JSON document in ASCII, ending in a line break."""
    return json.dumps(document, indent=2) + "\n"


def operators(plan: Plan) -> list[PlannedNode]:
    """The operators that a tool sees by name: all but those inside bodies and functions."""
    inside = _inside(plan)
    return [node for node in plan.nodes if _is_operator(node) and node.name not in inside]


def kept(nodes: Iterable[PlannedNode], lowered: frozenset[DType]) -> list[str]:
    """Names of the nodes whose compute type is none of `lowered`."""
    return [node.name for node in nodes if node.precision.compute not in lowered]


def low_floats(plan: Plan) -> frozenset[DType]:
    """The plan's levels that are floats of 16 bits."""
    return frozenset(plan.lows) - QUANTIZED


def quantized_levels(plan: Plan) -> frozenset[DType]:
    """The plan's levels with scales; a plan without one has its low floats in their place, so that
    a quantizer leaves out what that plan keeps in FP32.
    """
    return (frozenset(plan.lows) & QUANTIZED) or low_floats(plan)


def quantizer_notes(plan: Plan, tool: str) -> list[str]:
    """What a quantizer cannot express of a plan's floats."""
    floats = ", ".join(sorted(str(dtype) for dtype in low_floats(plan)))
    if not frozenset(plan.lows) & QUANTIZED:
        return [
            f"the plan has no int8 level: what it keeps in f32 is left out, and {tool} may quantize"
            f" the rest, which the plan has in {floats}"
        ]
    return [f"{floats} is no format of {tool}: those nodes stay in f32 there"] if floats else []


def values_of(plan: Plan, tool: str) -> dict[str, tuple[str, ...]]:
    """Names of the values that each node produces. Raises InputError: the plan was read from a
    file, which has no names of values.
    """
    made: dict[str, list[str]] = {}
    for value, makers in plan.names.makers.items():
        for maker in makers:
            made.setdefault(maker, []).append(value)
    if not made:
        raise InputError(
            f"{tool} goes by the names of values, which a saved plan does not have; "
            + either(
                "give the model, and the plan as --plan", "give the model too, as model='x.onnx'"
            )
        )
    return {name: tuple(values) for name, values in made.items()}


def common_notes(plan: Plan, tool: str) -> list[str]:
    """Parts of a plan that no exporter expresses, as one line each."""
    inside = _inside(plan)
    bodies = [node.name for node in plan.nodes if _is_operator(node) and node.name in inside]
    nodes = operators(plan)
    unnamed = [node.name for node in nodes if node.name.startswith(f"{node.op}:")]
    split = [node.name for node in nodes if len(set(node.precision)) > 1]
    casts = [node.name for node in plan.nodes if node.kind == Kind.CAST.value]
    ports = [
        node.name
        for node in plan.nodes
        if node.kind in (Kind.INPUT.value, Kind.OUTPUT.value)
        and node.precision.output is not plan.high
    ]
    return [
        f"{say(len(names), names)}: {text}"
        for names, text in (
            (bodies, f"inside an If, a loop or a function, where {tool} names no nodes; left out"),
            (unnamed, "without a name in the model, listed as OPERATOR:OUTPUT; give the model these"
             " names before: node.name = node.name or f'{node.op_type}:{node.output[0]}'"),
            (split, f"compute, accumulate and output in several types; {tool} takes the first"),
            (casts, f"narrowing casts of the model, which the plan keeps; {tool} may not"),
            (ports, f"inputs and outputs that the plan lowers; tell {tool} by its own option"),
            ([name for name, _ in plan.in_blocks], "stored in blocks of few bits; not exported"),
            (plan.dynamic, "quantized at run time; exported like nodes with static scales"),
            ([correction.value for correction in plan.corrected],
             "constants that the plan corrects; the corrections are not exported"),
            ([each.value for each in plan.scaled],
             "values stored times a power of two; the scales are not exported"),
            ([name for name, _ in plan.limits], "constants that the plan clamps; not exported"),
        )
        if names
    ]  # fmt: skip


def say(count: int, names: Sequence[str]) -> str:
    """A count of nodes with the first names."""
    more = ", ..." if count > _SHOWN else ""
    return f"{count} ({', '.join(map(repr, names[:_SHOWN]))}{more})"


def _is_operator(node: PlannedNode) -> bool:
    return node.kind == Kind.OP.value


def _inside(plan: Plan) -> frozenset[str]:
    """Names of the operators in bodies and functions, whose names begin with the owner's, which is
    the part of a tie's name before its last dot.
    """
    owners = {
        f"{node.name.rpartition('.')[0]}/" for node in plan.nodes if node.kind == Kind.TIE.value
    }
    prefixes = tuple(owners)
    return frozenset(node.name for node in plan.nodes if node.name.startswith(prefixes))
