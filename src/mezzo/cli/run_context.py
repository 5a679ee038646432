"""Context of commands that run a model: progress, memory bound, cluster, --resume hint."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo.cli.options import cluster_options, memory_option, resume_option

if TYPE_CHECKING:
    from mezzo.cli.progress import Patience
    from mezzo.common.memory import MemoryLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Where a command runs: its options --memory, --cluster, --workers and --resume."""

    memory: str | None
    cluster: str | None
    workers: int | None
    resume: Path | None = None

    def check(self, data: object | None) -> None:
        """Raises InputError: the cluster is not available, or there is no data to distribute."""
        cluster_options.check_spread(self.cluster, self.workers, data)

    @contextmanager
    def at_work(self) -> "Iterator[tuple[Patience, MemoryLimit]]":
        """Yield progress callback and memory bound. Errors are those of `bounded` and `spread`."""
        from mezzo.cli.progress import Patience

        with (
            resume_option.resume_hint(self.resume),
            Patience() as progress,
            memory_option.bounded(self.memory, self.cluster) as memory_bound,
            cluster_options.spread(self.cluster, self.workers),
        ):
            yield progress, memory_bound
