"""What a reader has to know first of what was made: may it be trusted, the worst worry, what it gains, what to do next.

Data, and sentences made of it; a terminal, a page and a notebook lay the same record out. Nothing that is predicted is
told as measured.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from mezzo.common.sizes import format_size
from mezzo.report.records.documents import Document
from mezzo.tables.target import Gain

if TYPE_CHECKING:
    from mezzo.common.machine import Machine


class Standing(enum.Enum):
    """Whether a result may be trusted."""

    UNJUDGED = "not judged"
    RIGHT = "right"
    UNREFUTED = "not refuted"  # right on inputs that show little, as random ones do
    WRONG = "wrong"
    OPEN = "cannot tell"


class Move(enum.Enum):
    """What is worth doing next. Whoever speaks to people spells it in their words: a command, or a call."""

    WRITE = "write the model that was planned"
    JUDGE = "compare the result with its source"
    JUDGE_ON_OWN_DATA = "compare on data of one's own"
    RETARGET = "take what gains here"
    TUNE = "search for what holds the budget"
    LOOSEN = "search with the budget that can be held"
    MEASURE = "see what values hold on the data"
    EXPLAIN = "ask why a node runs in what it runs in"


class Step(NamedTuple):
    """A command, ready to copy, and what it is good for."""

    command: str
    why: str


@dataclass(frozen=True, slots=True)
class Aim:
    """The one thing to do next; `words` are what it needs beside the models: a node, a target, a budget."""

    move: Move
    words: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """What a reader has to know first. Each field is a sentence; those of `gains` are about size, then about speed.

    `is_faster`: whether the target runs the result faster: as measured, or not by its table; None where nobody knows.
    `step` is `aim` in the reader's words, None until somebody spells it.
    """

    title: str
    standing: Standing
    verdict: str
    risk: str
    gains: tuple[str, ...]
    is_faster: bool | None
    aim: Aim
    step: Step | None = None

    def with_step(self, step: Step | None) -> "Headline":
        """The same with what to do next in words."""
        return replace(self, step=step)

    def rows(self) -> tuple[tuple[str, str], ...]:
        """The sentences by what they tell, in the order in which they are read; what is next apart."""
        labels = ("gain", *("" for _ in self.gains[1:]))
        return ("verdict", self.verdict), ("risk", self.risk), *zip(labels, self.gains, strict=True)


def describe_headline(headline: Headline) -> Document:
    """Spell a headline as data, the "summary" of a document."""
    step = headline.step
    return {
        "title": headline.title,
        "standing": headline.standing.value,
        "verdict": headline.verdict,
        "risk": headline.risk,
        "gains": list(headline.gains),
        "is_faster": headline.is_faster,
        "next": None if step is None else {"command": step.command, "why": step.why},
    }


def tell_sizes(before_bytes: int, after_bytes: int) -> str:
    """What a result takes against its source: "size 399 KB -> 209 KB (52 %)"."""
    share = f" ({100 * after_bytes / before_bytes:.0f} %)" if before_bytes else ""
    return f"size {format_size(before_bytes)} -> {format_size(after_bytes)}{share}"


class Speed(NamedTuple):
    """What is expected of the speed of a result, in a sentence and as yes, no or not known."""

    sentence: str
    is_faster: bool | None


def expect_speed(gain: Gain | None, target: str, machine: "Machine", why_not: str | None = None) -> Speed:
    """What a target's table says of the speed of a format, where this machine is the one that runs it. `why_not`: why
    a result was not checked. A gain that nobody has measured is expected, and not known.
    """
    if gain is None:
        return Speed(f"speed not known: no row of target {target} tells", None)
    if not gain.is_faster:
        return Speed(f"no speed gain: {gain.in_short}", False)
    holds = gain.is_faster_on(machine)
    if holds is False:
        return Speed(f"no speed gain on this machine: it lacks {' and '.join(gain.needs)}", False)
    needed = "" if holds else f" with {' or '.join(gain.needs)}"
    checked = "not measured:" if why_not is None else f"not checked: {why_not};"
    return Speed(f"faster expected{needed}, {checked} {gain.in_short}", None)
