"""Records of a folder conversion: converted models, failed files, and the whole."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mezzo.api.folders.ties import TypedTie
from mezzo.common.errors import ContractError, InputError, MezzoError, ModelError
from mezzo.conversion.results import Converted
from mezzo.conversion.summaries import summarise_folder
from mezzo.numerics.measures import Ruling
from mezzo.report.notebook.fragments import Card, draw_card, spell_card
from mezzo.report.records.documents import Document
from mezzo.report.records.groups import count_precisions
from mezzo.report.records.headline import Headline

_MOST_ROWS = 20  # of a table in a notebook


class FailedFile(NamedTuple):
    """A file that was neither converted nor copied as planned: its path in the folder, and why.

    `kind`: the name of the error's class, "ContractError" if a promise would break.
    """

    source: str
    because: str
    kind: str = "InputError"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedFile:
    """One model of a folder: its path in it, the path of its result, and the result.

    `account` is the JSON document of `mezzo convert --json`, without a graph. `ruling`: the verdict
    of the check on data, None without data. `is_unchanged`: an
    earlier run with the same resume folder converted it. Where another process or an earlier run
    converted a model, `converted` has the decisions and the counts, and what was measured is in
    `account` alone.
    """

    source: str
    result: str
    converted: Converted = field(repr=False)
    account: Document = field(repr=False, compare=False)
    headline: Headline = field(repr=False, compare=False)
    ruling: Ruling | None = None
    seconds: float = field(compare=False)
    is_unchanged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConvertedFolder:
    """The result of a folder conversion. Names are paths in a folder, with "/" between parts.

    `skipped` are models that were not converted, because they are low or quantized already;
    `failed` are files at fault; `left_out` are files neither converted nor copied; `ties` are
    inputs and outputs that share a type across files. `settings` are the options as given.
    """

    source: Path
    path: Path
    layout: str
    files: tuple[ConvertedFile, ...]
    skipped: tuple[tuple[str, str], ...]
    failed: tuple[FailedFile, ...]
    copied: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    ties: tuple[TypedTie, ...]
    settings: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return spell_card(self._card())

    def _repr_html_(self) -> str:
        return draw_card(self._card())

    def _card(self) -> Card:
        headline = summarise_folder(os.fspath(self.source), os.fspath(self.path), self)
        shown = self.files[:_MOST_ROWS]
        return Card(
            title=f"ConvertedFolder: {headline.title}",
            sentences=headline.rows(),
            titles=("model", "result", "nodes by precision"),
            rows=[(file.source, file.result) for file in shown],
            stacks=[count_precisions(file.converted.plan) for file in shown],
            standing=headline.standing,
        )


def error_of(failed: Iterable[FailedFile]) -> MezzoError:
    """The error of a folder in which every model failed: the first, and how many follow."""
    first, *others = failed
    more = f" (and {len(others)} more)" if others else ""
    kinds = {kind.__name__: kind for kind in (ModelError, ContractError)}
    return kinds.get(first.kind, InputError)(f"{first.because}{more}")
