"""Difference of two plans: settings, nodes by precision and reason, and casts."""

import enum
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.formats.block_storage import BlockForm
from mezzo.formats.dtypes import DType
from mezzo.report.layout.numbers import spell_count


class Change(enum.Enum):
    """Kind of difference of a node, the most important first."""

    PRECISION = "precision"
    REASON = "reason"  # the same precision by another rule or evidence
    ONLY_FIRST = "only in the first"
    ONLY_SECOND = "only in the second"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """A node that differs; a side is None if its plan lacks the node."""

    name: str
    change: Change
    first: PlannedNode | None
    second: PlannedNode | None


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting that differs, as text; None if a plan lacks it."""

    name: str
    first: str | None
    second: str | None


class NamedCast(NamedTuple):
    """A cast of a plan: the value's name and the target dtype."""

    value: str
    to: DType


_Casts = Iterable[tuple[str, DType]]


@dataclass(frozen=True, slots=True)
class CastsDifference:
    """Casts in only one of the plans, and the number of casts in each."""

    first: int
    second: int
    only_first: tuple[NamedCast, ...]
    only_second: tuple[NamedCast, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDifference:
    """All differences of two plans, in the first's order; `casts` is None without a model.

    `parameters`: of integers, by value or node: scales, dynamic quantization, corrections, blocks.
    """

    is_same_model: bool
    settings: tuple[SettingDifference, ...]
    nodes: tuple[NodeDifference, ...]
    limits: tuple[SettingDifference, ...]
    parameters: tuple[SettingDifference, ...]
    casts: CastsDifference | None

    @property
    def is_same(self) -> bool:
        """Whether both plans decide the same for the same model, for the same reasons."""
        casts = self.casts
        differ_casts = casts is not None and bool(casts.only_first or casts.only_second)
        return self.is_same_model and not (
            self.settings or self.nodes or self.limits or self.parameters or differ_casts
        )


def compare_plans(
    first: Plan, second: Plan, casts: tuple[_Casts, _Casts] | None = None
) -> PlanDifference:
    """The differences between two plans. `casts` are each plan's, as plans do not list them."""
    return PlanDifference(
        is_same_model=first.fingerprint == second.fingerprint,
        settings=_named_differences(
            (*_general(first), *first.settings), (*_general(second), *second.settings)
        ),
        nodes=_node_differences(first, second),
        limits=_named_differences(_spell_limits(first), _spell_limits(second)),
        parameters=_named_differences(_spell_parameters(first), _spell_parameters(second)),
        casts=None if casts is None else _casts_difference(*casts),
    )


def _general(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Properties outside the settings: low precision or levels, dialect, and raised version."""
    is_pair = len(plan.lows) == 1
    line = (
        ("low precision", str(plan.low))
        if is_pair
        else ("levels", ", ".join(map(str, plan.line.dtypes)))
    )
    raised = () if plan.version is None else (("raised version", str(plan.version)),)
    return line, ("dialect", plan.dialect), *raised


def _spell_limits(plan: Plan) -> tuple[tuple[str, str], ...]:
    return tuple((name, repr(limit)) for name, limit in plan.limits)


def _spell_parameters(plan: Plan) -> Iterator[tuple[str, str]]:
    """What a plan has beside its nodes for integers, by value or node; many numbers as a digest."""
    for name, how in plan.quantized:
        if how.axis is None and not how.turned:
            yield name, f"{how.dtype}, scale {how.scales[0]!r}, zero point {how.zero_points[0]}"
        else:
            yield name, f"{how.dtype}, {spell_count(len(how.scales), 'scale')}, {_digest(how)}"
    for name in plan.dynamic:
        yield name, "quantized dynamically"
    for correction in plan.corrected:
        yield f"{correction.value} before quantization", f"changed, {_digest(correction)}"
    for scaled in plan.scaled:
        yield scaled.value, f"stored times 2^{-scaled.exponent}"
    for name, storage in plan.in_blocks:
        signs = "symmetric" if storage.is_symmetric else "asymmetric"
        form = "" if storage.form is BlockForm.DEQUANTIZE else f", {storage.form.value}"
        form += f", accuracy level {storage.accuracy_level}" if storage.accuracy_level else ""
        if storage.activation_block:
            form += f", activations rounded in blocks of {storage.activation_block}"
        yield (
            name,
            f"{storage.bits} bits, blocks of {storage.block} along axis {storage.axis}, {signs},"
            f" {storage.scale_dtype} scales, {storage.rounding}{form}",
        )
    for name, dtype in plan.stored_floats:
        yield name, f"stored in {dtype}"
    if plan.rounded is not None:
        yield "weights rounded on data", f"SHA-256 {plan.rounded.sha256[:8]}"


def _digest(record: object) -> str:
    return hashlib.sha256(repr(record).encode()).hexdigest()[:8]


def _named_differences(
    first: Iterable[tuple[str, str]], second: Iterable[tuple[str, str]]
) -> tuple[SettingDifference, ...]:
    before, after = dict(first), dict(second)
    return tuple(
        SettingDifference(name, before.get(name), after.get(name))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )


def _node_differences(first: Plan, second: Plan) -> tuple[NodeDifference, ...]:
    differences = []
    for node in first.nodes:
        counterpart = second.by_name.get(node.name)
        if counterpart is None:
            differences.append(NodeDifference(node.name, Change.ONLY_FIRST, node, None))
        elif counterpart.precision != node.precision:
            differences.append(NodeDifference(node.name, Change.PRECISION, node, counterpart))
        elif counterpart != node:
            differences.append(NodeDifference(node.name, Change.REASON, node, counterpart))
    for node in second.nodes:
        if node.name not in first.by_name:
            differences.append(NodeDifference(node.name, Change.ONLY_SECOND, None, node))
    return tuple(differences)


def _casts_difference(first: _Casts, second: _Casts) -> CastsDifference:
    before = dict.fromkeys(NamedCast(*cast) for cast in first)
    after = dict.fromkeys(NamedCast(*cast) for cast in second)
    return CastsDifference(
        len(before),
        len(after),
        tuple(cast for cast in before if cast not in after),
        tuple(cast for cast in after if cast not in before),
    )
