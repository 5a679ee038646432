"""Trainings as they were recorded: the loss of every step, by network, way and seed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One training. `losses` are of its steps in order, NaN and infinities among them where it went astray.

    `network`: what was trained, "" where only one thing was. `way`: how, such as "FP32". Trainings of one network with
    one `seed` began with the same weights and saw the same batches. `held_out`: the loss at the end on data that was
    not trained on, None where nobody looked.
    """

    network: str
    way: str
    seed: int
    losses: tuple[float, ...]
    held_out: float | None = None
