"""The option `--memory`, and its section in accounts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli.console import print_error
from mezzo.cli.options import data_options
from mezzo.common.errors import InputError

if TYPE_CHECKING:
    from mezzo.common.memory import MemoryLimit

Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="6GB",
        show_default="most of what is free",
        rich_help_panel=data_options.PANEL,
        help=(
            "Hold no more than this: a model that does not fit runs in segments, with the same"
            " results."
        ),
    ),
]


@contextmanager
def bounded(memory: str | None, cluster: str | None) -> "Iterator[MemoryLimit]":
    """Bound the process's memory while this context is open; the number of segments goes to stderr.

    Raises InputError: the size is invalid, this process alone exceeds it, or a cluster with other
    processes is used.
    """
    if memory is not None and cluster is not None:
        raise InputError(
            f"--memory is {memory} and --cluster is {cluster!r}: the bound is on this process, and"
            " workers are others; leave one out"
        )
    from mezzo.common.memory import memory as bound

    with bound(memory, tell=print_error) as memory_bound:
        yield memory_bound
