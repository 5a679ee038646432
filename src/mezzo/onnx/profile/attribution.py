"""Attribution of a runtime's kernel times to the nodes of a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mezzo.onnx.profile.jobs import KernelTime
from mezzo.onnx.profile.prepare import Prepared, bodies_of

# Kernels that runtimes insert to change a type or a layout. They have the name of another kernel's
# value.
_INSERTED = frozenset({"Cast", "Convert", "Reorder", "ReorderInput", "ReorderOutput", "Transpose"})


@dataclass(frozen=True, slots=True)
class Shares:
    """Time and spread in ns by node number. `mapped_ns`: time of kernels with known nodes."""

    times_ns: tuple[float, ...]
    spreads_ns: tuple[float, ...]
    mapped_ns: float
    total_ns: float


def share_out(
    prepared: Prepared, kernels: Sequence[KernelTime], weights: Mapping[int, float]
) -> Shares:
    """Divide each kernel's time among its nodes by weight, or among all nodes if it has none."""
    size = len(prepared.pieces)
    times, spreads = [0.0] * size, [0.0] * size
    mapped = total = 0.0
    all_numbers = tuple(sorted(weights))
    for kernel, group in zip(kernels, groups_of(prepared, kernels), strict=True):
        total += kernel.time_ns
        mapped += kernel.time_ns if group else 0.0
        members = group or all_numbers
        member_weights = [weights.get(number, 0.0) for number in members]
        weight_sum = sum(member_weights)
        for number, weight in zip(members, member_weights, strict=True):
            share = weight / weight_sum if weight_sum else 1.0 / len(members)
            times[number] += share * kernel.time_ns
            spreads[number] += share * kernel.spread_ns
    return Shares(tuple(times), tuple(spreads), mapped, total)


def groups_of(prepared: Prepared, kernels: Sequence[KernelTime]) -> list[tuple[int, ...]]:
    """The node numbers of each kernel; empty if they cannot be identified.

    A kernel's names and output values identify nodes at its ends (anchors); nodes between them that
    no other kernel has belong to it. An inserted kernel belongs to its consumer, which required it.
    """
    anchors = [_anchors(prepared, kernel) if kernel.calls else set() for kernel in kernels]
    identified: set[int] = set()
    for kernel, anchor in zip(kernels, anchors, strict=True):
        parts = [name for name in kernel.names if "/" in name and not kernel.makes]
        identified |= anchor - set().union(*map(prepared.numbers_in, parts)) if parts else anchor
    bodies = bodies_of(prepared.pieces)
    claimed = set(identified)
    groups = [_fill(prepared, anchor, claimed, bodies) for anchor in anchors]
    for number in reversed(range(len(kernels))):
        if not groups[number]:
            groups[number] = next(
                (groups[reader] for reader in kernels[number].feeds if groups[reader]), ()
            )
    for number, kernel in enumerate(kernels):
        for reader in kernel.feeds:
            if not groups[reader]:
                groups[reader] = groups[number]
    return groups


def _anchors(prepared: Prepared, kernel: KernelTime) -> set[int]:
    named: set[int] = (
        set().union(*map(prepared.numbers_in, kernel.names)) if kernel.names else set()
    )
    numbers: set[int] = (
        set().union(*map(prepared.numbers_in, kernel.makes)) if kernel.makes else set()
    )
    if kernel.op in _INSERTED and not any(map(prepared.is_node, kernel.names)):
        exact = [name for name in (*kernel.makes, *kernel.names) if prepared.is_value(name)]
        return set().union(*map(prepared.numbers_in, exact)) if exact else set()
    return named | numbers


def _fill(
    prepared: Prepared, anchors: set[int], claimed: set[int], bodies: Mapping[int, Sequence[int]]
) -> tuple[int, ...]:
    """The anchors, unclaimed nodes that they depend on, and the subgraphs of control-flow nodes."""
    members, pending = set(anchors), list(anchors)
    while pending:
        number = pending.pop()
        before = [read[0] for read in prepared.pieces[number].reads if not isinstance(read, str)]
        for dependency in (*before, *bodies.get(number, ())):
            if dependency not in claimed:
                claimed.add(dependency)
                members.add(dependency)
                pending.append(dependency)
    return tuple(sorted(members))
