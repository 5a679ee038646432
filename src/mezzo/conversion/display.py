"""Display of a conversion or a search in a shell, in a notebook, and as a page."""

import os
from typing import Protocol

from mezzo.common.machine import find_machine
from mezzo.conversion.summaries import summarise_result
from mezzo.report.html.page import check_page_path, write_account
from mezzo.report.notebook.fragments import draw_card, spell_card
from mezzo.report.notebook.notebook import card_of, measures_of, with_call
from mezzo.report.records.account import describe_conversion, describe_tuning, with_graph
from mezzo.report.records.documents import Document
from mezzo.report.records.headline import Headline
from mezzo.report.text.folder import ConvertedLike
from mezzo.report.views.outline import Outline
from mezzo.report.views.picture import Picture

_NAME = "Converted"


class ConvertedModel(ConvertedLike, Protocol):
    """The fields of a conversion's result that its display uses."""

    @property
    def source(self) -> str: ...
    @property
    def path(self) -> os.PathLike[str] | None: ...


def spell_result(converted: ConvertedModel) -> str:
    """Five lines about a conversion or a search, for `repr`."""
    return spell_card(card_of(_NAME, _summarise(converted), ()))


def draw_result(converted: ConvertedModel, picture: Picture | None) -> str:
    """An HTML fragment about a conversion or a search, for a notebook; with a picture, if any."""
    measures = () if picture is None else measures_of(picture)
    return draw_card(card_of(_NAME, _summarise(converted), measures))


def write_page(converted: ConvertedModel, outline: Outline, path: str | os.PathLike[str]) -> None:
    """Write the HTML page of a conversion or a search. Raises InputError: the path cannot be
    written, or is another file than such a page.
    """
    check_page_path(path)
    write_account(path, with_graph(_describe(converted), outline))


def _describe(converted: ConvertedModel) -> Document:
    """The account of a conversion or a search."""
    plan, summary, measured = converted.plan, converted.summary, converted.measured
    names = _names(converted)
    headline, machine = with_call(_summarise(converted)), find_machine()
    if measured is not None and measured.search is not None:
        return describe_tuning(*names, plan, summary, measured, machine=machine, headline=headline)
    return describe_conversion(*names, plan, summary, measured, machine=machine, headline=headline)


def _summarise(converted: ConvertedModel) -> Headline:
    return summarise_result(*_names(converted), converted)


def _names(converted: ConvertedModel) -> tuple[str, str]:
    """The names of the source and of the result."""
    return converted.source, "memory" if converted.path is None else os.fspath(converted.path)
