"""A model loaded in a runtime: how it is loaded, and what every driver's model offers."""

import abc
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mezzo.onnx.profile.runtime_graphs import GraphKernel


class Profiling(enum.Enum):
    """What the runtime's profiler records."""

    NOTHING = "nothing"
    LAYERS = "layers"  # of the model as its users load it
    NODES = "nodes"  # each call of each kernel, under names that lead to the model's nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How a model is loaded. `provider`: the execution provider of ONNX Runtime; None elsewhere.

    `threads`: of the runtime; None leaves its default. `keeps_types`: run in the precisions of the
    file, not in those that the runtime prefers. `shows_kernels`: keep the optimized graph.
    """

    provider: str | None
    threads: int | None = None
    keeps_types: bool = True
    profiling: Profiling = Profiling.NOTHING
    shows_kernels: bool = False


class LoadedModel(abc.ABC):
    """A loaded model, ready for `call()` on its feeds and `answer(feeds)` on others."""

    @abc.abstractmethod
    def call(self) -> None:
        """Run on the feeds that it was loaded with."""

    @abc.abstractmethod
    def answer(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """The outputs for other feeds, by name."""

    def graph_kernels(self) -> Sequence[GraphKernel] | None:
        """The kernels of the optimized graph, with `shows_kernels`; None if there is none."""
        return None

    def layers(self, warm_calls: int) -> Mapping[str, Any]:
        """With LAYERS: "trace", the file of a runtime that writes one, or "layers", a row each.
        Rows leave the first `warm_calls` out.
        """
        raise NotImplementedError

    def runs(self) -> Sequence[Mapping[int, tuple[float, int]]]:
        """With NODES: for each call, ns and runs of each of `kernels()`. Ends the profile."""
        raise NotImplementedError

    def kernels(self) -> Sequence[dict[str, Any]]:
        """With NODES: the kernels, with their names, values and readers."""
        raise NotImplementedError
