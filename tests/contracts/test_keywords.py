"""Docstrings of verbs with options: an entry for each option, whatever the other entries mention."""

from typing import Unpack

import pytest

from mezzo.contracts.options.keyword_types import PlanOptions
from mezzo.contracts.options.keywords import documents_options


@documents_options
def mentions(model: str, **options: Unpack[PlanOptions]) -> None:
    """Mention options in the prose of another entry.

    Args:
        model: a file; what becomes of it depends on
            policy, strategy, target: in this order.
        include, exclude,
            fix_region: as elsewhere.
    """


@pytest.mark.parametrize(("name", "count"), [("policy", 1), ("strategy", 1), ("target", 1), ("exclude", 0), ("io", 1)])
def test_an_option_that_another_entry_mentions_has_its_own_entry(name: str, count: int) -> None:
    doc = mentions.__doc__ or ""
    assert sum(line.startswith(f"        {name}: ") for line in doc.splitlines()) == count


def test_entries_that_are_there_stay() -> None:
    assert (mentions.__doc__ or "").count("as elsewhere") == 1
