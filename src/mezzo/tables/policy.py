"""What is wanted: ordered rules that give each node a category. A policy never names an operator's implementation,
a device or a version.
"""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from mezzo.formats.dtypes import HALF_FORMATS, HIGH, DType
from mezzo.ir.selectors import Selector, Site, Tier
from mezzo.tables.facts import Cost, OpFacts, Risk

# An operator: its dialect and its name.
OpKey = tuple[str, str]
# Says of a node, for a conversion to "fp16" or "bf16", what `policy_function` reads: a category, a category with
# dtypes, or None.
NodeFunction = Callable[[Site, str], object]


class Category(enum.Enum):
    """What a node wants. `clear` is `infer` for operators that only move or compare values."""

    ALLOW = "allow"
    INFER = "infer"
    CLEAR = "clear"
    DENY = "deny"

    __hash__ = object.__hash__


class Lifting(enum.Enum):
    """What lifts a denial when a model is converted on data.

    `never`: it stands, whatever data shows: about integers, precision, or what data need not show. `by_ranges`: a
    suspicion about size, lifted where every value of the node was measured and fits with headroom. `by_outputs`: a
    suspicion about error, lifted where every value was measured, whatever it holds, and the outputs are right without
    it. The outputs are checked after either.
    """

    NEVER = "never"
    BY_RANGES = "by ranges"
    BY_OUTPUTS = "by outputs"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fact that structure, constants or the user add to one node: rule name, evidence, and the node that caused
    it. `lifting`: what data may do about it; None is what its rule says.
    """

    node: int
    rule: str
    because: str
    cause: int | None = None
    lifting: Lifting | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFinding:
    """A finding about a node by its name: what was measured on one reading of a model holds for the next one. `dtype`:
    the low format that it is about, None where it is about all.
    """

    node: str
    rule: str
    because: str
    cause: str | None = None
    lifting: Lifting = Lifting.NEVER
    dtype: DType | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured of a node all of whose values data has exercised, in words. `fits`: all stay inside the format
    with headroom, and rounding leaves them what they are.
    """

    because: str
    fits: bool


@dataclass(frozen=True, slots=True)
class Lift:
    """A denial that data has lifted: the name of its rule, and what was measured, in words."""

    rule: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The category of a node, the rule that gave it and the evidence, in words. `worth`, `accumulate`, `output`: see
    Rule. `lift`: what would have denied the node had no data been seen.
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
    """Fires for an operator with any of `costs` or `risks`, or named in `ops`, in any of `formats`, at a node that all
    of `where` select. Empty means any: a rule with none of these fires everywhere. Empty `formats` means those that its
    policy speaks of, never one that mezzo learns later.

    `ops`: names of operators, "Softmax" in any dialect or "com.microsoft:Gelu" in one; one of ONNX stands for those of
    other dialects that are `like` it.
    `worth`: for how many casts, at most, an operator that the rule allows is worth running low.
    `accumulate` and `output`: in what an operator that runs low sums up and hands on, if not in the low format.
    `lifting`: what data may do about a denial.
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
        """How specific the rule is; the more specific decides."""
        return max((selector.tier for selector in self.where), default=Tier.TYPE if self.ops else Tier.PRESET)

    def fires(
        self, key: OpKey, row: OpFacts | None, low: DType, known: frozenset[DType] = HALF_FORMATS
    ) -> bool:  # fmt: skip
        """Whether the rule is about an operator, its nodes apart. `known`: the formats that its policy speaks of."""
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

    def verdict(self) -> Verdict:
        return Verdict(
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
    """Write one rule of a policy."""
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


# More casts than stand around any ordinary node: what is worth this is granted.
GRANTED = 16


class Missing(enum.Enum):
    """What to do about operators that no rule and no facts speak of."""

    SILENT = "silent"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules. The most specific that fires decides, the first among equals, `otherwise` if none does: what is said of a
    name beats a region, that an attribute, that an operator's type, that the preset's costs and risks.

    `findings` names the structure rules whose findings deny their node (see `mezzo.analysis.structure`), beside those
    that bind every policy; None means every rule, those to come included. A finding beats rules up to attributes, and
    gives way to regions and names.
    `unlisted`: what an operator without facts gets if no rule names it; `missing` says who hears of it.
    `promotes_untroubled`: a region in which nothing needs FP32 is taken low as a whole.
    `limits_masks`: a mask past the range is stored as half the range instead of keeping its softmax in FP32.
    `trusts_exact_masks`: a mask for which a softmax that may run low answers as in FP32 keeps nothing in FP32.
    `source`: where the rules come from, if not from here.
    `formats`: those that `otherwise`, `unlisted` and rules without formats speak of; in any other an operator is denied
    unless a rule names the format.
    `function`: is asked of each operator and beats all rules; what it answers None of is left to them.
    `also`: other words for it; one that several policies have is asked back.
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
        """Whether some verdict may say that what runs low hands on FP32."""
        return self.function is not None or any(rule.output is HIGH for rule in self.rules)

    def judge(self, key: OpKey, row: OpFacts | None, low: DType, *, lifts: bool = False) -> Verdict:
        """Give an operator's verdict, rules about single nodes and structure apart. `lifts`: denials that ranges lift
        do not count; the first is named in the verdict, for whoever has the ranges to tell.
        """
        lift: Lift | None = None
        for tier in (Tier.TYPE, Tier.PRESET):
            for candidate in self.rules:
                if candidate.tier is not tier or not candidate.fires(key, row, low, self.formats):
                    continue
                if not (lifts and candidate.is_lifted_by_ranges):
                    return replace(candidate.verdict(), lift=lift)
                lift = lift or Lift(candidate.name, "")
        if low not in self.formats:
            return Verdict(
                category=Category.DENY,
                rule="unknown-format",
                because=f"no rule of the policy speaks of it in {low}",
                lift=lift,
            )
        if row is None:
            return Verdict(category=self.unlisted, rule="unlisted", because="no facts are known of this operator")
        worth = GRANTED if self.otherwise is Category.ALLOW else 0
        because = "no rule of the policy speaks of this operator"
        return Verdict(category=self.otherwise, rule="otherwise", because=because, cause=None, worth=worth, lift=lift)

    def local_rules(self, tier: Tier) -> tuple[Rule, ...]:
        """The rules about single nodes of one tier, in order."""
        return tuple(rule for rule in self.rules if rule.where and rule.tier is tier)
