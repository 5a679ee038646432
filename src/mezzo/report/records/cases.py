"""Test cases for continuous integration: one per model, with the verdict on it."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mezzo.report.records.headline import Headline, ResultStanding

if TYPE_CHECKING:
    from mezzo.report.text.folder import Folder


class CaseState(enum.Enum):
    """How a case ended. FAILED: the answers differ; OPEN: the data cannot tell; ERROR: a file or an
    option is at fault; SKIPPED: nothing was to be done.
    """

    PASSED = "passed"
    FAILED = "failed"
    OPEN = "cannot tell"
    ERROR = "error"
    SKIPPED = "skipped"


_STATES = {ResultStanding.WRONG: CaseState.FAILED, ResultStanding.OPEN: CaseState.OPEN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model: its name, how it ended, why in one sentence, further sentences, and seconds."""

    name: str
    state: CaseState
    message: str
    details: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Suite:
    """The cases of one command; `title` says what it did."""

    command: str
    title: str
    cases: tuple[Case, ...]

    def count(self, *states: CaseState) -> int:
        """The number of cases in any of these states."""
        return sum(case.state in states for case in self.cases)


def case_of(name: str, headline: Headline, seconds: float = 0.0) -> Case:
    """The case of a result with a headline."""
    return Case(
        name=name,
        state=_STATES.get(headline.standing, CaseState.PASSED),
        message=headline.verdict,
        details=(headline.risk, *headline.gains),
        seconds=seconds,
    )


def cases_of(folder: "Folder") -> Iterator[Case]:
    """The cases of a folder's models: failed first, then converted, then those left as they are."""
    for failure in folder.failed:
        yield Case(name=failure.source, state=CaseState.ERROR, message=failure.because)
    for file in folder.files:
        yield case_of(file.source, file.headline, file.seconds)
    for name, because in folder.skipped:
        yield Case(name=name, state=CaseState.SKIPPED, message=because)
