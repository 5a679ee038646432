"""Fused kernels of a target in a model, by the names of nodes, as records."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mezzo.formats.dtypes import DType
from mezzo.report.records.groups import NamedNode


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedUnit:
    """Nodes that a target runs as one kernel, by names. `number` counts from 1 in graph order.

    `results` are the first outputs of its nodes; `inputs` the values from outside, without
    constants; `outputs` those that nodes outside use. `inside` is "one type" if a cast between its
    nodes prevents the fusion, "fp32" if it computes in FP32 for any input type, "fp32 in registers"
    if it does so but casts next to it are kernels, and "fp32 between conversions" if the runtime
    converts before and after it; it holds for `formats` alone. `is_linked`: the fusion needs one
    type in all its nodes. `reads_free` and `writes_free` are formats that the kernel converts at no
    cost on input and output. `source` and `since` are the evidence and its version.
    """

    number: int
    pattern: str
    nodes: tuple[NamedNode, ...]
    results: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    inside: str
    is_linked: bool
    formats: tuple[DType, ...]
    reads_free: tuple[DType, ...]
    writes_free: tuple[DType, ...]
    source: str
    since: str


@dataclass(frozen=True, kw_only=True)
class Split:
    """A model split by a target: operators are in a unit, alone, or folded before the model runs.

    `fuses_as`: the target whose fusion patterns were used; None if no pattern is known for it.
    """

    target: str
    fuses_as: str | None
    units: tuple[FusedUnit, ...]
    alone: tuple[NamedNode, ...]
    folded: tuple[NamedNode, ...]

    @cached_property
    def unit_of(self) -> dict[str, FusedUnit]:
        """The unit of each fused node, by the node's name."""
        return {node.name: unit for unit in self.units for node in unit.nodes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """A part that was written as a model: path, size, number of nodes, inputs and outputs."""

    path: Path
    size_bytes: int
    nodes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
