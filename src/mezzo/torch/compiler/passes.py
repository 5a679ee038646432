"""The pass that Inductor runs on the functional graph: it plans, and reads copies of weights that are made once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch._inductor.config
from torch import fx
from torch._functorch._aot_autograd.descriptors import BufferAOTInput, ParamAOTInput, PlainAOTInput, TangentAOTInput
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.utils._python_dispatch import _disable_current_modes

from mezzo.aten.program import FROM_DTYPE, Held, Program
from mezzo.aten.read.retype import COPY, is_cast
from mezzo.common.errors import InputError, MezzoError, ModelError
from mezzo.contracts.plans import Plan
from mezzo.planner.options import Options
from mezzo.torch.compiler.as_written import write_as_kept
from mezzo.torch.compiler.no_conversion_reason import Idle, find_idle
from mezzo.torch.compiler.rewriting import Planned, rewrite
from mezzo.torch.compiler.subgraphs import BodyPlan, casts_in, plan_bodies
from mezzo.torch.inspect.graph_snapshots import Sketch, sketch
from mezzo.torch.onednn import lowerings  # noqa: F401  its import tells Inductor of operators that are written here
from mezzo.torch.onednn.epilogues import fuse
from mezzo.torch.onednn.kernels import is_laid_out_last
from mezzo.torch.onednn.residuals import add_sums
from mezzo.torch.train.attention import AsProducts, write_as_products
from mezzo.torch.train.backward_memory import convert_apart, round_once
from mezzo.torch.train.controls import Controls
from mezzo.torch.train.hidden_gradients import gradient_format
from mezzo.torch.train.joint import advise_partitioner, as_joint, give_gradients
from mezzo.torch.train.rematerialization import Kept
from mezzo.torch.train.sums.accumulating import sum_in_tiles, tile_for
from mezzo.torch.train.sums.fp32_accumulator_outputs import HandedOn, hand_on_sums, way_for
from mezzo.torch.weights.frozen import casts_of_constants, pack_constants
from mezzo.torch.weights.packing import pack
from mezzo.torch.weights.weight_inputs import Candidate, Edited, device_of
from mezzo.torch.weights.weight_layouts import LowCopy, WeightLayout

# Passes that the user has Inductor run at the same place: they see the graph first, as it was traced.
Before = Sequence[Callable[[fx.Graph], object]]


class Copy(NamedTuple):
    """A copy of a weight that a graph reads: at which place of the flat call it comes in, and how it is made."""

    of: Candidate
    place: int
    recipe: WeightLayout


class PlanningPass(CustomGraphPass):
    """Plans one graph of Dynamo's. What it has done stands in its attributes after Inductor has run it."""

    def __init__(
        self, edited: Edited, options: Options, digest: str, before: Before = (), controls: Controls | None = None
    ) -> None:
        self.edited, self.options, self.digest, self.before = edited, options, digest, before
        self.controls = Controls() if controls is None else controls
        self.kept: Kept | None = None
        self.is_joint = False
        self.plan: Plan | None = None
        self.sketch: Sketch | None = None
        self.note: str | None = None
        self.idle: Idle | None = None
        self.fault: InputError | None = None  # of the request
        self.unmatched: Mapping[tuple[str, str], str] = {}
        self.bodies: Sequence[BodyPlan] = ()
        self.casts = 0
        self.native_sums: tuple[str, ...] = ()
        self.handed_on: tuple[HandedOn, ...] = ()
        self.as_products: tuple[AsProducts, ...] = ()
        self.copies: tuple[Copy, ...] = ()

    def uuid(self) -> object:
        """What Inductor's caches tell this pass from others by; None where one of the user's cannot be told."""
        theirs = [one.uuid() if isinstance(one, CustomGraphPass) else None for one in self.before]
        return None if None in theirs else (self.digest, *theirs) if theirs else self.digest

    def __call__(self, graph: fx.Graph) -> None:
        for theirs in self.before:
            theirs(graph)
        self._plan(graph)

    def _plan(self, graph: fx.Graph) -> None:
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        about = {node: node.meta.get("desc") for node in inputs}
        if any(one is None for one in about.values()):
            return  # a body, which comes before its graph: that plans it
        written = {node.args[0] for node in graph.nodes if node.target is COPY}
        weights, names = self._told(about, written)
        owner = graph.owning_module
        assert owner is not None, "a compiler's graph is of a module"
        program = Program(graph=graph, owner=owner, weights=weights, names=names, name="the graph of torch.compile")
        self.is_joint = any(isinstance(one, TangentAOTInput) for one in about.values())
        if self.is_joint:
            program = as_joint(program)
        graphs: list[Planned] = []
        try:
            with _disable_current_modes(), torch.no_grad():  # weights are asked for their numbers
                planned = self.rewritten(program)
                self.plan, self.unmatched, self.sketch = planned.plan, planned.unmatched, sketch(planned)
                self.idle = find_idle(planned, self.options.planning.policy.name)
                self.bodies = plan_bodies(program, self.options)
                graphs = [planned, *(one.planned for one in self.bodies if one.planned is not None)]
                write_as_kept(owner, {one.path for one in self.bodies})
                self.handed_on = self._hand_on_sums(graphs)
        except MezzoError as error:
            self.note = str(error)
            # Compilers wrap what is raised here; of what the user asked for it is told at the call.
            self.fault = error if isinstance(error, InputError) and not isinstance(error, ModelError) else None
        low = FROM_DTYPE[self.options.planning.low]
        tile = tile_for(self.controls, low, device_of(self.edited.inputs)) if self.plan is not None else None
        if tile is not None:
            self.native_sums = sum_in_tiles(owner, low, tile)
        with _disable_current_modes(), torch.no_grad():
            self.as_products = tuple(node for one in graphs for node in write_as_products(one))
        self.copies = self._read_copies(graph, about)
        apart = 0
        if self.is_joint:
            if graphs:
                round_once(graphs[0], low)
            give_gradients(graph, self._gradient_formats(about))
            apart = convert_apart(graph, device_of(self.edited.inputs))
            copies = {node.name for node, one in about.items() if self._is_copy(one)}
            self.kept = advise_partitioner(graph, {*weights, *copies}, low, self.controls.memory)
        self.casts = apart + casts_in(graph) - (casts_of_constants(graph) if torch._inductor.config.freezing else 0)
        also = [body.planned.unmatched for body in self.bodies if body.planned is not None]
        self.unmatched = {key: said for key, said in self.unmatched.items() if all(key in one for one in also)}

    def rewritten(self, program: Program) -> Planned:
        """Plan a graph, and edit it. Raises MezzoError: it stays as it is."""
        return rewrite(program, self.options)

    def _hand_on_sums(self, graphs: Sequence[Planned]) -> tuple[HandedOn, ...]:
        """Let products that are planned to hand on FP32 do so, as this device can or as was asked for."""
        low = FROM_DTYPE[self.options.planning.low]
        way = way_for(self.controls, low, device_of(self.edited.inputs))
        if way is None:
            return ()
        return tuple(one for planned in graphs for one in hand_on_sums(planned, low, way, self.controls))

    def _gradient_formats(self, about: Mapping[fx.Node, object]) -> Mapping[str, torch.dtype]:
        """The formats of weights' gradients, where they are others than the weights'."""
        found = {node.name: gradient_format(self.edited.behind(one)) for node, one in about.items()}
        return {name: dtype for name, dtype in found.items() if dtype is not None}

    def _told(self, about: Mapping[fx.Node, object], written: set[Any]) -> tuple[dict[str, Held], dict[str, str]]:
        """The weights behind the inputs of a graph, and what all inputs are called."""
        weights: dict[str, Held] = {}
        names: dict[str, str] = {}
        for node, one in about.items():
            held = self.edited.behind(one)
            if isinstance(one, PlainAOTInput):
                names[node.name] = self.edited.names.get(one.idx, node.name)
                held = held if isinstance(held, torch.nn.Parameter) else None
            elif isinstance(one, ParamAOTInput | BufferAOTInput):
                names[node.name] = one.target
            if isinstance(held, torch.Tensor) and node not in written:
                weights[node.name] = Held(names[node.name], lambda held=held: held.detach())  # type: ignore[misc]  # bound now
        return weights, names

    def _is_copy(self, about: object) -> bool:
        """Whether an input is the copy of a weight."""
        return isinstance(about, PlainAOTInput) and any(about.idx == one.low for one in self.edited.candidates)

    def _read_copies(self, graph: fx.Graph, about: Mapping[fx.Node, object]) -> tuple[Copy, ...]:
        """Let whoever reads a weight in low precision read its low copy, and products the packed one."""
        by_place = {one.idx: node for node, one in about.items() if isinstance(one, PlainAOTInput)}
        wide: dict[fx.Node, fx.Node] = {}
        slots: dict[fx.Node, fx.Node] = {}
        for candidate in self.edited.candidates:
            weight, low = by_place.get(candidate.weight), by_place.get(candidate.low)
            if weight is None or low is None:
                continue
            wide[low] = weight
            if candidate.slot in by_place:
                slots[low] = by_place[candidate.slot]
            for cast in [user for user in weight.users if is_cast(user, low.meta["val"].dtype)]:
                cast.replace_all_uses_with(low)
                graph.erase_node(cast)
        packed = {} if self.is_joint else self._pack(graph, slots, wide)
        copies = []
        for candidate in self.edited.candidates:
            low = by_place.get(candidate.low)
            if low in slots and slots[low] in packed:
                assert candidate.slot is not None, "it stands there"
                copies.append(Copy(candidate, candidate.slot, packed[slots[low]]))
            elif low is not None and low.users:
                held = low.meta["val"]
                copies.append(Copy(candidate, candidate.low, LowCopy(held.dtype, last=is_laid_out_last(held))))
        return tuple(copies)

    def _pack(
        self, graph: fx.Graph, slots: Mapping[fx.Node, fx.Node], wide: Mapping[fx.Node, fx.Node]
    ) -> Mapping[fx.Node, WeightLayout]:
        """Let products read packed weights, and do besides what oneDNN does behind them."""
        packed = pack(graph, {low: slot for low, slot in slots.items() if low.users}, wide)
        if self.edited.packs and torch._inductor.config.freezing:
            pack_constants(graph, FROM_DTYPE[self.options.planning.low])
        add_sums(graph)
        fuse(graph)
        return packed
