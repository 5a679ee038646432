"""The option that bounds memory: `--memory`, and what accounts say of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli.console import print_error
from mezzo.cli.options import data_options
from mezzo.common.errors import InputError
from mezzo.common.memory import Memory as Bound
from mezzo.common.memory import memory as bound

if TYPE_CHECKING:
    from mezzo.report.records.documents import Document

Memory = Annotated[
    str | None,
    typer.Option("--memory", metavar="6GB", show_default="most of what is free", rich_help_panel=data_options.PANEL,
                 help="Hold no more than this: a model that does not fit runs in segments, with the same results."),
]  # fmt: skip


@contextmanager
def bounded(memory: str | None, cluster: str | None) -> "Iterator[Bound]":
    """Bound memory while this is open; into how many segments a model was cut goes to stderr.

    Raises InputError: the size is none, this process alone does not fit, or a cluster works, which has other processes.
    """
    if memory is not None and cluster is not None:
        raise InputError(
            f"--memory is {memory} and --cluster is {cluster!r}: the bound is on this process, and workers are others; "
            "leave one out"
        )
    with bound(memory, tell=print_error) as held:
        yield held


def with_memory(account: "Document", held: "Bound") -> "Document":
    """An account that says how memory was bounded, and what came of it."""
    from mezzo.report.records.sections import describe_memory

    return {**account, "memory": describe_memory(held)}
