"""The options `--cluster` and `--workers`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from mezzo.cli.console import print_error
from mezzo.common.errors import InputError
from mezzo.contracts.options.option import Panel

PANEL = Panel.CLUSTER.value

Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="local|auto|ray://HOST:PORT",
        show_default=False,
        rich_help_panel=PANEL,
        help=(
            "Let Ray's workers run the data, with the same results: on this machine, on the cluster"
            " that it is part of, or on one elsewhere."
        ),
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        show_default="one for each processor",
        rich_help_panel=PANEL,
        help="How many of them.",
    ),
]


def check_spread(cluster: str | None, workers: int | None, data: object | None) -> None:
    """Raises InputError: the cluster is not available, or there is no data to distribute."""
    if cluster is None:
        if workers is not None:
            raise InputError(
                f"--workers is {workers} without --cluster; say where they are: --cluster local"
            )
        return
    from mezzo.clusters.opening import check_cluster

    check_cluster(cluster, workers)
    if data is None:
        raise InputError(
            f"--cluster is {cluster!r}, and without --data there is nothing to spread; give some,"
            " or leave it out"
        )


@contextmanager
def spread(cluster: str | None, workers: int | None) -> Iterator[None]:
    """Run on a cluster, if one is requested, in this context; its messages go to stderr."""
    if cluster is None:
        yield
        return
    from mezzo.clusters.opening import cluster as open_cluster

    with open_cluster(cluster, workers=workers, tell=print_error):
        yield
