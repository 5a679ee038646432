"""Trainings of several ways beside each other: mezzo.curves."""

import os
from collections.abc import Mapping, Sequence

from mezzo.common.errors import InputError
from mezzo.io.curvefile import read_curves, read_rows
from mezzo.numerics.statistics.training_curves import Curves, judge_curves

_Row = Mapping[str, object]
Recorded = str | os.PathLike[str] | _Row | Sequence[str | os.PathLike[str]] | Sequence[_Row]


def curves(recorded: Recorded, *, baseline: str | None = None) -> tuple[Curves, ...]:
    """Tell how trainings in several ways end over seeds, network by network, and whether that is more than noise.

    A way is equal within noise where the interval of its mean difference from the baseline, seed by seed, lies within
    twice the standard deviation of the baseline's ends: two one-sided tests at 5 %. Ends are losses on held-out data
    where every training of a network has one, else means of the last losses.

    Args:
        recorded: a file of losses, JSON or JSON lines, several of them, or the rows themselves: {"way": "FP32",
            "seed": 1, "losses": [2.3, ...]}, with "network" and "held_out" if you like, or a step each, {"way",
            "seed", "step", "loss"}.
        baseline: the way that others are compared with; without one "FP32", else the first of a network.

    Raises:
        InputError: a file or a row is at fault, a training is there twice, or a network has no such baseline.
    """
    listed = [recorded] if isinstance(recorded, str | os.PathLike | Mapping) else recorded
    paths = [one for one in listed if isinstance(one, str | os.PathLike)]
    rows = [one for one in listed if not isinstance(one, str | os.PathLike)]
    if paths and rows:
        raise InputError("recorded holds files and rows; give the ones or the others")
    return judge_curves(read_curves(paths) if paths else read_rows(rows), baseline)
