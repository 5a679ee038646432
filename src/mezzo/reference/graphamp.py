"""GraphAMP (SambaNova): three presets, and colouring from outputs to inputs, the strategy
`upstream`.

Source: SambaNova, "Using Mixed Precision on RDUs" (SambaFlow 1.18). It describes the three sets and
mixed operators (low operands, accumulation and output in FP32), and names the kernels that have
them: linear, matmul, softmax, scaled dot-product attention. It lists no operators; these sets
follow its descriptions.

Conservative: linear operators are mixed, data movement infers. Balanced: attention and recurrent
cells are mixed too, safe arithmetic infers. Aggressive: all arithmetic is mixed, data movement and
comparisons infer. GraphAMP supports only BF16, so operators that may exceed FP16's range are denied
in FP16.

Upstream colouring: allowed nodes run low. A node that infers runs low if all readers of its outputs
run low, through chains, branches and loops. Denied nodes stay in FP32. Cases that the source does
not define: one FP32 reader keeps a node in FP32; a node without readers stays in FP32; a loop runs
low only if a reader outside it does.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from mezzo.contracts.coloring import ColouringStrategy, readers
from mezzo.contracts.problem import Choice, Split
from mezzo.formats.dtypes import HIGH, DType, narrow_formats
from mezzo.ir.nodes import Role
from mezzo.tables import oplists
from mezzo.tables.oplists import names
from mezzo.tables.policy import GRANTED, Category, Policy, rule

_CONSERVATIVE_ALLOW = oplists.FUSED_LINEAR | (oplists.LINEAR - names("DeformConv"))
_CONSERVATIVE_INFER = (
    oplists.CASTS
    | oplists.CONSTANTS
    | oplists.CONTROL
    | oplists.LOGICAL
    | oplists.MOVEMENT
    | oplists.SEQUENCES
)
_CONSERVATIVE_DENY = oplists.DOMAIN - _CONSERVATIVE_ALLOW - _CONSERVATIVE_INFER

CONSERVATIVE = Policy(
    name="graphamp-conservative",
    also=("graphamp",),
    summary="linear work on low operands with f32 results; all else f32 (GraphAMP)",
    rules=(
        rule(
            "allowset",
            Category.ALLOW,
            "its products are summed up in f32, so low operands do",
            ops=_CONSERVATIVE_ALLOW,
            worth=GRANTED,
            accumulate=HIGH,
            output=HIGH,
        ),
        rule(
            "inferset",
            Category.INFER,
            "takes the precision that its readers want",
            ops=_CONSERVATIVE_INFER,
        ),
        rule(
            "denyset",
            Category.DENY,
            "is in the denyset, as most do in this preset",
            ops=_CONSERVATIVE_DENY,
        ),
    ),
    findings=frozenset(),
    otherwise=Category.DENY,
    promotes_untroubled=False,
)


_BALANCED_ALLOW = oplists.ATTENTION | oplists.FUSED_LINEAR | oplists.LINEAR | oplists.RECURRENT
_BALANCED_INFER = (
    oplists.ARITHMETIC
    | oplists.BOUNDS
    | oplists.CASTS
    | oplists.CONSTANTS
    | oplists.CONTROL
    | oplists.EXPONENTIAL_UNITS
    | oplists.GATED
    | oplists.LOGICAL
    | oplists.MAXIMA
    | oplists.MOVEMENT
    | oplists.RECTIFIERS
    | oplists.SATURATING
    | oplists.SEQUENCES
)
_BALANCED_DENY = oplists.DOMAIN - _BALANCED_ALLOW - _BALANCED_INFER

BALANCED = Policy(
    name="graphamp-balanced",
    also=("graphamp",),
    summary=(
        "linear work and attention on low operands with f32 results, what feeds them low (GraphAMP)"
    ),
    rules=(
        rule(
            "allowset",
            Category.ALLOW,
            "its products are summed up in f32, so low operands do",
            ops=_BALANCED_ALLOW,
            worth=GRANTED,
            accumulate=HIGH,
            output=HIGH,
        ),
        rule(
            "inferset",
            Category.INFER,
            "takes the precision that its readers want",
            ops=_BALANCED_INFER,
        ),
        rule(
            "denyset",
            Category.DENY,
            "sums, steps or grows, so it stays in the denyset",
            ops=_BALANCED_DENY,
        ),
    ),
    findings=frozenset(),
    otherwise=Category.DENY,
    promotes_untroubled=False,
)


_AGGRESSIVE_ALLOW = (
    oplists.ARITHMETIC
    | oplists.ATTENTION
    | oplists.AVERAGES
    | oplists.BOUNDS
    | oplists.EXPONENTIAL_UNITS
    | oplists.FUSED_LINEAR
    | oplists.GATED
    | oplists.LINEAR
    | oplists.MAXIMA
    | oplists.NORMALIZATIONS
    | oplists.RECTIFIERS
    | oplists.RECURRENT
    | oplists.SATURATING
    | oplists.SOFTMAX
    | names("Sqrt")
)
# May exceed FP16's largest finite number, 65504; BF16 has FP32's range.
_GROWS = (
    (oplists.POWERS - names("Sqrt"))
    | oplists.EXPONENTIALS
    | oplists.PRODUCTS
    | (oplists.SUMS - names("CumSum"))
)
_AGGRESSIVE_INFER = (
    oplists.CASTS
    | oplists.COMPARISONS
    | oplists.CONSTANTS
    | oplists.CONTROL
    | oplists.INDICES
    | oplists.LOGICAL
    | oplists.MOVEMENT
    | oplists.RESAMPLING
    | oplists.SEQUENCES
)
_AGGRESSIVE_DENY = oplists.DOMAIN - _AGGRESSIVE_ALLOW - _GROWS - _AGGRESSIVE_INFER

_MIXED = "low operands do where sums and results are f32"
_LOSES = "loses its meaning in fewer bits"

AGGRESSIVE = Policy(
    name="graphamp-aggressive",
    also=("graphamp",),
    summary="all arithmetic on low operands with f32 results (GraphAMP)",
    rules=(
        rule(
            "allowset",
            Category.ALLOW,
            _MIXED,
            ops=_AGGRESSIVE_ALLOW,
            worth=GRANTED,
            accumulate=HIGH,
            output=HIGH,
        ),
        rule(
            "allowset",
            Category.ALLOW,
            _MIXED,
            ops=_GROWS,
            formats=(DType.BFLOAT16,),
            worth=GRANTED,
            accumulate=HIGH,
            output=HIGH,
        ),
        rule(
            "inferset",
            Category.INFER,
            "takes the precision that its readers want",
            ops=_AGGRESSIVE_INFER,
        ),
        rule(
            "denyset", Category.DENY, "may pass f16's 65504", ops=_GROWS, formats=narrow_formats()
        ),
        rule("denyset", Category.DENY, _LOSES, ops=_AGGRESSIVE_DENY),
    ),
    findings=frozenset(),
    otherwise=Category.DENY,
    promotes_untroubled=False,
)


# Groups that produce operands of a group. A group of linked nodes is named by its smallest:
# `Split.linked`.
_Makers = dict[int, list[int]]


class Upstream(ColouringStrategy):
    name: ClassVar[str] = "upstream"
    summary: ClassVar[str] = (
        "from outputs to inputs: allow converts, infer goes low if all readers do (GraphAMP)"
    )
    because: ClassVar[str] = "its readers decide"

    def colour(self, split: Split) -> Sequence[bool]:
        given = _given(split)
        wanted_low, wanted_high, makers = _requested_types(split, given)
        infers = {group for group, low in given.items() if low is None}
        pulled = _upstream_of(wanted_low, makers)
        kept = _upstream_of(wanted_high | (infers - pulled), makers)
        low = {
            group
            for group, given_low in given.items()
            if given_low or (given_low is None and group not in kept)
        }
        return [
            choice is Choice.LOW or (choice is Choice.FREE and split.linked[number] in low)
            for number, choice in enumerate(split.choices)
        ]


def _given(split: Split) -> dict[int, bool | None]:
    """Whether each group runs low; None if its readers decide.

    A node that must stay in FP32 keeps its whole group there; else a low or allowed node converts
    it.
    """
    decided: dict[int, bool | None] = {}
    for number, choice in enumerate(split.choices):
        group, category = split.linked[number], split.categories[number]
        before = decided.get(group)
        if choice is Choice.ABSENT or before is False:
            continue
        if choice is Choice.HIGH or (choice is Choice.FREE and category is Category.DENY):
            decided[group] = False
        elif choice is Choice.LOW or category is Category.ALLOW:
            decided[group] = True
        else:
            decided[group] = before
    return decided


def _requested_types(
    split: Split, given: Mapping[int, bool | None]
) -> tuple[set[int], set[int], _Makers]:
    """The groups that infer and have a low reader, those that have an FP32 reader, and the
    producers among them.
    """
    low: set[int] = set()
    high: set[int] = set()
    makers: _Makers = {}
    for node in split.graph.nodes:
        group = split.linked[node.id]
        if split.choices[node.id] is not Choice.FREE or given[group] is not None:
            continue
        if node.id in split.high_outputs:
            high.add(group)
        for reader, role in readers(split, node):
            other = split.linked[reader.id]
            if role is Role.ANY or other == group:
                continue
            if role is Role.FIXED or given[other] is False:
                high.add(group)
            elif given[other]:
                low.add(group)
            else:
                makers.setdefault(other, []).append(group)
    return low, high, makers


def _upstream_of(start: Iterable[int], makers: Mapping[int, Sequence[int]]) -> set[int]:
    """The groups and all that they depend on, directly or not."""
    upstream = set(start)
    waiting = list(upstream)
    while waiting:
        new = set(makers.get(waiting.pop(), ())) - upstream
        upstream |= new
        waiting += new
    return upstream
