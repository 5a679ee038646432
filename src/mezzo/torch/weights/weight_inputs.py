"""Additional graph inputs for low-precision weights; the plan decides which are used."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import fx

from mezzo.aten.torch_internals import FakeTensorMode
from mezzo.torch.torch_internals import (
    BufferAOTInput,
    ConstantSource,
    ParamAOTInput,
    PlainAOTInput,
    TracingContext,
)
from mezzo.torch.weights.weights import fills_memory

_Key = TypeVar("_Key")
_CONVOLUTIONS = frozenset({torch.conv2d, torch.conv_transpose2d})
# Dynamo's syntax around the parts of a path.
_PART = re.compile(r"'([^']*)'|\.([A-Za-z_]\w*)|\[(\d+)\]")
_PATHS = "dynamo_flat_name_to_original_fqn"
# Dynamo reads a module that writes to its own attributes through its `__dict__`.
_HOLDERS = ("__dict__", "_modules", "_parameters", "_buffers")


@dataclass(frozen=True, slots=True, kw_only=True)
class CastableWeight:
    """A weight that may be cast once. `weight`, `low` and `slot` are argument positions. They are
    those of the weight, its low-precision copy, and its packed copy if it can be packed; `grids`
    and `sums` those of the scales (and offsets, of blocks) and sums of its integers, if there may
    be any.
    """

    name: str
    weight: int
    low: int
    slot: int | None
    grids: int | None = None
    sums: int | None = None

    @property
    def integers(self) -> list[int]:
        """The positions of what belongs to its integers."""
        return [place for place in (self.slot, self.grids, self.sums) if place is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """A copy of Dynamo's graph with candidates as last inputs, and an example of each input.
    `packs` means that floats may be packed.
    """

    module: fx.GraphModule
    inputs: Sequence[object]
    candidates: Sequence[CastableWeight]
    names: Mapping[int, str]  # of inputs, by position
    packs: bool

    @property
    def owned(self) -> frozenset[int]:
        """The positions of inputs that modules hold, parameters and buffers among them: they are
        named by their path.
        """
        inputs = self.module.graph.find_nodes(op="placeholder")
        places = zip(self.names, inputs, strict=False)
        return frozenset(place for place, node in places if self.names[place] != node.name)

    def behind(self, about: object) -> object:
        """The tensor behind an input of the AOTAutograd graph, by its descriptor."""
        if isinstance(about, PlainAOTInput):
            return self.inputs[about.idx]
        if isinstance(about, ParamAOTInput | BufferAOTInput):
            return _attribute(self.module, about.target)
        return None

    def paths(self) -> Mapping[str, str]:
        """Module paths of weights that are attributes of the graph, as constants are."""
        return _paths_in(self.module)


def with_candidates(
    module: fx.GraphModule,
    inputs: Sequence[object],
    dtype: torch.dtype,
    *,
    packs: bool,
    has_integers: bool = False,
) -> Edited:
    """A copy of Dynamo's graph with additional inputs for each FP32 Parameter.

    `packs` means that weights may be passed in packed, `has_integers` as packed integers.
    """
    graph = fx.Graph()
    output = graph.graph_copy(module.graph, copies := {})  # type: ignore[var-annotated]  # fx.Node to fx.Node
    placeholders = module.graph.find_nodes(op="placeholder")
    for node in placeholders:
        copies[node]._dynamo_source = node._dynamo_source
    names = _names_of(module, inputs)
    unsharded = [
        None if _is_sharded(node) else value
        for node, value in zip(placeholders, inputs, strict=True)
    ]
    candidates, fakes = _add_inputs(
        graph,
        placeholders[-1:] and copies[placeholders[-1]],
        unsharded,
        names,
        dtype,
        packs,
        has_integers,
    )
    graph.output(output)
    graph.output_node().meta = dict(module.graph.output_node().meta)
    result = fx.GraphModule(module, graph, type(module).__name__)
    result.meta = dict(module.meta)
    for name in ("_param_name_to_source", "_source_to_user_stacks"):
        if hasattr(module, name):
            setattr(result, name, getattr(module, name))
    return Edited(
        module=result, inputs=(*inputs, *fakes), candidates=candidates, names=names, packs=packs
    )


def without_candidates(module: fx.GraphModule, inputs: Sequence[object]) -> Edited:
    """Dynamo's graph unchanged, with weights cast at every call."""
    return Edited(
        module=module, inputs=inputs, candidates=(), names=_names_of(module, inputs), packs=False
    )


def device_of(inputs: Sequence[object]) -> str:
    """The device type of a graph: the first that is not "cpu", else "cpu"."""
    kinds = dict.fromkeys(value.device.type for value in inputs if isinstance(value, torch.Tensor))
    return next((kind for kind in kinds if kind != "cpu"), "cpu")


def _add_inputs(
    graph: fx.Graph,
    last: fx.Node,
    inputs: Sequence[object],
    names: Mapping[int, str],
    dtype: torch.dtype,
    packs: bool,
    has_integers: bool,
) -> tuple[list[CastableWeight], list[torch.Tensor]]:
    candidates: list[CastableWeight] = []
    fakes: list[torch.Tensor] = []
    context = TracingContext.try_get()
    mode = None if context is None else context.fake_mode
    if mode is None:
        return candidates, fakes

    def add(name: str, fake: torch.Tensor) -> int:
        """Add an input behind the last; returns its position."""
        nonlocal last
        with graph.inserting_after(last):
            last = graph.placeholder(name)
        last.meta["example_value"] = fake
        last._dynamo_source = ConstantSource(name)
        fakes.append(fake)
        return len(inputs) + len(fakes) - 1

    nodes = graph.find_nodes(op="placeholder")
    for place, weight in enumerate(inputs):
        if not is_plain_weight(weight):
            continue
        assert isinstance(weight, torch.Tensor), "a weight is a tensor"
        fake = _low_fake(mode, weight, dtype, last=_is_of_images(nodes[place]))
        low = add(f"mezzo_low_{place}", fake)
        slot = grids = sums = None
        if (packs or has_integers) and _may_be_packed(weight, has_integers):
            kind = dtype if packs else torch.int8
            slot = add(f"mezzo_packed_{place}", _slot_fake(mode, weight, kind))
            if has_integers:
                grids = add(f"mezzo_grids_{place}", _slot_fake(mode, weight, torch.float32))
                sums = add(f"mezzo_sums_{place}", _slot_fake(mode, weight, torch.float32))
        candidates.append(
            CastableWeight(
                name=names[place], weight=place, low=low, slot=slot, grids=grids, sums=sums
            )
        )
    return candidates, fakes


def _may_be_packed(weight: torch.Tensor, has_integers: bool) -> bool:
    """Whether a weight may belong to a matmul or convolution on the CPU, or to one of integers on
    any device. Changes of inference tensors cannot be detected: they are cast at every call, and
    packing each time would not pay off.
    """
    has_kernel = has_integers or weight.device.type == "cpu"
    return weight.dim() > 1 and has_kernel and not weight.is_inference()


def is_plain_weight(held: object) -> bool:
    """Whether a value is a dense FP32 Parameter that is not a tensor subclass."""
    return (
        isinstance(held, torch.Tensor)
        and type(held) is torch.nn.Parameter
        and held.dtype is torch.float32
        and held.layout is torch.strided
        and fills_memory(held)
    )


def _is_sharded(node: fx.Node) -> bool:
    """Whether FSDP gathers the weight: undetectably, into the same tensor at every call."""
    kind = _kind_of(getattr(node, "_dynamo_source", None))
    return kind is not None and kind.is_fsdp_module()


def _kind_of(source: Any) -> Any:
    """Where Dynamo found a value, as a `GuardSource`; None if it does not say. Older versions of
    PyTorch have a method for it.
    """
    kind = getattr(source, "guard_source", None)
    return kind() if callable(kind) else kind


def _is_of_images(weight: fx.Node) -> bool:
    """Whether only 2-D convolutions use a weight; Inductor runs them channels-last on CPUs."""
    are_image_weights = [
        user.target in _CONVOLUTIONS and user.args[1:2] == (weight,) for user in weight.users
    ]
    return bool(are_image_weights) and all(are_image_weights)


def _low_fake(
    mode: FakeTensorMode, weight: torch.Tensor, dtype: torch.dtype, *, last: bool
) -> torch.Tensor:
    """The fake of a low-precision copy, channels-last if its users would convert to that."""
    with mode:
        value = torch.empty_strided(
            tuple(weight.size()), tuple(weight.stride()), dtype=dtype, device=weight.device
        )
        is_channels_last = last and weight.device.type == "cpu" and torch.backends.mkldnn.enabled
        return value.contiguous(memory_format=torch.channels_last) if is_channels_last else value


def _slot_fake(mode: FakeTensorMode, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The fake of a packed weight: empty, as it has no readable strides."""
    with mode:
        return torch.empty(0, dtype=dtype, device=weight.device)


def _names_of(module: fx.GraphModule, inputs: Sequence[object]) -> dict[int, str]:
    """The names of a graph's inputs, by position: the path of a parameter and of what a module
    holds, else the name in the caller's code.
    """
    paths: Mapping[str, str] = module.meta.get(_PATHS, {})
    nodes = module.graph.find_nodes(op="placeholder")
    sources = {}
    for place, (node, value) in enumerate(zip(nodes, inputs, strict=True)):
        source = getattr(node, "_dynamo_source", None)
        if source is not None and (type(value) is torch.nn.Parameter or is_in_module(source)):
            sources[place] = source
    names = _shortest_paths(sources)
    return {
        place: paths.get(node.name) or names.get(place, node.name)
        for place, node in enumerate(nodes)
    }


def _paths_in(module: fx.GraphModule) -> Mapping[str, str]:
    """Paths by the names that parameters and buffers have in Dynamo's graph."""
    sources: Mapping[str, Any] = getattr(module, "_param_name_to_source", {})
    return _shortest_paths(sources) | module.meta.get(_PATHS, {})


def is_in_module(source: Any) -> bool:
    """Whether Dynamo found a value in a module, as an attribute or in one."""
    kind = _kind_of(source)
    return kind is not None and (kind.is_unspecialized_nn_module() or kind.is_fsdp_module())


def _shortest_paths(sources: Mapping[_Key, Any]) -> dict[_Key, str]:
    """The path of each source, without the variable where that tells paths apart: modules are known
    by many names.
    """
    paths = {key: _path_of(source) for key, source in sources.items()}
    alike: dict[str, set[tuple[str, ...]]] = {}
    for path in paths.values():
        alike.setdefault(_without_variable(path), set()).add(path)
    return {
        key: _without_variable(path) if len(alike[_without_variable(path)]) == 1 else ".".join(path)
        for key, path in paths.items()
    }


def _path_of(source: Any) -> tuple[str, ...]:
    """The variable at which Dynamo found a value, and its path from there."""
    spelled = source.name if isinstance(source.name, str) else source.name()
    parts = ("".join(part) for part in _PART.findall(spelled))
    return tuple(part for part in parts if part not in _HOLDERS)


def _without_variable(path: tuple[str, ...]) -> str:
    return ".".join(path[1:] or path)


def _attribute(module: torch.nn.Module, path: str) -> object:
    attribute: object = module
    for part in path.split("."):
        attribute = getattr(attribute, part, None)
    return attribute
