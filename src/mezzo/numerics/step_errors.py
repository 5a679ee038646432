"""Errors of an output over the steps of a sequence, in which each model is fed its own states."""

from dataclasses import dataclass

# The last quarter of a sequence over the first: by more, the error grows.
_GROWS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class StepErrors:
    """The error of an output at each of `count` steps of a sequence, relative to the root mean
    square of the reference's norms over all steps.

    `worst_at`: a step, from 1. `early`, `late`: relative L2 errors of the first and of the last
    quarter, as states that start from zero grow with their errors. `curve`: steps with the largest
    errors from them on, a hundred at most.
    """

    count: int
    first: float
    last: float
    worst: float
    worst_at: int
    early: float
    late: float
    curve: tuple[tuple[int, float], ...]

    @property
    def grows(self) -> bool:
        """Whether later steps are worse than early ones, by more than chance."""
        return self.late > _GROWS * self.early
