"""How far correct kernels of a model may differ from its emulation, by output."""

import math
from collections.abc import Mapping, Sequence

from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.frontend import Model, lab_of
from mezzo.contracts.lab import Answers
from mezzo.evaluate.runtime_answers import Fed, Standard
from mezzo.evaluate.standards import lowest_of, measure_noises
from mezzo.formats.dtypes import FORMATS, LOW_DTYPES, DType
from mezzo.numerics.data.datasets import Batch
from mezzo.numerics.metrics.metrics import Meter
from mezzo.numerics.verdicts import Budget

# One rounding has a relative error of 0.2 eps (root mean square).
_ROUNDING = 0.2
# A fused kernel skips roundings, and one that computes in the low format makes some of its own: 64
# in place of each of the model's are 8 times as far from it, as independent ones grow with the root
# of their number.
_ROUNDINGS = 8
# FP32 sums of 4,096 terms in one accumulator err by the root of that many times as much as moving
# each term by half a unit in the last place does.
_ORDERS = 64


def kernel_standards(
    model: Model, every: Sequence[Fed], expected: Sequence[Answers]
) -> dict[str, Standard]:
    """The standard of each output for a runtime's kernels. `expected`: the emulation's outputs.

    Its noise is what the roundings of the model's own types change, measured against the same model
    in FP32, and what another order of FP32 sums changes. That of the noisiest batch counts: then
    what differs on all batches also does on one of them.
    """
    several = [_standards(model, *batch) for batch in zip(every, expected, strict=True)]
    return {
        name: max((standards[name] for standards in several), key=lambda each: each.budget.error)
        for name in several[0]
    }


def _standards(model: Model, fed: Fed, expected: Answers) -> dict[str, Standard]:
    exact, moved = _in_fp32(model, fed)
    reached = lab_of(model).subject().reached(fed.feeds.keys())
    standards = {}
    for name, answer in expected.items():
        lowest = lowest_of([reached[name].formats])
        sums = max(moved.get(name, 0.0), FORMATS[DType.FLOAT32].eps)
        if lowest in (DType.FLOAT32, DType.FLOAT64):
            source = f"{_ORDERS} times the noise of FP32"
            standards[name] = Standard(Budget(_ORDERS * sums, source), sums)
            continue
        rounded = _distance(name, exact[name], answer, fed.samples) if name in exact else 0.0
        noise = max(rounded, _ROUNDING * FORMATS[lowest].eps)
        budget = max(_ROUNDINGS * noise, _ORDERS * sums)
        source = f"{_ROUNDINGS} times what the roundings of its types change"
        standards[name] = Standard(Budget(budget, source), noise)
    return standards


def _in_fp32(model: Model, fed: Fed) -> tuple[Answers, Mapping[str, float]]:
    """The outputs without low floats, and their FP32 noise; empty where that does not run."""
    low = [port.name for port in model.ports() if port.dtype in LOW_DTYPES.values()]
    lab = lab_of(model.widened(low))
    try:
        exact = lab.native()(fed.feeds)
        return exact, measure_noises(lab.subject(), Batch(fed.feeds, {}, "", fed.samples), exact)
    except (ContractError, InputError):
        return {}, {}


def _distance(name: str, exact: object, rounded: object, samples: int) -> float:
    """The relative L2 difference of two answers; 0 if it is not finite, as an overflow is no
    noise.
    """
    meter = Meter(name, DType.FLOAT32, is_output=False)
    meter.add(exact, rounded, samples)
    error = meter.result().relative_l2.estimate
    return error if math.isfinite(error) and meter.broken is None else 0.0
