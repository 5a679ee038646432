"""Inputs for copies of weights, put into a copy of Dynamo's graph: the plan decides which of them are read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx
from torch._dynamo.source import ConstantSource
from torch._functorch._aot_autograd.descriptors import BufferAOTInput, ParamAOTInput, PlainAOTInput
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensorMode

from mezzo.torch.weights.weights import fills_memory

_CONVOLUTIONS = frozenset({torch.conv2d, torch.conv_transpose2d})
# What Dynamo writes around the parts of a module path.
_PART = re.compile(r"\['([^']*)'\]|\.([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One weight that may be cast once. `weight`, `low` and `slot` are the places of inputs in the flat call: of the
    weight, of its low copy, and of that as oneDNN packs it, where that can be.
    """

    name: str
    weight: int
    low: int
    slot: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """A copy of Dynamo's graph whose last inputs are the candidates, with an example of each input. `packs` says
    whether weights may be packed.
    """

    module: fx.GraphModule
    inputs: Sequence[object]
    candidates: Sequence[Candidate]
    names: Mapping[int, str]  # of what comes in, by place
    packs: bool

    def behind(self, about: object) -> object:
        """What stands behind an input of a graph that was made of this one, as AOTAutograd tells of it."""
        if isinstance(about, PlainAOTInput):
            return self.inputs[about.idx]
        if isinstance(about, ParamAOTInput | BufferAOTInput):
            return _attribute(self.module, about.target)
        return None


def with_candidates(module: fx.GraphModule, inputs: Sequence[object], dtype: torch.dtype, *, packs: bool) -> Edited:
    """Copy Dynamo's graph, with more inputs for each FP32 Parameter; the original is Dynamo's and stays.

    `packs` says whether weights may come in packed.
    """
    graph = fx.Graph()
    output = graph.graph_copy(module.graph, copies := {})  # type: ignore[var-annotated]  # fx.Node to fx.Node
    stays = [node for node in module.graph.nodes if node.op == "placeholder"]
    for node in stays:
        copies[node]._dynamo_source = node._dynamo_source
    names = {place: name_of(module, node) for place, node in enumerate(stays)}
    given = [None if _is_sharded(node) else one for node, one in zip(stays, inputs, strict=True)]
    candidates, fakes = _add_inputs(graph, stays[-1:] and copies[stays[-1]], given, names, dtype, packs)
    graph.output(output)
    last = next(node for node in reversed(graph.nodes) if node.op == "output")
    last.meta = dict(next(node for node in reversed(module.graph.nodes) if node.op == "output").meta)
    made = fx.GraphModule(module, graph, type(module).__name__)
    made.meta = dict(module.meta)
    for name in ("_param_name_to_source", "_source_to_user_stacks"):
        if hasattr(module, name):
            setattr(made, name, getattr(module, name))
    return Edited(module=made, inputs=(*inputs, *fakes), candidates=candidates, names=names, packs=packs)


def without_candidates(module: fx.GraphModule, inputs: Sequence[object]) -> Edited:
    """Dynamo's graph as it is, which casts its weights at every call."""
    places = enumerate(node for node in module.graph.nodes if node.op == "placeholder")
    names = {place: name_of(module, node) for place, node in places}
    return Edited(module=module, inputs=inputs, candidates=(), names=names, packs=False)


def device_of(inputs: Sequence[object]) -> str:
    """The kind of device that a graph computes on: the first that is no CPU's."""
    kinds = dict.fromkeys(one.device.type for one in inputs if isinstance(one, torch.Tensor))
    return next((kind for kind in kinds if kind != "cpu"), "cpu")


def _add_inputs(
    graph: fx.Graph,
    last: fx.Node,
    inputs: Sequence[object],
    names: Mapping[int, str],
    dtype: torch.dtype,
    packs: bool,
) -> tuple[list[Candidate], list[torch.Tensor]]:
    candidates: list[Candidate] = []
    fakes: list[torch.Tensor] = []
    context = TracingContext.try_get()
    mode = None if context is None else context.fake_mode
    if mode is None:
        return candidates, fakes

    def added(last: fx.Node, name: str, fake: torch.Tensor) -> fx.Node:
        with graph.inserting_after(last):
            made = graph.placeholder(name)
        made.meta["example_value"] = fake
        made._dynamo_source = ConstantSource(name)
        fakes.append(fake)
        return made

    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    for place, weight in enumerate(inputs):
        if not is_plain_weight(weight):
            continue
        assert isinstance(weight, torch.Tensor), "a weight is a tensor"
        low = len(inputs) + len(fakes)
        last = added(last, f"mezzo_low_{place}", _low_fake(mode, weight, dtype, last=_is_of_images(nodes[place])))
        slot = None
        if packs and _may_be_packed(weight):
            slot = len(inputs) + len(fakes)
            last = added(last, f"mezzo_packed_{place}", _slot_fake(mode, dtype))
        candidates.append(Candidate(names[place], place, low, slot))
    return candidates, fakes


def _may_be_packed(weight: torch.Tensor) -> bool:
    """Whether a weight can be that of a product on the CPU. Of one made under inference_mode nobody can tell when it
    changes: it is cast at every call, and packing it as often would not pay.
    """
    return weight.dim() > 1 and weight.device.type == "cpu" and not weight.is_inference()


def is_plain_weight(held: object) -> bool:
    """Whether an input is an FP32 Parameter that no subclass stands behind, and that fills its memory."""
    return (
        isinstance(held, torch.Tensor)
        and type(held) is torch.nn.Parameter
        and held.dtype is torch.float32
        and held.layout is torch.strided
        and fills_memory(held)
    )


def _is_sharded(node: fx.Node) -> bool:
    """Whether FSDP gathers a weight: at each call, into the same tensor, and nobody can tell that it has changed."""
    found = getattr(getattr(node, "_dynamo_source", None), "guard_source", None)
    kind = found() if callable(found) else found
    return kind is not None and kind.is_fsdp_module()


def _is_of_images(weight: fx.Node) -> bool:
    """Whether all that read a weight are convolutions of images, which Inductor has on CPUs with channels last."""
    is_read_last = [user.target in _CONVOLUTIONS and user.args[1:2] == (weight,) for user in weight.users]
    return bool(is_read_last) and all(is_read_last)


def _low_fake(mode: FakeTensorMode, weight: torch.Tensor, dtype: torch.dtype, *, last: bool) -> torch.Tensor:
    """What stands for a low copy. Whoever wants channels last has it so: it would be laid out anew at every call."""
    with mode:
        made = torch.empty_strided(tuple(weight.size()), tuple(weight.stride()), dtype=dtype, device=weight.device)
        is_wanted = last and weight.device.type == "cpu" and torch.backends.mkldnn.enabled
        return made.contiguous(memory_format=torch.channels_last) if is_wanted else made


def _slot_fake(mode: FakeTensorMode, dtype: torch.dtype) -> torch.Tensor:
    """What stands for a packed weight, whose strides nobody may ask for."""
    with mode:
        return torch.empty(0, dtype=dtype)


def name_of(module: fx.GraphModule, node: fx.Node) -> str:
    """What an input is called: the path of a parameter or buffer in its module, or what the caller's code calls it."""
    paths: Mapping[str, str] = module.meta.get("dynamo_flat_name_to_original_fqn", {})
    if node.name in paths:
        return paths[node.name]
    source = getattr(node, "_dynamo_source", None)
    if source is None:
        return node.name
    spelled = source.name if isinstance(source.name, str) else source.name()
    parts = [quoted or plain for quoted, plain in _PART.findall(spelled)]
    if "_parameters" not in parts and "_buffers" not in parts:
        return node.name
    return ".".join(part for part in parts[1:] if part not in ("_modules", "_parameters", "_buffers")) or node.name


def _attribute(module: torch.nn.Module, path: str) -> object:
    held: object = module
    for part in path.split("."):
        held = getattr(held, part, None)
    return held
