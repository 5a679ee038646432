"""What makes a low-precision model wrong on a runtime: its plan, or a kernel of the runtime."""

import enum
from dataclasses import dataclass
from pathlib import Path

from mezzo.contracts.lab import NamedOperator
from mezzo.numerics.measures import Comparison, Ruling


class Finding(enum.Enum):
    """What is at fault."""

    PLAN = "plan"
    KERNEL = "kernel"
    BOTH = "plan and kernel"
    NEITHER = "neither"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFault:
    """The smallest part of a model found whose outputs differ, from the inputs that its emulation
    has there. `error`: relative L2 of the worst output, `budget`: what counts as a difference,
    `noise`: of the part's own roundings and orders of sums. `fault`: why it does not run, or what
    no error measures. `runs`: of parts on the device. `is_smallest`: the search was not cut short.
    """

    nodes: tuple[NamedOperator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    error: float
    budget: float
    noise: float
    fault: str | None
    runs: int
    is_smallest: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """What is at fault where a low-precision model answers wrong on a device.

    `device`: the runtime with its version, or the file of its recorded answers, then `target` is
    None. `plan`: the model's emulation against FP32; `kernels`: the device's answers against the
    emulation; `outcome`: the device's answers against FP32; both None if it does not run the model,
    then `fault` has its error. `kernel`: the part whose kernels differ; `plan_node`: the node at
    which the emulation's error passes its budget. `reproduction`: the files of the part. `notes`:
    what cannot be known.
    """

    names: tuple[str, str]
    device: str
    target: str | None
    plan: Comparison
    kernels: Comparison | None
    outcome: Comparison | None
    fault: str | None = None
    kernel: KernelFault | None = None
    plan_node: NamedOperator | None = None
    reproduction: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def finding(self) -> Finding:
        """Whose fault it is."""
        is_plan = self.plan.is_wrong
        is_kernel = self.kernels is None or (self.kernels.is_wrong and not self.hides_plan)
        if is_plan or is_kernel:
            both = Finding.BOTH if is_plan and is_kernel else None
            return both or (Finding.PLAN if is_plan else Finding.KERNEL)
        is_blind = self.kernels is None or self.kernels.verdict.ruling is Ruling.UNKNOWN
        is_right = self.plan.verdict.is_same and not is_blind
        return Finding.NEITHER if is_right else Finding.UNKNOWN

    @property
    def hides_plan(self) -> bool:
        """Whether the device is right where the model's types are not, as it computes in a wider
        type.
        """
        return self.plan.is_wrong and self.outcome is not None and not self.outcome.is_wrong

    @property
    def ruling(self) -> Ruling:
        """As of a comparison: the same if nothing is at fault."""
        if self.finding is Finding.NEITHER:
            return Ruling.SAME
        return Ruling.UNKNOWN if self.finding is Finding.UNKNOWN else Ruling.DIFFERENT
