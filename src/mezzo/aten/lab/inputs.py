"""What a program is fed, and whether what was fed fits it."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import NoReturn

import torch
from torch import fx

from mezzo.aten.lab.arrays import array_of, tensor_from
from mezzo.aten.lab.input_roles import length_of, slot_of
from mezzo.aten.program import TORCH_DTYPES, Program, tensor_of
from mezzo.common.errors import InputError
from mezzo.contracts.lab import Feeds
from mezzo.ir.input_roles import Slot


class TorchInputs:
    """The inputs of a program, weights left out. What the program knows a first state of needs no feed."""

    empty: Collection[str] = ()

    def __init__(self, program: Program) -> None:
        self._program = program
        self.nodes: Mapping[str, fx.Node] = {
            program.names.get(node.name, node.name): node
            for node in program.graph.nodes
            if node.op == "placeholder" and tensor_of(node) is not None and node.name not in program.weights
        }
        self.names: Sequence[str] = tuple(self.nodes)
        self.optional = frozenset(name for name, node in self.nodes.items() if node.name in program.states)

    @property
    def fixed_length(self) -> int | None:
        """The first length that every input fixes alike, scalars left out; None if one does not."""
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
        held = [_fake(node) for name, node in self.nodes.items() if name not in self.optional]
        return [length_of(one.shape[0]) for one in held if one.dim()]

    @cached_property
    def slots(self) -> Sequence[Slot]:
        return [slot_of(self._program, name, node) for name, node in self.nodes.items() if name not in self.optional]

    def check(self, feeds: Feeds) -> None:
        self.tensors(feeds)

    def typed(self, feeds: Feeds) -> Feeds:
        found = {}
        for name, feed in feeds.items():
            if name in self.nodes:
                found[name] = array_of(tensor_from(feed).to(_fake(self.nodes[name]).dtype))
        return found

    def tensors(self, feeds: Feeds) -> dict[fx.Node, torch.Tensor]:
        """What is fed to each placeholder, rounded once to its type and laid out as the program was traced with.

        Raises: InputError: a feed is missing, unknown, or of another type, rank or length than its input.
        """
        missing = [repr(name) for name in self.names if name not in feeds and name not in self.optional]
        unknown = [repr(name) for name in feeds if name not in self.nodes]
        if missing or unknown:
            faults = [f"nothing for {', '.join(missing)}"] if missing else []
            faults += [f"{', '.join(unknown)}, which the program does not have"] if unknown else []
            names = [f"{name!r} (optional)" if name in self.optional else repr(name) for name in self.names]
            raise InputError(
                f"feeds: found {' and '.join(faults)}; feed the program's inputs: {', '.join(names) or 'it has none'}"
            )
        found = {}
        lengths: dict[str, tuple[int, str]] = {}
        for name, feed in feeds.items():
            node = self.nodes[name]
            tensor = _read(name, feed, node)
            _check(name, tensor, _fake(node), lengths)
            found[node] = _laid_out(tensor.to(_fake(node).dtype), _fake(node))
        return found


def _fake(node: fx.Node) -> torch.Tensor:
    held = tensor_of(node)
    assert held is not None, "an input is a tensor"
    return held


def _read(name: str, feed: object, node: fx.Node) -> torch.Tensor:
    wanted = spell(_fake(node))
    if feed is None:
        _refuse(name, "None", wanted, "feed an array")
    try:
        return tensor_from(feed)
    except (ValueError, TypeError, RuntimeError) as error:
        _refuse(name, f"no array of numbers ({' '.join(str(error).split())[:80]})", wanted, "feed an array")


def _check(name: str, fed: torch.Tensor, wanted: torch.Tensor, lengths: dict[str, tuple[int, str]]) -> None:
    """`lengths` are what names of lengths stand for so far, and the input that says so."""
    if fed.numel() and _rank(fed.dtype) > _rank(wanted.dtype):
        _refuse(name, spell(fed), spell(wanted), f"feed an array of {TORCH_DTYPES.get(wanted.dtype, wanted.dtype)}")
    if fed.numel() and _is_integer(wanted.dtype) and _is_integer(fed.dtype):
        limits = torch.iinfo(wanted.dtype)
        for number in (int(fed.min()), int(fed.max())):
            if not limits.min <= number <= limits.max:
                _refuse(name, str(number), spell(wanted), f"feed numbers from {limits.min} to {limits.max}")
    if fed.dim() != wanted.dim():
        _refuse(name, spell(fed), spell(wanted), f"feed an array of {wanted.dim()} dimensions")
    for axis, (length, found) in enumerate(zip(map(length_of, wanted.shape), fed.shape, strict=True)):
        if isinstance(length, int) and length != found:
            remedy = f"feed an array whose dimension {axis} is {length} long"
            if axis == 0 and 0 < found < length and fed.dim() > 1:  # the last piece of data, most likely
                remedy += f"; where that is the batch, as many samples as {length} divides"
            _refuse(name, spell(fed), spell(wanted), remedy)
        if isinstance(length, str) and length.isidentifier():
            known, elsewhere = lengths.setdefault(length, (found, name))
            if known != found:
                _refuse(
                    name, spell(fed), spell(wanted), f"feed {length} = {known} along dimension {axis}, as {elsewhere!r}"
                )


def _refuse(name: str, found: str, wanted: str, remedy: str) -> NoReturn:
    raise InputError(f"input {name!r}: found {found}, wanted {wanted}; {remedy}")


def _rank(dtype: torch.dtype) -> int:
    """A feed may go from an earlier kind of number to a later one, never back."""
    return 0 if dtype is torch.bool else 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1


def _is_integer(dtype: torch.dtype) -> bool:
    return _rank(dtype) == 1


def spell(tensor: torch.Tensor) -> str:
    """Type and shape: "f32[s0,4]"."""
    kind = TORCH_DTYPES.get(tensor.dtype, tensor.dtype)
    return f"{kind}[{','.join(str(length_of(size)) for size in tensor.shape)}]"


def _laid_out(fed: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """A tensor with its axes in memory in the order in which the program was traced: views of it count on that."""
    placed = fed.to(wanted.device)
    strides = wanted.stride()
    if not all(isinstance(one, int) for one in (*strides, *wanted.shape)) or wanted.is_contiguous():
        return placed.contiguous()
    order = sorted(range(wanted.dim()), key=lambda axis: -strides[axis])
    back = [order.index(axis) for axis in range(wanted.dim())]
    return placed.permute(order).contiguous().permute(back)
