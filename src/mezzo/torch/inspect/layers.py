"""Layer errors: compares intermediate values of FP64, FP32 and planned runs over batches."""

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from mezzo.formats.dtypes import DType
from mezzo.numerics.metrics.errors import ErrorSum
from mezzo.numerics.metrics.layer_errors import LayerError
from mezzo.torch.compiler.backend import Backend
from mezzo.torch.inspect.accounts import Account
from mezzo.torch.inspect.reference_runs import ReferenceBackend, ReferenceRun, Spot
from mezzo.torch.torch_internals import dynamo_config, optimize, optimize_with_all_options

# Memory for values held at once, in FP64 and FP32; the rest are compared in further passes over the
# batch.
_ROOM_BYTES = 256 << 20
_BYTES = 8 + 4
# Limit on recompilations, as the model is compiled once more for reference runs. Newer PyTorch
# versions count these separately.
_RECOMPILES = 256
_APART: Mapping[str, Any] = (
    {"isolate_recompiles": True}
    if "isolate_recompiles" in inspect.signature(optimize_with_all_options).parameters
    else {}
)
_LISTS = (torch.nn.ModuleList, torch.nn.ModuleDict)

Sums = tuple[ErrorSum, ErrorSum, ErrorSum]
_Held = dict[str, torch.Tensor]
_Value = tuple[int, str]  # index of the graph call in the batch, FX node


class _Layer(NamedTuple):
    """A value to compare, as a module's output. `precisions` counts its operators' precisions."""

    module: str
    spot: Spot
    precisions: tuple[tuple[str, int], ...]


def add_errors(sums: Sums, exact: torch.Tensor, fp32: torch.Tensor, found: torch.Tensor) -> None:
    """Add a batch to three errors: result against FP64, FP32 against FP64, result against FP32."""
    reference, rounded, result = (
        {"": tensor.detach().double().cpu().numpy()} for tensor in (exact, fp32, found)
    )
    pairs = ((reference, result), (reference, rounded), (rounded, result))
    for total, pair in zip(sums, pairs, strict=True):
        total.add(*pair)


class LayerWatch:
    """Runs a model in each reference run and accumulates the errors of its layers."""

    def __init__(self, model: torch.nn.Module, compiled: Backend, *, is_by_operator: bool) -> None:
        shared: dict[int, Any] = {id(weight): weight for weight in model.parameters()}
        self._twin = copy.deepcopy(model, shared)
        self._buffers = {reference_run: _copied(self._twin) for reference_run in ReferenceRun}
        self._is_by_operator, self._compiled, self._backend = (
            is_by_operator,
            compiled,
            ReferenceBackend(compiled.settings),
        )
        self._run: Any = optimize(backend=self._backend, **_APART)(self._twin)
        self._paths = [
            path
            for path, module in self._twin.named_modules()
            if path and not isinstance(module, _LISTS)
        ]
        self._sums: dict[_Value, Sums] = {}
        self._layers: dict[int, Mapping[str, Sequence[_Layer]]] = {}  # by graph, by FX node
        self._graphs: dict[int, int] = {}  # the graph that ran first at each call index

    def add(self, call: Callable[[Any], object]) -> None:
        """Run the model on a batch."""
        compared: set[_Value] = set()
        before = dict(self._buffers)
        with dynamo_config.patch(recompile_limit=_RECOMPILES):
            while self._pass(call, compared, before):
                pass

    def _pass(
        self,
        call: Callable[[Any], object],
        compared: set[_Value],
        before: Mapping[ReferenceRun, _Held],
    ) -> bool:
        """Compare the values that fit into memory; returns whether any are left."""
        exact: dict[_Value, torch.Tensor] = {}
        fp32: dict[_Value, torch.Tensor] = {}
        room, is_left = _ROOM_BYTES, False

        def keep_exact(turn: int, graph: int, node: str, numbers: torch.Tensor) -> None:
            nonlocal room, is_left
            self._graphs.setdefault(turn, graph)
            if (turn, node) in compared or node not in self._layers_of(graph):
                return
            room -= numbers.numel() * _BYTES
            if room < 0 and exact:
                is_left = True
            else:
                exact[turn, node] = numbers.to(torch.float64, copy=True)

        def keep_fp32(turn: int, graph: int, node: str, numbers: torch.Tensor) -> None:
            if (turn, node) in exact:
                fp32[turn, node] = numbers.clone()

        def compare(turn: int, graph: int, node: str, numbers: torch.Tensor) -> None:
            value = turn, node
            if value in exact and value in fp32:
                sums = self._sums.setdefault(value, (ErrorSum(), ErrorSum(), ErrorSum()))
                add_errors(sums, exact.pop(value), fp32.pop(value), numbers)
                compared.add(value)

        for reference_run, observe in (
            (ReferenceRun.EXACT, keep_exact),
            (ReferenceRun.FP32, keep_fp32),
            (ReferenceRun.PLANNED, compare),
        ):
            for name, buffer in self._twin.named_buffers():
                buffer.copy_(before[reference_run][name])
            self._backend.begin(reference_run, observe)
            call(self._run)
            self._buffers[reference_run] = _copied(self._twin)
        # Values that some run did not produce are not compared, in this pass or later ones.
        compared |= exact.keys()
        return is_left

    def _layers_of(self, graph: int) -> Mapping[str, Sequence[_Layer]]:
        if graph not in self._layers:
            recorded = self._backend.graphs[graph]
            spots = {} if recorded is None else recorded.spots
            self._layers[graph] = (
                _operators(spots) if self._is_by_operator else _modules(spots, self._paths)
            )
        return self._layers[graph]

    def results(self) -> tuple[LayerError, ...]:
        """The errors of layers, in execution order."""
        return tuple(
            _error_of(layer, self._sums[turn, node])
            for turn, graph in sorted(self._graphs.items())
            for node, layers in self._layers_of(graph).items()
            if (turn, node) in self._sums
            for layer in layers
        )

    def notes(self) -> tuple[str, ...]:
        """Caveats on the layer errors."""
        notes = []
        if any(graph is None for graph in self._backend.graphs):
            notes.append("a graph was left as it is, and none of its layers was looked at")
        if self._compiled.settings.is_frozen:
            notes.append(
                "layers are of a plan with weights as inputs, outputs of one with weights as"
                " constants"
            )
        compiled = _precisions(self._compiled.account)
        emulated = _precisions(self._backend.account)
        differing = [
            name for name in compiled.keys() & emulated.keys() if compiled[name] != emulated[name]
        ]
        if differing or not compiled.keys() <= emulated.keys():
            notes.append(
                "the layers' plan, made anew for these batches, is not all that of the compiled"
                " model"
            )
        return tuple(notes)


def _operators(spots: Mapping[str, Spot]) -> Mapping[str, Sequence[_Layer]]:
    return {node: [_Layer(spot.module, spot, ((spot.dtype, 1),))] for node, spot in spots.items()}


def _modules(spots: Mapping[str, Spot], paths: Iterable[str]) -> Mapping[str, Sequence[_Layer]]:
    """Layers by FX node: a module's output is its last value; inner modules come first."""
    inside: dict[str, list[str]] = {}
    for node, spot in spots.items():
        parts = spot.module.split(".")
        for depth in range(len(parts), 0, -1):
            inside.setdefault(".".join(parts[:depth]), []).append(node)
    by_node: dict[str, list[_Layer]] = {}
    for path in set(paths) & inside.keys():
        counts = Counter(spots[node].dtype for node in inside[path])
        by_node.setdefault(inside[path][-1], []).append(
            _Layer(path, spots[inside[path][-1]], tuple(sorted(counts.items())))
        )
    return {
        node: sorted(by_node[node], key=lambda layer: -len(layer.module))
        for node in spots
        if node in by_node
    }


def _error_of(layer: _Layer, sums: Sums) -> LayerError:
    error, fp32_error, error_to_fp32 = (total.error for total in sums)
    spot = layer.spot
    return LayerError(
        module=layer.module,
        node=spot.node,
        op=spot.op,
        precisions=layer.precisions,
        line=spot.line,
        error=error,
        eager=fp32_error,
        beside_fp32=error_to_fp32,
    )


def _precisions(account: Account) -> dict[str, DType]:
    return {
        node.name: node.precision.compute
        for plan in account.plans
        if plan is not None
        for node in plan.nodes
        if node.kind == "op"
    }


def _copied(model: torch.nn.Module) -> _Held:
    return {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
