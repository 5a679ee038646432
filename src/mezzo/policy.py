"""What is wanted: ordered rules that give each node a category. A policy never names an operator's implementation,
a device or a version."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from mezzo.dtypes import DType
from mezzo.facts import Cost, OpFacts, Risk


class Category(enum.Enum):
    """What a node wants. `clear` is `infer` for operators that only move or compare values."""

    ALLOW = "allow"
    INFER = "infer"
    CLEAR = "clear"
    DENY = "deny"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact that structure, constants or the user add to one node: rule name, evidence, and the node that caused
    it.
    """

    node: int
    rule: str
    because: str
    cause: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The category of a node, the rule that gave it and the evidence, in words. `worth`: see Rule."""

    category: Category
    rule: str
    because: str
    cause: int | None = None
    worth: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """Fires for an operator with any of `costs` or `risks`, in any of `formats`. Empty `formats` means every format.

    `worth`: for how many casts, at most, an operator that the rule allows is worth running low.
    """

    name: str
    category: Category
    because: str
    costs: frozenset[Cost] = frozenset()
    risks: frozenset[Risk] = frozenset()
    formats: frozenset[DType] = frozenset()
    worth: int = 0

    def fires(self, row: OpFacts, low: DType) -> bool:
        if self.formats and low not in self.formats:
            return False
        return row.cost in self.costs or bool(self.risks & row.risks)


def rule(
    name: str,
    category: Category,
    because: str,
    *,
    costs: Iterable[Cost] = (),
    risks: Iterable[Risk] = (),
    formats: Iterable[DType] = (),
    worth: int = 0,
) -> Rule:
    """Write one rule of a preset."""
    return Rule(name, category, because, frozenset(costs), frozenset(risks), frozenset(formats), worth)


# More casts than stand around any ordinary node: what is worth this is granted.
GRANTED = 16


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules in order; the first that fires decides, `otherwise` if none does.

    `findings` names the structure rules whose findings deny their node (see `mezzo.structure`); None means every rule,
    those to come included. `promotes_untroubled`: a region in which nothing needs FP32 is taken low as a whole.
    `limits_masks`: a mask past the range is stored as half the range instead of keeping its softmax in FP32.
    """

    name: str
    summary: str
    rules: tuple[Rule, ...]
    findings: frozenset[str] | None
    otherwise: Category = Category.INFER
    promotes_untroubled: bool = True
    limits_masks: bool = False

    def judge(self, row: OpFacts | None, low: DType) -> Verdict:
        """Give an operator's verdict, structure apart. A missing row is denied."""
        if row is None:
            return Verdict(Category.DENY, "unlisted", "no facts are known of this operator")
        for candidate in self.rules:
            if candidate.fires(row, low):
                return Verdict(candidate.category, candidate.name, candidate.because, None, candidate.worth)
        worth = GRANTED if self.otherwise is Category.ALLOW else 0
        return Verdict(self.otherwise, "otherwise", "no rule of the policy speaks of this operator", None, worth)
