"""Errors of layers over batches: the model goes through its lanes, and what they make is held against each other."""

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch._dynamo.config
from torch._dynamo.eval_frame import _optimize, optimize

from mezzo.formats.dtypes import DType
from mezzo.numerics.metrics.errors import ErrorSum
from mezzo.numerics.metrics.layer_errors import LayerError
from mezzo.torch.compiler.backend import Backend
from mezzo.torch.inspect.accounts import Account
from mezzo.torch.inspect.reference_runs import LaneBackend, ReferenceRun, Spot

# Of values that are held at once, in FP64 and FP32; what does not fit waits for another pass over the batch.
_ROOM_BYTES = 256 << 20
_BYTES = 8 + 4
# A model is compiled once more for its lanes, whatever its code was compiled for before; newer versions of PyTorch keep
# that apart from what else was compiled of the code.
_RECOMPILES = 256
_APART: Mapping[str, Any] = (
    {"isolate_recompiles": True} if "isolate_recompiles" in inspect.signature(_optimize).parameters else {}
)
_LISTS = (torch.nn.ModuleList, torch.nn.ModuleDict)

Sums = tuple[ErrorSum, ErrorSum, ErrorSum]
_Held = dict[str, torch.Tensor]
_Value = tuple[int, str]  # which call of a graph in the batch, the FX node


class _Layer(NamedTuple):
    """A value to look at, as what a module hands on. `precisions` count what its operators run in."""

    module: str
    spot: Spot
    precisions: tuple[tuple[str, int], ...]


def add_errors(sums: Sums, exact: torch.Tensor, fp32: torch.Tensor, found: torch.Tensor) -> None:
    """Add a batch to what is found against FP64, FP32 against FP64, and what is found against FP32."""
    right, eager, got = ({"": one.detach().double().cpu().numpy()} for one in (exact, fp32, found))
    for total, (reference, answer) in zip(sums, ((right, got), (right, eager), (eager, got)), strict=True):
        total.add(reference, answer)


class LayerWatch:
    """Runs a model in its lanes and adds up the errors of what its layers make."""

    def __init__(self, model: torch.nn.Module, compiled: Backend, *, is_by_operator: bool) -> None:
        shared: dict[int, Any] = {id(one): one for one in model.parameters()}
        self._twin = copy.deepcopy(model, shared)
        self._buffers = {lane: _copied(self._twin) for lane in ReferenceRun}
        self._is_by_operator, self._compiled, self._backend = is_by_operator, compiled, LaneBackend(compiled.settings)
        self._run: Any = optimize(backend=self._backend, **_APART)(self._twin)
        self._paths = [path for path, one in self._twin.named_modules() if path and not isinstance(one, _LISTS)]
        self._sums: dict[_Value, Sums] = {}
        self._layers: dict[int, Mapping[str, Sequence[_Layer]]] = {}  # by graph, by FX node
        self._graphs: dict[int, int] = {}  # that ran first at each turn

    def add(self, call: Callable[[Any], object]) -> None:
        """Run the model on a batch."""
        done: set[_Value] = set()
        before = dict(self._buffers)
        with torch._dynamo.config.patch(recompile_limit=_RECOMPILES):
            while self._pass(call, done, before):
                pass

    def _pass(self, call: Callable[[Any], object], done: set[_Value], before: Mapping[ReferenceRun, _Held]) -> bool:
        """Compare what fits into memory. Whether something is left."""
        exact: dict[_Value, torch.Tensor] = {}
        fp32: dict[_Value, torch.Tensor] = {}
        room, is_left = _ROOM_BYTES, False

        def hold(turn: int, graph: int, node: str, numbers: torch.Tensor) -> None:
            nonlocal room, is_left
            self._graphs.setdefault(turn, graph)
            if (turn, node) in done or node not in self._layers_of(graph):
                return
            room -= numbers.numel() * _BYTES
            if room < 0 and exact:
                is_left = True
            else:
                exact[turn, node] = numbers.to(torch.float64, copy=True)

        def hold_beside(turn: int, graph: int, node: str, numbers: torch.Tensor) -> None:
            if (turn, node) in exact:
                fp32[turn, node] = numbers.clone()

        def judge(turn: int, graph: int, node: str, numbers: torch.Tensor) -> None:
            value = turn, node
            if value in exact and value in fp32:
                sums = self._sums.setdefault(value, (ErrorSum(), ErrorSum(), ErrorSum()))
                add_errors(sums, exact.pop(value), fp32.pop(value), numbers)
                done.add(value)

        for lane, see in ((ReferenceRun.EXACT, hold), (ReferenceRun.FP32, hold_beside), (ReferenceRun.PLANNED, judge)):
            for name, buffer in self._twin.named_buffers():
                buffer.copy_(before[lane][name])
            self._backend.begin(lane, see)
            call(self._run)
            self._buffers[lane] = _copied(self._twin)
        # What a lane did not come by is held against nothing, in this pass or another.
        done |= exact.keys()
        return is_left

    def _layers_of(self, graph: int) -> Mapping[str, Sequence[_Layer]]:
        if graph not in self._layers:
            recorded = self._backend.graphs[graph]
            spots = {} if recorded is None else recorded.spots
            self._layers[graph] = _operators(spots) if self._is_by_operator else _modules(spots, self._paths)
        return self._layers[graph]

    def results(self) -> tuple[LayerError, ...]:
        """Layers in the order in which they ran."""
        return tuple(
            _error_of(layer, self._sums[turn, node])
            for turn, graph in sorted(self._graphs.items())
            for node, layers in self._layers_of(graph).items()
            if (turn, node) in self._sums
            for layer in layers
        )

    def notes(self) -> tuple[str, ...]:
        """What to know of the layers."""
        said = []
        if any(graph is None for graph in self._backend.graphs):
            said.append("a graph was left as it is, and none of its layers was looked at")
        if self._compiled.settings.is_frozen:
            said.append("layers are of a plan with weights as inputs, outputs of one with weights as constants")
        theirs = _precisions(self._compiled.account)
        own = _precisions(self._backend.account)
        differing = [name for name in theirs.keys() & own.keys() if theirs[name] != own[name]]
        if differing or not theirs.keys() <= own.keys():
            said.append("the layers' plan, made anew for these batches, is not all that of the compiled model")
        return tuple(said)


def _operators(spots: Mapping[str, Spot]) -> Mapping[str, Sequence[_Layer]]:
    return {node: [_Layer(spot.module, spot, ((spot.dtype, 1),))] for node, spot in spots.items()}


def _modules(spots: Mapping[str, Spot], paths: Iterable[str]) -> Mapping[str, Sequence[_Layer]]:
    """What each module hands on is the last that it makes; the inner modules first."""
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
    return {node: sorted(by_node[node], key=lambda layer: -len(layer.module)) for node in spots if node in by_node}


def _error_of(layer: _Layer, sums: Sums) -> LayerError:
    own, eager, beside = (one.error for one in sums)
    spot = layer.spot
    return LayerError(
        module=layer.module,
        node=spot.node,
        op=spot.op,
        precisions=layer.precisions,
        line=spot.line,
        error=own,
        eager=eager,
        beside_fp32=beside,
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
