"""Headline record: verdict, largest risk, gains and the next command of a result.

A terminal, a page and a notebook lay out the same record. Predictions are never worded as
measurements.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from mezzo.common.sizes import format_size
from mezzo.report.records.documents import Document, encode


class ResultStanding(enum.Enum):
    """The verdict on a result."""

    UNJUDGED = "not judged"
    RIGHT = "right"
    UNREFUTED = "not refuted"  # within bounds on random inputs, which prove little
    WRONG = "wrong"
    OPEN = "cannot tell"


class Move(enum.Enum):
    """Kind of next step; the command line and notebooks spell it as a command or a call."""

    WRITE = "write the model that was planned"
    JUDGE = "compare the result with its source"
    JUDGE_ON_OWN_DATA = "compare on data of one's own"
    RETARGET = "take what gains here"
    TUNE = "search for what holds the budget"
    LOOSEN = "search with the budget that can be held"
    MEASURE = "see what values hold on the data"
    REPLAN = "convert the FP32 model anew"
    EXPLAIN = "ask why a node runs in what it runs in"


class NextCommand(NamedTuple):
    """A command to copy, and its purpose."""

    command: str
    why: str


@dataclass(frozen=True, slots=True)
class Aim:
    """The suggested next step; `words` are its arguments: a node, a target, a budget."""

    move: Move
    words: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The summary of a result. Each field is a sentence; `gains` are about size, then about speed.

    `is_faster`: whether the target runs the result faster, measured or (if False) by its table;
    None if unknown. `step` is `aim` as a command, None until `with_step`.
    """

    title: str
    standing: ResultStanding
    verdict: str
    risk: str
    gains: tuple[str, ...]
    is_faster: bool | None
    aim: Aim
    step: NextCommand | None = None

    def with_step(self, step: NextCommand | None) -> "Headline":
        """A copy with the next step as a command."""
        return replace(self, step=step)

    def rows(self) -> tuple[tuple[str, str], ...]:
        """The sentences with labels, in reading order, without the next step."""
        labels = ("gain", *("" for _ in self.gains[1:]))
        return ("verdict", self.verdict), ("risk", self.risk), *zip(labels, self.gains, strict=True)


def describe_headline(headline: Headline | None) -> Document | None:
    """A headline as JSON data, the "summary" of a document."""
    return (
        None
        if headline is None
        else {
            "title": headline.title,
            "standing": headline.standing.value,
            "verdict": headline.verdict,
            "risk": headline.risk,
            "gains": list(headline.gains),
            "is_faster": headline.is_faster,
            "next": encode(headline.step),
        }
    )


def describe_sizes(before_bytes: int, after_bytes: int) -> str:
    """Sizes of source and result: "size 399 KB -> 209 KB (52 %)"."""
    share = f" ({100 * after_bytes / before_bytes:.0f} %)" if before_bytes else ""
    return f"size {format_size(before_bytes)} -> {format_size(after_bytes)}{share}"


def read_headline(document: Mapping[str, Any]) -> Headline:
    """The headline of a document's "summary", without its next step.

    Raises KeyError, TypeError or ValueError: it is none.
    """
    is_faster = document["is_faster"]
    return Headline(
        title=str(document["title"]),
        standing=ResultStanding(document["standing"]),
        verdict=str(document["verdict"]),
        risk=str(document["risk"]),
        gains=tuple(map(str, document["gains"])),
        is_faster=None if is_faster is None else bool(is_faster),
        aim=Aim(Move.JUDGE),
    )
