"""Checkpoint file of a calibration: plain arrays and JSON texts, so that loading runs no code."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from mezzo.numerics.data.npz import NpzFile
from mezzo.numerics.ranges.journals import RangeJournal, damaged, dump_journal, read_journal
from mezzo.quantize.observers.collector import Collector


@dataclass(kw_only=True)
class Collected(RangeJournal):
    """Progress of a collection of `values`, by name."""

    version: ClassVar[str] = "mezzo-collected/1"
    name: ClassVar[str] = "journal"
    keeps: ClassVar[str] = "calibration"

    values: tuple[str, ...]

    @classmethod
    def revive(cls, document: Mapping[str, Any]) -> Self:
        return super().revive({**document, "values": tuple(map(str, document["values"]))})

    def difference(self, wanted: Self) -> str | None:
        return "another model" if self.values != wanted.values else super().difference(wanted)


def dump_collected(done: Collected, collector: Collector) -> bytes:
    """The content of an .npz checkpoint."""
    return dump_journal(done, collector.state())


def load_collected(path: Path, wanted: Collected) -> tuple[Collected, Collector]:
    """Read a checkpoint. Raises InputError: damaged, or of another pass than `wanted`."""
    with NpzFile(path) as opened:
        done = read_journal(opened, wanted)
        arrays = {name: opened.read(name) for name in opened.names if name != Collected.name}
        collector = Collector.from_state(arrays, str(path))
        if not set(collector.names) <= set(wanted.values):
            raise damaged(opened, wanted, "it holds values that were not asked for")
    return done, collector
