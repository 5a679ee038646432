"""Paired runs of a reference and a candidate program, with intermediate values that both have."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from torch import fx

from mezzo.aten.lab.arithmetic import Arithmetic, AsTyped
from mezzo.aten.lab.arrays import array_of
from mezzo.aten.lab.matching import match_ports
from mezzo.aten.lab.reach import find_reached, formats_in
from mezzo.aten.lab.runner import AtenRunner, tensors_of, wide
from mezzo.aten.lab.subject import TorchSubject
from mezzo.aten.program import Program, tensor_of
from mezzo.aten.read.read import read_program
from mezzo.aten.read.scales import exponent_of
from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.lab import Answers, Feeds, Reached, Run, Running
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.nodes import Kind

# Limit in bytes on intermediate values per batch, for both programs together.
_CHUNK_BYTES = 256 << 20
_PAIR_BYTES = 2 * 4
_WIDE = frozenset({HIGH, DType.FLOAT64})


class PairedValue(NamedTuple):
    """An intermediate value of both programs: the nodes that produce it."""

    ours: fx.Node
    theirs: fx.Node


Layers = Mapping[str, PairedValue]


@dataclass(frozen=True, slots=True)
class ProgramSide:
    """One program of a pair. Failures of the reference are InputErrors, of the candidate
    ContractErrors.
    """

    program: Program
    arithmetic: Arithmetic
    name: str
    is_reference: bool

    def load(self, shown: Mapping[fx.Node, str], exponents: Mapping[str, int]) -> Run:
        """Prepare a run that also returns the values in `shown`, times powers of two, by name."""
        runner = AtenRunner(self.program, self.arithmetic)

        def run(feeds: Feeds) -> Answers:
            intermediates = {}

            def watch(node: fx.Node, numbers: torch.Tensor) -> None:
                if node in shown:
                    name = shown[node]
                    intermediates[name] = np.ldexp(array_of(numbers), exponents.get(name, 0))

            answers = runner.run(feeds, watch if shown else None)
            return answers | intermediates

        return self.guarded(run)

    def guarded(self, run: Run) -> Run:
        """A run whose error messages name this program."""

        def answer(feeds: Feeds) -> Answers:
            try:
                return run(feeds)
            except (ContractError, InputError) as error:
                message = f"{self.name}: {error}"
                raise (
                    InputError(message) if self.is_reference else type(error)(message)
                ) from error

        return answer


class AtenSessions:
    """Both programs, ready to run."""

    def __init__(self, pair: "AtenPair", layers: Layers) -> None:
        ours = {layer.ours: name for name, layer in layers.items()}
        self._reference = pair.sides[0].load(ours, {})
        self._candidate = pair.candidate(layers)

    def run(self, feeds: Feeds, apart: Feeds | None = None) -> tuple[Answers, Answers]:
        return self._reference(feeds), self._candidate(feeds if apart is None else apart)

    def notes(self) -> list[str]:
        return []


class AtenPair:
    """Two programs with matched ports. `arithmetic` overrides how the reference is computed."""

    def __init__(
        self,
        reference: Program,
        candidate: Program,
        running: Running,
        arithmetic: Arithmetic | None = None,
    ) -> None:
        """Raises InputError: the inputs or outputs do not match."""
        programs = reference, candidate
        self.formats: Sequence[frozenset[DType]] = [
            formats_in(program.graph, program.owner) for program in programs
        ]
        self._match = match_ports(reference, candidate)
        self.outputs, self.notes = self._match.outputs, self._match.notes
        computed = [self._arithmetic(place, running) for place in range(len(programs))]
        if arithmetic is not None:
            computed[0] = arithmetic
        self.sides = tuple(
            ProgramSide(program, how, name, place == 0)
            for place, (program, how, name) in enumerate(
                zip(programs, computed, running.names, strict=True)
            )
        )

    def _arithmetic(self, place: int, running: Running) -> Arithmetic:
        """Emulated rounding for a low-precision program, if asked for; else PyTorch's kernels."""
        accumulation = running.accumulation if place else None
        is_low = bool(self.formats[place] - _WIDE) or accumulation is not None
        return wide(accumulation) if running.is_emulated and is_low else AsTyped()

    @property
    def reference(self) -> TorchSubject:
        ours = self.sides[0]
        return TorchSubject(ours.program, ours.arithmetic, ours.guarded)

    def saturating(self) -> Sequence[str]:
        """None are known: integer kernels are chosen when a program is compiled."""
        return ()

    def reached(self, fed: Collection[str]) -> Mapping[str, tuple[Reached, Reached]]:
        ours = find_reached(self.sides[0].program, fed)
        theirs = find_reached(
            self.sides[1].program, self._match.rename_feeds(dict.fromkeys(fed)).keys()
        )
        return {name: (ours[name], theirs[own]) for name, own in self.outputs.items()}

    def load(self, layers: Layers) -> AtenSessions:
        return AtenSessions(self, layers)

    def candidate(self, layers: Layers = MappingProxyType({})) -> Run:
        """Prepare the candidate alone. Feeds and outputs use the reference's names, and values its
        power-of-two scales.
        """
        exponents = {
            name: exponent_of(layer.theirs) - exponent_of(layer.ours)
            for name, layer in layers.items()
        }
        theirs = {layer.theirs: name for name, layer in layers.items()}
        answer = self.sides[1].load(theirs, exponents)

        def run(feeds: Feeds) -> Answers:
            answers = answer(self._match.rename_feeds(feeds))
            return self._match.rename_outputs(answers) | {name: answers[name] for name in layers}

        return run

    def layers(self) -> Layers:
        """Intermediate float values of both programs, matched by FX node name. Keys are value names
        of the reference's graph (`ir/graph.py`).
        """
        program, other = self.sides[0].program, self.sides[1].program
        reading = read_program(program, (DType.BFLOAT16,))
        theirs = {node.name: node for node in other.graph.nodes}
        shown = {node for _, node in tensors_of(program)} | {node for _, node in tensors_of(other)}
        layers = {}
        for value, holder in zip(reading.graph.values, reading.holders, strict=True):
            counterpart = None if holder is None else theirs.get(holder.name)
            if holder is None or counterpart is None:
                continue
            is_computed = reading.graph.nodes[value.producer].kind is Kind.OP
            if (
                is_computed
                and not {holder, counterpart} & shown
                and _are_alike(holder, counterpart)
            ):
                layers[value.name] = PairedValue(holder, counterpart)
        return {name: layer for name, layer in layers.items() if name not in self.outputs}

    def split_layers(self, layers: Layers, feeds: Feeds) -> Sequence[Layers]:
        """Split matched values into chunks of bounded size, measured in a run of the reference."""
        if not layers:
            return []
        sizes: dict[fx.Node, int] = {}

        def measure(node: fx.Node, numbers: torch.Tensor) -> None:
            sizes[node] = numbers.numel() * _PAIR_BYTES

        reference = self.sides[0]
        runner = AtenRunner(reference.program, reference.arithmetic)
        reference.guarded(lambda fed: runner.run(fed, measure))(feeds)
        parts: list[dict[str, PairedValue]] = [{}]
        free_bytes = _CHUNK_BYTES
        for name, layer in layers.items():
            if sizes[layer.ours] > free_bytes and parts[-1]:
                parts.append({})
                free_bytes = _CHUNK_BYTES
            parts[-1][name] = layer
            free_bytes -= sizes[layer.ours]
        return parts


def _are_alike(ours: fx.Node, theirs: fx.Node) -> bool:
    """Whether both nodes call the same operator and produce floats of the same rank."""
    our_tensor, their_tensor = tensor_of(ours), tensor_of(theirs)
    if our_tensor is None or their_tensor is None or str(ours.target) != str(theirs.target):
        return False
    are_floats = our_tensor.is_floating_point() and their_tensor.is_floating_point()
    return are_floats and our_tensor.dim() == their_tensor.dim()
