"""Context of commands that run a model: progress, memory bound, cluster, --resume hint."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo.cli.options import cluster_options, memory_option, resume_option

if TYPE_CHECKING:
    from mezzo.cli.progress import Patience
    from mezzo.common.memory import MemoryLimit


@contextmanager
def at_work(
    memory: str | None, cluster: str | None, workers: int | None, resume: Path | None = None
) -> "Iterator[tuple[Patience, MemoryLimit]]":
    """Yield progress callback and memory bound. Errors are those of `bounded` and `spread`."""
    from mezzo.cli.progress import Patience

    with (
        resume_option.telling_how_to_go_on(resume),
        Patience() as progress,
        memory_option.bounded(memory, cluster) as memory_bound,
        cluster_options.spread(cluster, workers),
    ):
        yield progress, memory_bound
