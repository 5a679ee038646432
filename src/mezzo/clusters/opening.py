"""Opens a cluster: processes of this machine, or one of Ray's that runs already."""

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mezzo.clusters.scratch_dirs import tidy_up
from mezzo.common.errors import InputError
from mezzo.common.machine import count_cores
from mezzo.common.message_style import option, setting
from mezzo.common.packages import find_version, missing
from mezzo.contracts.executor import working_with

if TYPE_CHECKING:
    from mezzo.clusters.executor import RayCrew

_log = logging.getLogger(__name__)

LOCAL, AUTO, REMOTE = "local", "auto", "ray://"


@contextmanager
def cluster(
    address: str = LOCAL, *, workers: int | None = None, tell: Callable[[str], None] | None = None
) -> "Iterator[RayCrew]":
    """Let workers run what is done batch by batch while this is open, with the same results as in one process.

    Ranges, calibration, comparisons, sensitivity and tuning are spread; planning and writing stay. A worker that is
    lost is replaced, and its task begun again.

    Args:
        address: "local" starts processes on this machine and ends them; "auto" takes the cluster that this machine is
            part of; "ray://HOST:10001" one somewhere else.
        workers: how many; by default one for each processor.
        tell: is told in one line what people have to know, such as a worker that was lost; logged unless given.

    Raises:
        InputError: Ray is not installed, there is no such cluster, or no worker starts.
        MezzoError: inside, workers die of the same task one after the other, or do not start any more.
    """
    check_cluster(address, workers)
    # Late: it takes a second, and nobody else needs it.
    import ray

    from mezzo.clusters.executor import RayCrew

    say = tell or _log.warning
    is_ours = not ray.is_initialized()
    if is_ours:
        _connect(ray, address, workers, say)
    try:
        executor = RayCrew(ray, workers or _count_processors(ray), say)
        try:
            with working_with(executor):
                yield executor
        finally:
            executor.close()
    finally:
        if is_ours:
            ray.shutdown()
        tidy_up()  # of those that were let go in the middle of something, as far as they are on this machine


def check_cluster(address: str, workers: int | None) -> None:
    """Raises InputError: there can be no such cluster here."""
    name = option("cluster")
    if address not in (LOCAL, AUTO) and not (address.startswith(REMOTE) and len(address) > len(REMOTE)):
        raise InputError(f"{name} is {address!r}; choose one of {LOCAL}, {AUTO}, {REMOTE}HOST:PORT")
    if workers is not None and workers < 1:
        raise InputError(f"{option('workers')} is {workers}; give 1 or more")
    if find_version("ray") is None:
        raise missing("ray", setting("cluster", address), "; or leave it out")


def _connect(ray: Any, address: str, workers: int | None, say: Callable[[str], None]) -> None:
    # Only what the user sends leaves the machine.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address == LOCAL:
            # What is sent is little, and a folder for files has more room than one in memory.
            context = ray.init(
                address="local", num_cpus=workers or count_cores(), _plasma_directory=tempfile.gettempdir(), **quiet
            )
        else:
            context = ray.init(address=address, **quiet)
    except (ImportError, ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"{setting('cluster', address)}: no cluster answers there ({said}); start one with 'ray start --head', or "
            f"give {setting('cluster', LOCAL)}"
        ) from error
    if getattr(context, "dashboard_url", None):
        say(f"the cluster's dashboard is at http://{context.dashboard_url}")


def _count_processors(ray: Any) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))
