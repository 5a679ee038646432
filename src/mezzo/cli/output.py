"""Output of commands: a report or one JSON document; for results a first screen and a page too."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo.cli.console import (
    MORE_OR_DRAWN,
    output_layout,
    print_document,
    print_first_screen,
    print_report,
)
from mezzo.cli.options.ci_options import write_cases
from mezzo.cli.options.report_option import draw_report, print_report_path
from mezzo.report.records.cases import case_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mezzo.common.memory import MemoryLimit
    from mezzo.report.layout.layout import Layout
    from mezzo.report.records.documents import Document
    from mezzo.report.records.headline import Headline
    from mezzo.report.views.outline import Outline


def print_result(
    account: "Callable[[], Document]",
    report: "Callable[[Layout], Iterable[RenderableType]]",
    *,
    as_json: bool,
    quiet: bool = False,
    memory: "MemoryLimit | None" = None,
) -> None:
    """Print a result as one JSON document or as a report, or not at all.

    The document has the memory bound if there is one.
    """
    if quiet:
        return
    if as_json:
        print_document(account() if memory is None else _with_memory(account(), memory))
    else:
        layout = output_layout()
        print_report(report(layout), layout, is_paged=True)


def _with_memory(account: "Document", memory: "MemoryLimit") -> "Document":
    """An account with the memory bound and its effect."""
    from mezzo.report.records.sections import describe_memory

    return {**account, "memory": describe_memory(memory)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a command prints, draws and writes for continuous integration: its options --report,
    --junit, --markdown, --verbose, --json and --quiet.
    """

    report: Path | None = None
    junit: Path | None = None
    markdown: Path | None = None
    verbose: bool = False
    as_json: bool = False
    quiet: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is printed, drawn or written."""
        return self.quiet and self.report is self.junit is self.markdown is None

    @property
    def has_account(self) -> bool:
        """Whether the account is printed or drawn."""
        return self.report is not None or (self.as_json and not self.quiet)

    @property
    def has_details(self) -> bool:
        """Whether there is more than the headline."""
        return self.has_account or (self.verbose and not self.quiet)

    def write_case(self, command: str, name: str, headline: "Headline") -> None:
        """Write a result as the only test case. Raises InputError: a file cannot be written."""
        if self.junit is not None or self.markdown is not None:
            case = case_of(name, headline)
            write_cases(self.junit, self.markdown, command, headline.title, [case])

    def print_headline(self, headline: "Headline", more: str = MORE_OR_DRAWN) -> None:
        """Print a result's headline alone; `more` is the hint on how to see the rest."""
        if not self.quiet:
            print_first_screen(headline, (), output_layout(), has_all=False, more=more)

    def present(
        self,
        headline: "Headline",
        account: "Callable[[], Document]",
        outline: "Callable[[], Outline]",
        steps: Iterable[tuple[str, str]],
        details: "Callable[[Layout], Sequence[RenderableType]]",
        memory: "MemoryLimit",
    ) -> None:
        """Print a result, and draw its page.

        `outline` and the next commands `steps` are on the page alone; `details` is the report
        below the headline.
        """
        if self.has_account:
            document = draw_report(self.report, _with_memory(account(), memory), outline, steps)
            if self.as_json and not self.quiet:
                print_document(document)
        if self.as_json or self.quiet:
            return
        layout = output_layout()
        rest = details(layout) if self.verbose else ()
        print_first_screen(headline, rest, layout, has_all=self.verbose, more=MORE_OR_DRAWN)
        print_report_path(self.report)
