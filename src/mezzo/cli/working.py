"""What stands around every command that runs a model: progress, bounded memory, workers, and what Ctrl-C leaves."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo.cli import bounding, resuming, spreading

if TYPE_CHECKING:
    from mezzo.cli.progress import Patience
    from mezzo.core.memory import Memory


@contextmanager
def at_work(
    memory: str | None, cluster: str | None, workers: int | None, resume: Path | None = None
) -> "Iterator[tuple[Patience, Memory]]":
    """Gives what shows progress, and the bound on memory. Errors are those of `bounded` and `spread`."""
    from mezzo.cli.progress import Patience

    with (
        resuming.telling_how_to_go_on(resume),
        Patience() as progress,
        bounding.bounded(memory, cluster) as held,
        spreading.spread(cluster, workers),
    ):
        yield progress, held
