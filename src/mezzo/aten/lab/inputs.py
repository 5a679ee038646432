"""Program inputs: names, roles, and validation and conversion of feeds."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NoReturn

import torch
from torch import fx

from mezzo.aten.lab.arrays import array_of, tensor_from
from mezzo.aten.lab.input_roles import length_of, slot_of
from mezzo.aten.program import TORCH_DTYPES, Program, tensor_of
from mezzo.contracts.lab import Feeds
from mezzo.ir.input_roles import Part, Slot
from mezzo.numerics.data.feed_checks import check_names, length_remedy, refuse


class TorchInputs:
    """A program's inputs without weights. Inputs with a known initial state need no feed."""

    empty: Collection[str] = ()

    def __init__(self, program: Program) -> None:
        self._program = program
        self.nodes: Mapping[str, fx.Node] = {
            program.names.get(node.name, node.name): node
            for node in program.graph.find_nodes(op="placeholder")
            if tensor_of(node) is not None and node.name not in program.weights
        }
        self.names: Sequence[str] = tuple(self.nodes)
        self.optional = frozenset(
            name for name, node in self.nodes.items() if node.name in program.states
        )

    @property
    def fixed_length(self) -> int | None:
        """The static first dimension that all inputs but scalars share; None if they differ."""
        firsts = {length for length in self._firsts if length is not None}
        if len(firsts) != 1 or None in self._firsts:
            return None
        (first,) = firsts
        return first if isinstance(first, int) and first > 0 else None

    @property
    def has_fixed_length(self) -> bool:
        return any(isinstance(length, int) for length in self._firsts)

    @cached_property
    def _firsts(self) -> Sequence[int | str | None]:
        tensors = [_fake(node) for name, node in self.nodes.items() if name not in self.optional]
        return [length_of(tensor.shape[0]) for tensor in tensors if tensor.dim()]

    @cached_property
    def types(self) -> Sequence[Slot]:
        return [replace(slot, part=Part.DATA, below=None) for slot in self.slots]

    @cached_property
    def slots(self) -> Sequence[Slot]:
        return [
            slot_of(self._program, name, node)
            for name, node in self.nodes.items()
            if name not in self.optional
        ]

    def check(self, feeds: Feeds) -> None:
        self.tensors(feeds)

    def typed(self, feeds: Feeds) -> Feeds:
        arrays = {}
        for name, feed in feeds.items():
            if name in self.nodes:
                arrays[name] = array_of(tensor_from(feed).to(_fake(self.nodes[name]).dtype))
        return arrays

    def tensors(self, feeds: Feeds) -> dict[fx.Node, torch.Tensor]:
        """The tensor for each placeholder, converted to its dtype and to the traced memory layout.

        Raises InputError: a feed is missing, unknown, or of another type, rank or length than its
        input.
        """
        check_names(feeds, self.names, self.optional, "program")
        tensors = {}
        lengths: dict[str, tuple[int, str]] = {}
        for name, feed in feeds.items():
            node = self.nodes[name]
            tensor = _read(name, feed, node)
            _check(name, tensor, _fake(node), lengths)
            tensors[node] = _laid_out(tensor.to(_fake(node).dtype), _fake(node))
        return tensors


def _fake(node: fx.Node) -> torch.Tensor:
    tensor = tensor_of(node)
    assert tensor is not None, "an input is a tensor"
    return tensor


def _read(name: str, feed: object, node: fx.Node) -> torch.Tensor:
    expected = spell(_fake(node))
    if feed is None:
        _refuse(name, "None", expected, "feed an array")
    try:
        return tensor_from(feed)
    except (ValueError, TypeError, RuntimeError) as error:
        _refuse(
            name,
            f"no array of numbers ({' '.join(str(error).split())[:80]})",
            expected,
            "feed an array",
        )


def _check(
    name: str, fed: torch.Tensor, expected: torch.Tensor, lengths: dict[str, tuple[int, str]]
) -> None:
    """Check a feed. `lengths` maps symbols to a length and the input that set it."""
    if fed.numel() and _rank(fed.dtype) > _rank(expected.dtype):
        _refuse(
            name,
            spell(fed),
            spell(expected),
            f"feed an array of {TORCH_DTYPES.get(expected.dtype, expected.dtype)}",
        )
    if fed.numel() and _is_integer(expected.dtype) and _is_integer(fed.dtype):
        limits = torch.iinfo(expected.dtype)
        for number in (int(fed.min()), int(fed.max())):
            if not limits.min <= number <= limits.max:
                _refuse(
                    name,
                    str(number),
                    spell(expected),
                    f"feed numbers from {limits.min} to {limits.max}",
                )
    if fed.dim() != expected.dim():
        _refuse(name, spell(fed), spell(expected), f"feed an array of {expected.dim()} dimensions")
    for axis, (length, actual) in enumerate(
        zip(map(length_of, expected.shape), fed.shape, strict=True)
    ):
        if isinstance(length, int) and length != actual:
            remedy = length_remedy(axis, length, actual, fed.dim())
            _refuse(name, spell(fed), spell(expected), remedy)
        if isinstance(length, str) and length.isidentifier():
            bound, elsewhere = lengths.setdefault(length, (actual, name))
            if bound != actual:
                _refuse(
                    name,
                    spell(fed),
                    spell(expected),
                    f"feed {length} = {bound} along dimension {axis}, as {elsewhere!r}",
                )


def _refuse(name: str, actual: str, expected: str, remedy: str) -> NoReturn:
    refuse(f"input {name!r}", actual, expected, remedy)


def _rank(dtype: torch.dtype) -> int:
    """The order of number kinds: a feed may be converted to a higher kind, never to a lower one."""
    return (
        0 if dtype is torch.bool else 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1
    )


def _is_integer(dtype: torch.dtype) -> bool:
    return _rank(dtype) == 1


def spell(tensor: torch.Tensor) -> str:
    """Dtype and shape, such as "f32[s0,4]"."""
    kind = TORCH_DTYPES.get(tensor.dtype, tensor.dtype)
    return f"{kind}[{','.join(str(length_of(size)) for size in tensor.shape)}]"


def _laid_out(fed: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """A tensor with the traced dimension order in memory, which views in the graph need."""
    placed = fed.to(expected.device)
    strides = expected.stride()
    if (
        not all(isinstance(number, int) for number in (*strides, *expected.shape))
        or expected.is_contiguous()
    ):
        return placed.contiguous()
    order = sorted(range(expected.dim()), key=lambda axis: -strides[axis])
    back = [order.index(axis) for axis in range(expected.dim())]
    return placed.permute(order).contiguous().permute(back)
