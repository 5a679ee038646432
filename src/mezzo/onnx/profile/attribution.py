"""Which nodes of a model each of a runtime's kernels stands for, and so what each node takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mezzo.onnx.profile.jobs import Kernel
from mezzo.onnx.profile.prepare import Prepared, bodies_of

# What runtimes put in between to change a type or a layout. It bears the name of a value that it did not compute.
_INSERTED = frozenset({"Cast", "Convert", "Reorder", "ReorderInput", "ReorderOutput", "Transpose"})


@dataclass(frozen=True, slots=True)
class Shares:
    """Time and spread in ns per node by number. `mapped_ns`: what came from kernels that could be told apart."""

    times_ns: tuple[float, ...]
    spreads_ns: tuple[float, ...]
    mapped_ns: float
    total_ns: float


def share_out(prepared: Prepared, kernels: Sequence[Kernel], weights: Mapping[int, float]) -> Shares:
    """Give each kernel's time to its nodes, by weight where it has several; the rest goes to all by weight."""
    size = len(prepared.pieces)
    times, spreads = [0.0] * size, [0.0] * size
    mapped = total = 0.0
    everyone = tuple(sorted(weights))
    for kernel, group in zip(kernels, groups_of(prepared, kernels), strict=True):
        total += kernel.time_ns
        mapped += kernel.time_ns if group else 0.0
        members = group or everyone
        wanted = [weights.get(number, 0.0) for number in members]
        whole = sum(wanted)
        for number, weight in zip(members, wanted, strict=True):
            share = weight / whole if whole else 1.0 / len(members)
            times[number] += share * kernel.time_ns
            spreads[number] += share * kernel.spread_ns
    return Shares(tuple(times), tuple(spreads), mapped, total)


def groups_of(prepared: Prepared, kernels: Sequence[Kernel]) -> list[tuple[int, ...]]:
    """The nodes of each kernel by number; empty where nothing tells.

    A kernel's names and the values it makes say where it begins and ends; what lies between, and is in no other kernel,
    is in this one. A kernel that was inserted belongs to what reads it, as that is what asked for it.
    """
    anchors = [_anchors(prepared, kernel) if kernel.calls else set() for kernel in kernels]
    known: set[int] = set()
    for kernel, found in zip(kernels, anchors, strict=True):
        parts = [name for name in kernel.names if "/" in name and not kernel.makes]
        known |= found - set().union(*map(prepared.numbers_in, parts)) if parts else found
    bodies = bodies_of(prepared.pieces)
    claimed = set(known)
    groups = [_fill(prepared, found, claimed, bodies) for found in anchors]
    for number in reversed(range(len(kernels))):
        if not groups[number]:
            groups[number] = next((groups[reader] for reader in kernels[number].feeds if groups[reader]), ())
    for number, kernel in enumerate(kernels):
        for reader in kernel.feeds:
            if not groups[reader]:
                groups[reader] = groups[number]
    return groups


def _anchors(prepared: Prepared, kernel: Kernel) -> set[int]:
    named: set[int] = set().union(*map(prepared.numbers_in, kernel.names)) if kernel.names else set()
    numbers: set[int] = set().union(*map(prepared.numbers_in, kernel.makes)) if kernel.makes else set()
    if kernel.op in _INSERTED and not any(map(prepared.is_node, kernel.names)):
        exact = [name for name in (*kernel.makes, *kernel.names) if prepared.is_value(name)]
        return set().union(*map(prepared.numbers_in, exact)) if exact else set()
    return named | numbers


def _fill(
    prepared: Prepared, anchors: set[int], claimed: set[int], bodies: Mapping[int, Sequence[int]]
) -> tuple[int, ...]:
    """The anchors, the nodes before them that no other kernel has, and the bodies of control nodes among them."""
    members, open_ = set(anchors), list(anchors)
    while open_:
        number = open_.pop()
        before = [read[0] for read in prepared.pieces[number].reads if not isinstance(read, str)]
        for other in (*before, *bodies.get(number, ())):
            if other not in claimed:
                claimed.add(other)
                members.add(other)
                open_.append(other)
    return tuple(sorted(members))
