"""Connection to a Ray cluster: local worker processes, or a running cluster."""

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mezzo.clusters.scratch_dirs import remove_scratch_dirs
from mezzo.common.errors import InputError
from mezzo.common.machine import count_cores
from mezzo.common.message_style import option, setting
from mezzo.common.packages import find_version, missing
from mezzo.contracts.executor import working_with

if TYPE_CHECKING:
    from mezzo.clusters.executor import RayExecutor

_log = logging.getLogger(__name__)

LOCAL, AUTO, REMOTE = "local", "auto", "ray://"


@contextmanager
def cluster(
    address: str = LOCAL, *, workers: int | None = None, tell: Callable[[str], None] | None = None
) -> "Iterator[RayExecutor]":
    """Run per-batch work on a cluster's workers inside this context, with the same results as in
    one process.

    Range measurement, calibration, comparison, sensitivity and tuning are distributed; planning and
    writing stay in this process. A lost worker is replaced and its task restarted.

    Args:
        address: "local" starts processes on this machine and stops them afterwards; "auto" joins
            the cluster of this machine; "ray://HOST:10001" connects to a remote one.
        workers: number of workers; by default one per processor.
        tell: receives one-line messages for the user, such as a lost worker; logged by default.

    Raises:
        InputError: Ray is not installed, the cluster does not answer, or no worker starts.
        MezzoError: inside the context: workers keep dying from one task, or fail to start.
    """
    check_cluster(address, workers)
    # Imported late: it takes a second, and no other module needs it.
    import ray

    from mezzo.clusters.executor import RayExecutor

    say = tell or _log.warning
    is_ours = not ray.is_initialized()
    if is_ours:
        _connect(ray, address, workers, say)
    try:
        processors = max(1, int(ray.cluster_resources().get("CPU", 1)))
        executor = RayExecutor(ray, workers or processors, say)
        try:
            with working_with(executor):
                yield executor
        finally:
            executor.close()
    finally:
        if is_ours:
            ray.shutdown()
        remove_scratch_dirs()  # removes folders on this machine of workers that were killed at work


def check_cluster(address: str, workers: int | None) -> None:
    """Raises InputError: the address or number of workers is invalid, or Ray is not installed."""
    name = option("cluster")
    if address not in (LOCAL, AUTO) and not (
        address.startswith(REMOTE) and len(address) > len(REMOTE)
    ):
        raise InputError(f"{name} is {address!r}; choose one of {LOCAL}, {AUTO}, {REMOTE}HOST:PORT")
    if workers is not None and workers < 1:
        raise InputError(f"{option('workers')} is {workers}; give 1 or more")
    if find_version("ray") is None:
        raise missing("ray", setting("cluster", address), "; or leave it out")


def _connect(ray: Any, address: str, workers: int | None, say: Callable[[str], None]) -> None:
    # Ray's own usage statistics are off: only the user's data is sent.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address == LOCAL:
            # Little data is sent, and a temporary folder has more room than shared memory.
            context = ray.init(
                address="local",
                num_cpus=workers or count_cores(),
                _plasma_directory=tempfile.gettempdir(),
                **quiet,
            )
        else:
            context = ray.init(address=address, **quiet)
    except (ImportError, ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        cause = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"{setting('cluster', address)}: no cluster answers there ({cause}); start one with"
            f" 'ray start --head', or give {setting('cluster', LOCAL)}"
        ) from error
    if getattr(context, "dashboard_url", None):
        say(f"the cluster's dashboard is at http://{context.dashboard_url}")
