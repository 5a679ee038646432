"""Whole trainings side by side: does each method end as the baseline does, over seeds, within noise?

    python benchmarks/learning_curves.py out/torch-learning.json
    python benchmarks/learning_curves.py losses.json --baseline "compile + autocast"

Reads JSON: a list of rows, or an object with "rows". A row is {"way": "BF16", "seed": 1, "losses": [...]}; "network"
and "held_out", the loss on data that was not trained on, may be there.

Trainings of one seed began with the same weights and saw the same batches, so the differences of their final losses
are a sample. Their mean has an interval of 90 % by Student's t. A method is equal within noise where the interval lies
within twice the standard deviation of the baseline's own final losses: two one-sided tests at 5 % (TOST). Fewer than
three pairs tell nothing.
"""

import argparse
import enum
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mezzo.numerics.statistics.student import student_quantile

TEST = (
    "paired by seed; Student's interval of 90 % for the mean difference, against twice the standard deviation of the "
    "baseline's final losses (two one-sided tests at 5 %)"
)
COLUMNS = ("end", "of seeds", "from the baseline", "90 % interval", "equal within")
_LEAST_PAIRS = 3
_SHARE = 0.95
_BASELINE = "fp32"
_LAST, _LEAST_WINDOWS = 20, 10  # final loss: mean of so many last steps, of a tenth of the steps at most


class Ending(enum.Enum):
    """How a method ends compared with the baseline."""

    BASELINE = "the baseline"
    EQUAL = "equal within noise"
    HIGHER = "higher"
    LOWER = "lower"
    NOT_FINITE = "not finite"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """`difference` is from the baseline, over the seeds that both have, with its interval `low` to `high`; `margin` is
    what counts as equal. None: it cannot be told, and `because` says why.
    """

    ending: Ending
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The final losses of one method on one network, by seed, and the verdict."""

    network: str
    way: str
    by_seed: Mapping[int, float]
    judged: Judgment


def judge_trainings(rows: Iterable[Mapping[str, Any]], baseline: str | None = None) -> list[Ends]:
    """The verdict of each method on each network, in the order of rows. `baseline`: a method's name; without one, the
    method "FP32", else the first.

    Raises ValueError: a network has no method of that name, or a training is there twice.
    """
    networks: dict[str, dict[str, dict[int, Mapping[str, Any]]]] = {}
    for row in rows:
        network, way, seed = row.get("network", ""), row["way"], row.get("seed", 0)
        seeds = networks.setdefault(network, {}).setdefault(way, {})
        if seed in seeds:
            raise ValueError(f"way {way!r} with seed {seed} is there twice; give each its own seed")
        seeds[seed] = row
    return [ends for network, ways in networks.items() for ends in _judge_network(network, ways, baseline)]


def _judge_network(
    network: str, ways: Mapping[str, Mapping[int, Mapping[str, Any]]], baseline: str | None
) -> Iterator[Ends]:
    trainings = [row for seeds in ways.values() for row in seeds.values()]
    is_held_out = all(row.get("held_out") is not None for row in trainings)
    shortest = min(len(row["losses"]) for row in trainings)
    last = max(1, min(_LAST, shortest // _LEAST_WINDOWS))
    if baseline is None:
        baseline = next((way for way in ways if way.casefold() == _BASELINE), next(iter(ways)))
    if baseline not in ways:
        raise ValueError(f"baseline {baseline!r} is no way of network {network!r}; choose one of {', '.join(ways)}")

    def final_loss(row: Mapping[str, Any]) -> float:
        return float(row["held_out"]) if is_held_out else statistics.fmean(row["losses"][-last:])

    ends = {way: {seed: final_loss(row) for seed, row in seeds.items()} for way, seeds in ways.items()}
    for way, by_seed in ends.items():
        judged = Judgment(ending=Ending.BASELINE) if way == baseline else judge_ends(by_seed, ends[baseline])
        yield Ends(network=network, way=way, by_seed=by_seed, judged=judged)


def judge_ends(ends: Mapping[int, float], baseline: Mapping[int, float]) -> Judgment:
    """How a method ends compared with the baseline, from the final losses of both by seed."""
    seeds = [seed for seed in ends if seed in baseline]
    if not all(map(math.isfinite, ends.values())):
        return Judgment(ending=Ending.NOT_FINITE)
    if not all(map(math.isfinite, baseline.values())):
        return Judgment(ending=Ending.UNKNOWN, because="the baseline's ends are not finite")
    if not seeds:
        return Judgment(ending=Ending.UNKNOWN, because="no seed is the baseline's too")
    differences = [ends[seed] - baseline[seed] for seed in seeds]
    mean = statistics.fmean(differences)
    if len(seeds) < _LEAST_PAIRS:
        because = f"{len(seeds)} seed{'' if len(seeds) == 1 else 's'} in common, and {_LEAST_PAIRS} are needed"
        return Judgment(ending=Ending.UNKNOWN, difference=mean, because=because)
    reach = student_quantile(len(seeds) - 1, _SHARE) * statistics.stdev(differences) / math.sqrt(len(seeds))
    low, high = mean - reach, mean + reach
    margin = 2 * statistics.stdev(baseline.values())
    ending, because = Ending.UNKNOWN, "the interval reaches past what counts as equal"
    if -margin <= low and high <= margin:
        ending, because = Ending.EQUAL, ""
    elif low > 0:
        ending, because = Ending.HIGHER, ""
    elif high < 0:
        ending, because = Ending.LOWER, ""
    return Judgment(ending=ending, difference=mean, low=low, high=high, margin=margin, because=because)


def spell_ends(ends: Ends) -> tuple[str, ...]:
    """What `COLUMNS` names."""
    losses, judged = list(ends.by_seed.values()), ends.judged
    mean = statistics.fmean(losses) if all(map(math.isfinite, losses)) else math.nan
    seeds = f"{min(losses):.4g} to {max(losses):.4g}" if len(losses) > 1 else "1 seed"
    interval = "-" if judged.low is None or judged.high is None else f"{judged.low:+.2g} .. {judged.high:+.2g}"
    margin = "-" if judged.margin is None else f"{judged.margin:.2g}"
    difference = "-" if judged.difference is None else f"{judged.difference:+.2g}"
    return f"{mean:.4g}", seeds, difference, interval, margin


def read_rows(path: Path) -> list[Mapping[str, Any]]:
    """The rows of a file of recorded losses."""
    document = json.loads(path.read_text(encoding="utf-8"))
    rows: list[Mapping[str, Any]] = document["rows"] if isinstance(document, dict) else document
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", type=Path)
    parser.add_argument("--baseline")
    asked = parser.parse_args()
    table = Table("network", "way", *COLUMNS, "", box=None)
    for ends in judge_trainings(read_rows(asked.recorded), asked.baseline):
        table.add_row(ends.network, ends.way, *spell_ends(ends), ends.judged.ending.value)
    console = Console()
    console.print(table, f"judged {TEST}", highlight=False)


if __name__ == "__main__":
    main()
