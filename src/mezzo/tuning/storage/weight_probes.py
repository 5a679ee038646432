"""Executor job that runs a model with one weight in blocks: the error of the outputs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mezzo.common.errors import ContractError
from mezzo.contracts.frontend import lab_of
from mezzo.contracts.lab import Feeds, WeightTrials
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import HIGH
from mezzo.numerics.metrics.errors import ErrorSum

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model


@dataclass(frozen=True, slots=True)
class WeightProbe:
    """One run: a weight, by value id, in a storage."""

    value: int
    storage: BlockStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightProbes:
    """Runs all of `feeds` with one weight in blocks. `version`: at which the model is read;
    `fingerprint`: of the graph that value ids refer to; `values`: of the weights that may be
    exchanged; `shares`: weights of outputs' errors.
    """

    fingerprint: str
    version: int | None
    values: tuple[int, ...]
    feeds: tuple[Feeds, ...]
    shares: Mapping[str, float] = field(default_factory=dict)
    title: str = "sensitivity of weights"

    def open(self, models: "Sequence[Model]") -> Callable[[WeightProbe], float]:
        (model,) = models
        reading = model.read(HIGH, version=self.version)
        if reading.graph.fingerprint != self.fingerprint:
            raise ContractError(
                f"{model.name}: is read as another graph here than where it was probed"
            )
        return self.on(lab_of(model).weight_trials(reading, self.values))

    def on(self, trials: WeightTrials) -> Callable[[WeightProbe], float]:
        """Prepare the job on a model that is ready to run."""
        references = [trials.run(feeds, {}) for feeds in self.feeds]
        runs = dict(trials.each_alone(self.feeds))

        def error(probe: WeightProbe) -> float:
            numbers = trials.dequantized(trials.weight(probe.value), probe.storage)
            total = ErrorSum(self.shares)
            for reference, answers in zip(references, runs[probe.value](numbers), strict=True):
                total.add(reference, answers)
            return total.error

        return error
