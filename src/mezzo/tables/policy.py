"""Policies: ordered rules that give each node a category. A policy never names an operator's
implementation, a device or a version.
"""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from mezzo.formats.dtypes import HALF_FORMATS, HIGH, DType
from mezzo.ir.selectors import Selector, Site, Tier
from mezzo.tables.facts import Cost, OpFacts, Risk

# An operator: its dialect and its name.
OpKey = tuple[str, str]
# A user's function of a node and a format, "fp16" or "bf16". Returns a category, a category with
# dtypes, or None; see `policy_function`.
NodeFunction = Callable[[Site, str], object]


class Category(enum.Enum):
    """Preference of a node: ALLOW low precision, INFER from neighbours, DENY. CLEAR is INFER for
    operators that only move or compare values.
    """

    ALLOW = "allow"
    INFER = "infer"
    CLEAR = "clear"
    DENY = "deny"

    __hash__ = object.__hash__


class Lifting(enum.Enum):
    """Which calibration data lifts a denial.

    `never`: none: the denial is about integers or precision, or data need not show it. `by_ranges`:
    a suspected overflow, lifted if all values of the node were measured and fit with headroom.
    `by_outputs`: a suspected error, lifted if all values were measured and the outputs are right
    without the denial. Outputs are checked in both cases.
    """

    NEVER = "never"
    BY_RANGES = "by ranges"
    BY_OUTPUTS = "by outputs"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Evidence on one node from structure, constants or the user: rule name, text, and the node
    that caused it. `lifting`: which data lifts it; None for the rule's own.
    """

    node: int
    rule: str
    because: str
    cause: int | None = None
    lifting: Lifting | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFinding:
    """A finding by node name, so that what was measured on one reading of a model applies to the
    next. `dtype`: the low format that it concerns, None for all.
    """

    node: str
    rule: str
    because: str
    cause: str | None = None
    lifting: Lifting = Lifting.NEVER
    dtype: DType | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Measurements of a node whose values were all observed, as text. `fits`: all stay in the
    format's range with headroom and survive rounding.
    """

    because: str
    fits: bool


@dataclass(frozen=True, slots=True)
class Lift:
    """A denial lifted by data: its rule, and the measurement as text."""

    rule: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdict:
    """Category of a node, with the deciding rule and evidence as text. `worth`, `accumulate`,
    `output`: see Rule. `lift`: the denial that data lifted.
    """

    category: Category
    rule: str
    because: str
    cause: int | None = None
    worth: int = 0
    accumulate: DType | None = None
    output: DType | None = None
    lift: Lift | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Matches operators with any of `costs` or `risks`, or named in `ops`, for any of `formats`, at
    nodes that all of `where` select. Empty means any: a rule with none of these matches everywhere.
    Empty `formats` means those of its policy, never formats added to mezzo later.

    `ops`: operator names, "Softmax" in any dialect or "com.microsoft:Gelu" in one; a name of ONNX
    also matches operators of other dialects that are `like` it. `worth`: for ALLOW, the maximum
    number of casts that running low is worth. `accumulate` and `output`: accumulation and output
    dtypes in low precision, if not the low format. `lifting`: which data lifts a denial.
    """

    name: str
    category: Category
    because: str
    costs: frozenset[Cost] = frozenset()
    risks: frozenset[Risk] = frozenset()
    formats: frozenset[DType] = frozenset()
    worth: int = 0
    ops: frozenset[str] = frozenset()
    where: tuple[Selector, ...] = ()
    accumulate: DType | None = None
    output: DType | None = None
    lifting: Lifting = Lifting.NEVER

    @property
    def tier(self) -> Tier:
        """Specificity of the rule; the most specific rule decides."""
        return max(
            (selector.tier for selector in self.where),
            default=Tier.TYPE if self.ops else Tier.PRESET,
        )

    def fires(
        self, key: OpKey, row: OpFacts | None, low: DType, known: frozenset[DType] = HALF_FORMATS
    ) -> bool:  # fmt: skip
        """Whether the rule matches an operator, apart from `where`. `known`: the formats of its
        policy.
        """
        if low not in (self.formats or known):
            return False
        if not (self.costs or self.risks or self.ops):
            return True
        if key[1] in self.ops or ":".join(key) in self.ops:
            return True
        if row is not None and row.like in self.ops:
            return True
        return row is not None and (row.cost in self.costs or bool(self.risks & row.risks))

    @property
    def is_lifted_by_ranges(self) -> bool:
        return self.category is Category.DENY and self.lifting is Lifting.BY_RANGES

    def verdict(self) -> NodeVerdict:
        return NodeVerdict(
            category=self.category,
            rule=self.name,
            because=self.because,
            cause=None,
            worth=self.worth,
            accumulate=self.accumulate,
            output=self.output,
        )


def rule(
    name: str,
    category: Category,
    because: str,
    *,
    costs: Iterable[Cost] = (),
    risks: Iterable[Risk] = (),
    formats: Iterable[DType] = (),
    worth: int = 0,
    ops: Iterable[str] = (),
    where: Iterable[Selector] = (),
    accumulate: DType | None = None,
    output: DType | None = None,
    lifting: Lifting = Lifting.NEVER,
) -> Rule:
    """Create a rule of a policy."""
    return Rule(
        name=name,
        category=category,
        because=because,
        costs=frozenset(costs),
        risks=frozenset(risks),
        formats=frozenset(formats),
        worth=worth,
        ops=frozenset(ops),
        where=tuple(where),
        accumulate=accumulate,
        output=output,
        lifting=lifting,
    )


# More casts than surround any ordinary node: a node worth this many always runs low.
GRANTED = 16


class Missing(enum.Enum):
    """How operators without a rule and without facts are reported."""

    SILENT = "silent"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules. The most specific match decides, the first among equals, `otherwise` if none matches.
    Order of specificity: node name, region, attribute, operator type, costs and risks of the
    preset.

    `findings`: the structure rules that deny their nodes (see `mezzo.analysis.structure`), in
    addition to the mandatory ones; None means all, future ones included. A finding overrides rules
    up to attributes, not regions and names. `unlisted`: category of operators without facts and
    rules; `missing`: how they are reported. `promotes_untroubled`: regions in which no node needs
    FP32 run low as a whole. `limits_masks`: masks past the range are clamped to half the range
    instead of keeping their softmax in FP32. `trusts_exact_masks`: masks that do not change a
    low-precision softmax keep no node in FP32. `source`: where the rules come from, if not from
    mezzo. `formats`: formats that `otherwise`, `unlisted` and rules without formats apply to; in
    others an operator is denied unless a rule names the format. `function`: called for each
    operator; overrides all rules unless it returns None. `also`: aliases; one that several policies
    share is rejected as ambiguous.
    """

    name: str
    summary: str
    rules: tuple[Rule, ...]
    findings: frozenset[str] | None
    otherwise: Category = Category.INFER
    promotes_untroubled: bool = True
    limits_masks: bool = False
    trusts_exact_masks: bool = False
    unlisted: Category = Category.DENY
    missing: Missing = Missing.SILENT
    source: str = ""
    formats: frozenset[DType] = HALF_FORMATS
    function: NodeFunction | None = None
    also: tuple[str, ...] = field(default=(), compare=False)

    @property
    def may_hand_on_high(self) -> bool:
        """Whether some verdict may request FP32 outputs of low-precision operators."""
        return self.function is not None or any(rule.output is HIGH for rule in self.rules)

    def judge(
        self, key: OpKey, row: OpFacts | None, low: DType, *, lifts: bool = False
    ) -> NodeVerdict:
        """Verdict on an operator, without rules for single nodes and structure. `lifts`: denials
        that ranges can lift are skipped; the verdict's `lift` names the first.
        """
        lift: Lift | None = None
        for tier in (Tier.TYPE, Tier.PRESET):
            for candidate in self.rules:
                # Few rules fire: their tier is found out afterwards.
                if not candidate.fires(key, row, low, self.formats) or candidate.tier is not tier:
                    continue
                if not (lifts and candidate.is_lifted_by_ranges):
                    return replace(candidate.verdict(), lift=lift)
                lift = lift or Lift(candidate.name, "")
        if low not in self.formats:
            return NodeVerdict(
                category=Category.DENY,
                rule="unknown-format",
                because=f"no rule of the policy speaks of it in {low}",
                lift=lift,
            )
        if row is None:
            return NodeVerdict(
                category=self.unlisted,
                rule="unlisted",
                because="no facts are known of this operator",
            )
        worth = GRANTED if self.otherwise is Category.ALLOW else 0
        because = "no rule of the policy speaks of this operator"
        return NodeVerdict(
            category=self.otherwise,
            rule="otherwise",
            because=because,
            cause=None,
            worth=worth,
            lift=lift,
        )

    def local_rules(self, tier: Tier) -> tuple[Rule, ...]:
        """The rules for single nodes of one tier, in order."""
        return tuple(rule for rule in self.rules if rule.where and rule.tier is tier)
