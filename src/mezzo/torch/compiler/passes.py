"""The Inductor pass that plans a functional graph and makes it use cached low-precision weights."""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import fx

from mezzo.aten.program import Program, ProgramTensor, float_type
from mezzo.aten.read.retype import COPY, is_cast
from mezzo.aten.read.scales import exponent_of
from mezzo.common.errors import InputError, MezzoError, ModelError
from mezzo.contracts.plans import Plan
from mezzo.formats.block_storage import BlockStorage
from mezzo.planner.options import Options
from mezzo.torch.compiler.as_written import write_as_kept
from mezzo.torch.compiler.no_conversion_reason import (
    NoConversionReason,
    find_no_conversion_reason,
    tell_emulated,
)
from mezzo.torch.compiler.rewriting import RewrittenGraph, rewrite
from mezzo.torch.compiler.scales import scales_sums, without_scales
from mezzo.torch.compiler.settings import OptionsOf
from mezzo.torch.compiler.subgraphs import BodyPlan, casts_in, plan_bodies
from mezzo.torch.generation.few_rows_attention import write_as_loops
from mezzo.torch.inspect.graph_snapshots import GraphSnapshot, take_snapshot
from mezzo.torch.onednn import int8_lowerings, lowerings  # noqa: F401  registers the lowerings
from mezzo.torch.onednn.epilogues import fuse
from mezzo.torch.onednn.int8_epilogues import fuse_int8
from mezzo.torch.onednn.int8_kernels import INT8_PRODUCTS
from mezzo.torch.onednn.kernels import INT4_LINEAR, INT8W_LINEAR, is_laid_out_last
from mezzo.torch.onednn.residuals import add_sums
from mezzo.torch.scaled_matmuls import INT_MM
from mezzo.torch.torch_internals import (
    BufferAOTInput,
    CustomGraphPass,
    ParamAOTInput,
    PlainAOTInput,
    TangentAOTInput,
    inductor_config,
    without_modes,
)
from mezzo.torch.train.attention import AsProducts, write_as_products
from mezzo.torch.train.backward_memory import convert_apart, round_once
from mezzo.torch.train.controls import Controls
from mezzo.torch.train.hidden_gradients import gradient_format
from mezzo.torch.train.joint import advise_partitioner, as_joint, give_gradients
from mezzo.torch.train.saved_values import Kept
from mezzo.torch.train.sums.accumulating import sum_in_tiles, tile_for
from mezzo.torch.train.sums.fp32_accumulator_outputs import Fp32Output, way_for, write_fp32_outputs
from mezzo.torch.weights.block_products import (
    BlockSlots,
    floats_of,
    pack_blocks,
    rounded_weights,
)
from mezzo.torch.weights.computed_weights import fold_weights
from mezzo.torch.weights.frozen import (
    casts_of_constants,
    constants_of,
    fold_into_int8,
    hold_corrected,
    pack_constants,
)
from mezzo.torch.weights.int8_products import (
    Int8Slots,
    call_int8_kernels,
)
from mezzo.torch.weights.packing import keep_channels_first, pack
from mezzo.torch.weights.weight_inputs import CastableWeight, Edited, device_of
from mezzo.torch.weights.weight_layouts import (
    LowCopy,
    WeightLayout,
    forms_of,
    scaled_layout,
)

# The user's own passes at the same hook; they run first, on the traced graph.
Before = Sequence[Callable[[fx.Graph], object]]


class Copy(NamedTuple):
    """A low-precision weight that a graph reads: its argument position and its layout."""

    of: CastableWeight
    place: int
    layout: WeightLayout


class PlanningPass(CustomGraphPass):
    """Plans one Dynamo graph. Results are attributes, set once Inductor has run the pass."""

    def __init__(
        self,
        edited: Edited,
        options: Options,
        digest: str,
        before: Before = (),
        controls: Controls | None = None,
        options_of: OptionsOf | None = None,
        *,
        as_frozen: bool = False,
    ) -> None:
        """`options_of`: those of a graph and its plan to replay, where graphs have their own.
        `as_frozen`: weights are constants, as in a graph that Inductor freezes; it is interpreted.
        """
        self.edited, self.options, self.digest, self.before = edited, options, digest, before
        self.as_frozen = as_frozen
        self.are_frozen = as_frozen or bool(inductor_config.freezing)
        # With gradients enabled, Inductor freezes nothing.
        self.folds = self.are_frozen and not torch.is_grad_enabled()
        self.controls = Controls() if controls is None else controls
        self.low, self.device = float_type(options.planning.low), device_of(edited.inputs)
        self.options_of = options_of or (lambda _: (options, None, False))
        self.kept: Kept | None = None
        self.is_joint = False
        self.plan: Plan | None = None
        self.snapshot: GraphSnapshot | None = None
        self.note: str | None = None
        self.no_conversion_reason: NoConversionReason | None = None
        self.emulated: str | None = None
        self.fault: InputError | None = None  # an error in the request
        self.unmatched: Mapping[tuple[str, str], str] = {}
        self.bodies: Sequence[BodyPlan] = ()
        self.casts = 0
        self.int4_products = self.int8_products = 0
        self.native_sums: tuple[str, ...] = ()
        self.fp32_outputs: tuple[Fp32Output, ...] = ()
        self.as_products: tuple[AsProducts, ...] = ()
        self.as_loops: tuple[AsProducts, ...] = ()
        self.copies: tuple[Copy, ...] = ()

    def uuid(self) -> object:
        """The key in Inductor's caches; None disables them, if a user's pass has no key."""
        user_keys = [
            user_pass.uuid() if isinstance(user_pass, CustomGraphPass) else None
            for user_pass in self.before
        ]
        if None in user_keys:
            return None
        return (self.digest, *user_keys) if user_keys else self.digest

    def __call__(self, graph: fx.Graph) -> None:
        for user_pass in self.before:
            user_pass(graph)
        self._plan(graph)

    def _plan(self, graph: fx.Graph) -> None:
        inputs = graph.find_nodes(op="placeholder")
        descriptors = {node: node.meta.get("desc") for node in inputs}
        if None in descriptors.values():
            return  # a subgraph: it is planned together with its parent, which follows
        program = self._program(graph, descriptors)
        weights = program.weights
        self.is_joint = any(isinstance(about, TangentAOTInput) for about in descriptors.values())
        if self.is_joint:
            program = as_joint(program)
        graphs = self.plan_program(program)
        if graphs:
            hold_corrected(program, graphs[0].result.program.weights)
        tile = None if self.plan is None else tile_for(self.controls, self.low, self.device)
        if tile is not None:
            self.native_sums = sum_in_tiles(program.owner, self.low, tile)
        with without_modes(), torch.no_grad():
            self.as_products = tuple(
                node for graph_plan in graphs for node in write_as_products(graph_plan)
            )
            if not self.is_joint:
                self.as_loops = tuple(
                    node for graph_plan in graphs for node in write_as_loops(graph_plan)
                )
        self.copies = self._read_copies(graph, descriptors)
        apart = 0
        if self.is_joint:
            if graphs:
                round_once(graphs[0], self.low)
            give_gradients(graph, self._gradient_formats(descriptors))
            apart = convert_apart(graph, self.device)
            copies = {node.name for node, about in descriptors.items() if self._is_copy(about)}
            kept = {*weights, *copies}
            self.kept = advise_partitioner(graph, kept, self.low, self.controls.memory)
        self.int4_products = sum(
            len(graph.find_nodes(op="call_function", target=target))
            for target in (INT4_LINEAR, INT8W_LINEAR)
        )
        self.int8_products = sum(
            node.target is INT_MM or node.target in INT8_PRODUCTS for node in graph.nodes
        )
        folded = casts_of_constants(graph) if inductor_config.freezing else 0
        self.casts = apart + casts_in(graph) - folded

    def _program(self, graph: fx.Graph, descriptors: Mapping[fx.Node, object]) -> Program:
        written = {node.args[0] for node in graph.nodes if node.target is COPY}
        weights, names = self._weights_and_names(descriptors, written)
        assert graph.owning_module is not None, "a compiler's graph is of a module"
        program = Program(
            graph=graph,
            owner=graph.owning_module,
            weights=weights,
            states=self._states(
                {node: about for node, about in descriptors.items() if node not in written},
                weights,
                names,
            ),
            names=names,
            name="the graph of torch.compile",
        )
        if not self.folds:
            return program
        return replace(program, weights=weights | fold_weights(program))

    def plan_program(self, program: Program) -> Sequence[RewrittenGraph]:
        """Plan and edit the graph and its subgraphs; none if that fails, which is noted."""
        graphs: list[RewrittenGraph] = []
        try:
            with without_modes(), torch.no_grad():  # reads the values of weights
                planned = self.rewritten(program)
                self.plan, self.snapshot = planned.plan, take_snapshot(planned)
                self.unmatched = planned.unmatched
                self.no_conversion_reason = find_no_conversion_reason(
                    planned, self.options.planning.policy.name
                )
                self.emulated = tell_emulated(planned, self.options.planning.target)
                floats = without_scales(self.options)
                planning = replace(floats.planning, weight_bits=())
                self.bodies = plan_bodies(program, replace(floats, planning=planning))
                bodies = [body.planned for body in self.bodies if body.planned is not None]
                graphs = [planned, *bodies]
                self.unmatched = {
                    key: message
                    for key, message in planned.unmatched.items()
                    if all(key in body.unmatched for body in bodies)
                }
                write_as_kept(program.owner, {body.path for body in self.bodies})
                self.fp32_outputs = self._write_fp32_outputs(graphs)
        except MezzoError as error:
            self.note = str(error)
            # Errors raised here would be wrapped; the user's own errors are raised at the call.
            if isinstance(error, InputError) and not isinstance(error, ModelError):
                self.fault = error
        return graphs

    def rewritten(self, program: Program) -> RewrittenGraph:
        """Plan and edit a graph. Raises MezzoError: it stays unchanged."""
        options, plan, is_given = self.options_of(program)
        try:
            return rewrite(program, options, plan)
        except MezzoError as error:
            if plan is None:
                raise
            if is_given:
                raise InputError(str(error)) from error
            why = f"the plan from data no longer fits, so nothing runs in INT8: {error}"
            warnings.warn(why, stacklevel=2)
        return rewrite(program, without_scales(self.options, why))

    def _write_fp32_outputs(self, graphs: Sequence[RewrittenGraph]) -> tuple[Fp32Output, ...]:
        """Make matmuls with planned FP32 outputs output their accumulator, if supported."""
        way = way_for(self.controls, self.low, self.device)
        if way is None:
            return ()
        return tuple(
            product
            for planned in graphs
            for product in write_fp32_outputs(planned, self.low, way, self.controls)
        )

    def _gradient_formats(self, descriptors: Mapping[fx.Node, object]) -> Mapping[str, torch.dtype]:
        """Dtypes of weight gradients that differ from the weight's dtype."""
        formats = {
            node.name: gradient_format(self.edited.behind(desc))
            for node, desc in descriptors.items()
        }
        return {name: dtype for name, dtype in formats.items() if dtype is not None}

    def _weights_and_names(
        self, descriptors: Mapping[fx.Node, object], written: set[Any]
    ) -> tuple[dict[str, ProgramTensor], dict[str, str]]:
        """The weights among a graph's inputs, and the names of all inputs."""
        weights: dict[str, ProgramTensor] = {}
        names: dict[str, str] = {}
        # Weights are attributes of a graph only where they are constants.
        paths = self.edited.paths() if inductor_config.freezing else {}
        for node, descriptor in descriptors.items():
            tensor = self.edited.behind(descriptor)
            if isinstance(descriptor, PlainAOTInput):
                names[node.name] = self.edited.names.get(descriptor.idx, node.name)
                # Buffers are weights where the compiled graph has them as constants.
                is_constant = self.as_frozen and descriptor.idx in self.edited.owned
                is_weight = isinstance(tensor, torch.nn.Parameter) or is_constant
                tensor = tensor if is_weight else None
            elif isinstance(descriptor, ParamAOTInput | BufferAOTInput):
                names[node.name] = paths.get(descriptor.target, descriptor.target)
            if isinstance(tensor, torch.Tensor) and node not in written and self._is_cached(tensor):
                weights[node.name] = ProgramTensor(names[node.name], tensor.detach)
        return weights, names

    def _states(
        self,
        descriptors: Mapping[fx.Node, object],
        weights: Collection[str],
        names: Mapping[str, str],
    ) -> dict[str, ProgramTensor]:
        """The module's own tensors among a graph's inputs that are no weights: buffers that the
        graph does not write to.
        """
        return {
            node.name: ProgramTensor(names[node.name], tensor.detach)
            for node, descriptor in descriptors.items()
            if isinstance(descriptor, PlainAOTInput)
            and descriptor.idx in self.edited.owned
            and node.name not in weights
            and isinstance(tensor := self.edited.behind(descriptor), torch.Tensor)
        }

    def _is_cached(self, tensor: torch.Tensor) -> bool:
        """Whether a weight is rounded once, if weights are to be integers: frozen, or cached by its
        changes.
        """
        planning = self.options.planning
        is_quantized = planning.line.quantized is not None and tensor.dim() > 1
        if self.are_frozen or not (planning.weight_bits or is_quantized):
            return True
        candidates = [
            self.edited.inputs[candidate.weight]
            for candidate in self.edited.candidates
            if not is_quantized or candidate.grids is not None
        ]
        return not tensor.is_inference() and any(tensor is weight for weight in candidates)

    def _is_copy(self, desc: object) -> bool:
        """Whether an input is the low-precision copy of a weight."""
        return isinstance(desc, PlainAOTInput) and any(
            desc.idx == candidate.low for candidate in self.edited.candidates
        )

    def _read_copies(
        self, graph: fx.Graph, descriptors: Mapping[fx.Node, object]
    ) -> tuple[Copy, ...]:
        """Replace casts of weights by their cached low-precision copies, packed for matmuls."""
        by_place = {
            desc.idx: node for node, desc in descriptors.items() if isinstance(desc, PlainAOTInput)
        }
        wide: dict[fx.Node, fx.Node] = {}
        slots: dict[fx.Node, fx.Node] = {}
        blocks: dict[fx.Node, BlockSlots] = {}
        storages: dict[fx.Node, BlockStorage] = {}
        exponents: dict[fx.Node, int] = {}
        int8_layouts = {} if self.is_joint else self._quantize(graph, by_place)
        for candidate in self.edited.candidates:
            weight, low = by_place.get(candidate.weight), by_place.get(candidate.low)
            if weight is None or low is None:
                continue
            wide[low] = weight
            for rounded in rounded_weights(weight):
                storages[low] = rounded.storage
                rounded.floats.replace_all_uses_with(low)
                graph.erase_node(rounded.floats)
                graph.erase_node(rounded.rounded)
            if low in storages:
                if candidate.slot in by_place and candidate.grids in by_place:
                    slot, grids = by_place[candidate.slot], by_place[candidate.grids]
                    blocks[low] = BlockSlots(storages[low], slot, grids)
                continue
            slot = None if candidate.slot is None else by_place.get(candidate.slot)
            if self.edited.packs and slot is not None and slot not in int8_layouts:
                slots[low] = slot
            dtype = low.meta["val"].dtype
            for form in forms_of(weight):
                casts = [user for user in form.users if is_cast(user, dtype)]
                if casts:  # one form is cached
                    wide[low], exponents[low] = form, -exponent_of(form)
                    break
            for cast in casts:
                cast.replace_all_uses_with(low)
                graph.erase_node(cast)
        layouts = dict(int8_layouts)
        if not self.is_joint:
            layouts |= self._pack(graph, slots, wide, blocks)
        for low in wide:
            keep_channels_first(graph, low)
        copies = []
        for candidate in self.edited.candidates:
            low = by_place.get(candidate.low)
            exponent = 0 if low is None else exponents.get(low, 0)
            for place in candidate.integers:
                layout = None if place not in by_place else layouts.get(by_place[place])
                if layout is not None:
                    copies.append(Copy(candidate, place, scaled_layout(layout, exponent)))
            if low is not None and low.users:
                layout = _low_layout(low, storages.get(low))
                copies.append(Copy(candidate, candidate.low, scaled_layout(layout, exponent)))
        return tuple(copies)

    def _quantize(
        self, graph: fx.Graph, by_place: Mapping[int, fx.Node]
    ) -> Mapping[fx.Node, WeightLayout]:
        """Make products planned in INT8 read packed integers."""
        if self.options.planning.line.quantized is None:
            return {}
        slots: dict[fx.Node, Int8Slots] = {}
        for candidate in self.edited.candidates:
            weight = by_place.get(candidate.weight)
            inputs = [by_place[place] for place in candidate.integers if place in by_place]
            if weight is not None and len(inputs) == len(Int8Slots._fields):
                slots[weight] = Int8Slots(*inputs)
        constants = {*constants_of(graph)} if inductor_config.freezing else set()
        target = self.options.planning.target
        layouts = call_int8_kernels(
            graph,
            slots,
            in_pairs=target.adds_pairs,
            are_scaled=scales_sums(target),
            constants=constants,
        )
        if inductor_config.freezing:
            fold_into_int8(graph)
        fuse_int8(graph)
        return layouts

    def _pack(
        self,
        graph: fx.Graph,
        slots: Mapping[fx.Node, fx.Node],
        wide: Mapping[fx.Node, fx.Node],
        blocks: Mapping[fx.Node, BlockSlots],
    ) -> Mapping[fx.Node, WeightLayout]:
        """Make matmuls read packed weights, and fuse the epilogues that oneDNN supports."""
        used = {low: slot for low, slot in slots.items() if low.users}
        layouts = {**pack(graph, used, wide), **pack_blocks(graph, blocks, wide)}
        if self.edited.packs and inductor_config.freezing:
            pack_constants(graph, self.low)
        add_sums(graph)
        fuse(graph)
        return layouts


def _low_layout(low: fx.Node, storage: BlockStorage | None) -> WeightLayout:
    """The layout of a low-precision copy that is read as it is."""
    if storage is not None:
        return floats_of(low, storage)
    copy = low.meta["val"]
    return LowCopy(copy.dtype, last=is_laid_out_last(copy))
