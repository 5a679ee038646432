"""Markdown of test cases, for a pull request's comment or a job's summary.

Names and messages come from files and are untrusted: they are HTML code elements whose punctuation
is escaped, since GitHub turns "@name", "#1" and links into references everywhere else.
"""

import re
from collections.abc import Iterable, Iterator

from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import spell_count
from mezzo.report.records.cases import Case, CaseState, Suite

# A comment on GitHub has at most 65,536 characters, and a row a few hundred.
_MOST_ROWS = 100
_LONGEST = 240
_MARKS = {
    CaseState.ERROR: "❌ error",
    CaseState.FAILED: "❌ failed",
    CaseState.OPEN: "⚠️ cannot tell",
    CaseState.PASSED: "✅",
    CaseState.SKIPPED: "⏭️ skipped",
}
_PUNCTUATION = re.compile(r"[^\w\s.,;/-]|_")
_LEAST_SAID = frozenset({CaseState.PASSED, CaseState.SKIPPED})


def to_markdown(suite: Suite) -> str:
    """The counts, the cases that failed, and all others folded away."""
    bad = [case for case in suite.cases if case.state not in _LEAST_SAID]
    fine = [case for case in suite.cases if case.state in _LEAST_SAID]
    counts = ", ".join(
        f"{suite.count(state)} {state.value}" for state in CaseState if suite.count(state)
    )
    lines = [f"### mezzo {suite.command}: {counts}", "", _code(suite.title), ""]
    if bad:
        lines += [*_table(bad), ""]
    if fine and len(suite.cases) == 1:
        lines += _table(fine)
    elif fine:
        lines += ["<details>", f"<summary>{spell_count(len(fine), 'other model')}</summary>", ""]
        lines += [*_table(fine), "", "</details>"]
    return "\n".join(lines).rstrip() + "\n"


def _table(cases: Iterable[Case]) -> Iterator[str]:
    """Rows of state, model and message, with details of what failed."""
    yield "| | model | |"
    yield "|---|---|---|"
    rows = list(cases)
    for case in rows[:_MOST_ROWS]:
        details = () if case.state in _LEAST_SAID else case.details
        message = "<br>".join(map(_code, (case.message, *details)))
        yield f"| {_MARKS[case.state]} | {_code(case.name)} | {message} |"
    if len(rows) > _MOST_ROWS:
        yield f"| | and {len(rows) - _MOST_ROWS} more | |"


def _code(text: str) -> str:
    shown = clean(text)
    if len(shown) > _LONGEST:
        shown = f"{shown[: _LONGEST // 2]}...{shown[-_LONGEST // 2 :]}"
    escaped = _PUNCTUATION.sub(lambda match: f"&#{ord(match[0])};", " ".join(shown.split()))
    return f"<code>{escaped}</code>"
