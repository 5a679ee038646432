"""Norm fusions of ONNX Runtime's CUDA provider, which absorb Casts at their border.

They are looser than the fusion patterns: a scale may be computed, and nodes that a pattern assigned
to another unit are fused too. LayerNormFusion runs first; SimplifiedLayerNormFusion may then fuse
the remaining nodes without the mean. A multiplication by 1 / root is first rewritten as a division
(DivMulFusion); one by a Reciprocal is matched by LayerNormFusion on some machines.

Source: ONNX Runtime 1.31.1, layer_norm_fusion.cc, and the kernels of
contrib_ops/cuda/layer_norm.cc: input and scale are both FP32, both BF16, or any combination of FP32
and FP16; for SkipLayerNormalization, which also includes the addition before the norm, all have one
type.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mezzo.analysis.fusion.joins import Join, join_of
from mezzo.analysis.fusion.view import FusionView
from mezzo.formats.dtypes import HALF_FORMATS
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Function


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """The common part of both fusions, each node the sole reader of the one before: square, mean,
    epsilon, root, optional reciprocal, quotient and scale.
    """

    power: Node
    mean: Node
    others: tuple[Node, ...]
    quotient: Node
    scaled: Node

    @property
    def core(self) -> tuple[Node, ...]:
        return self.power, self.mean, *self.others, self.quotient


def joined_norms(view: FusionView) -> tuple[Join, ...]:
    """All norms that either fusion may match."""
    return tuple(_joins(view))


def _joins(view: FusionView) -> Iterator[Join]:
    for root in view.graph.nodes:
        chain = _chain(view, root) if view.op(root) == "Sqrt" and view.is_float(root) else None
        if chain is None or _rank(view, chain.scaled, chain.quotient) not in (None, 1):
            continue
        differences = _differences(view, chain)
        if differences is None:
            base = chain.power.inputs[0]
            if base is not None and any(view.same(base, value) for value in chain.quotient.inputs):
                yield _join(view, base, chain.core, [chain.scaled], is_certain=True)
            continue
        mean = view.maker(differences[0], 1)
        value = differences[0].inputs[0]
        assert mean is not None, "a difference from a mean has one"
        assert value is not None, "a difference has two operands"
        core = (mean, *differences, *chain.core)
        shift = view.sole_reader(chain.scaled)
        ranks = (
            _rank(view, chain.scaled, chain.quotient),
            None if shift is None else _rank(view, shift, chain.scaled),
        )
        if shift is None or view.op(shift) != "Add" or ranks[1] not in (None, 1):
            # The mean is not fused; the kernel's input is the difference.
            yield _join(view, None, core, [chain.scaled], is_certain=True)
            continue
        is_certain = (
            ranks == (1, 1)
            and view.reduced_axes(mean) == view.reduced_axes(chain.mean) == (-1,)
            and {reader.id for reader, _ in _reading(view, mean)}
            == {node.id for node in differences}
            and {reader.id for node in differences for reader, _ in _reading(view, node)}
            == {chain.power.id, chain.quotient.id}
        )
        yield _join(view, value, core, [chain.scaled, shift], is_certain=is_certain)


def _join(
    view: FusionView,
    value: int | None,
    core: Sequence[Node],
    tail: Sequence[Node],
    *,
    is_certain: bool,
) -> Join:
    return join_of(view, value, core, tail, formats=HALF_FORMATS, is_certain=is_certain)


def _chain(view: FusionView, root: Node) -> _Chain | None:
    shifted = _made_by(view, root, "Add")
    mean = None if shifted is None else _made_by(view, shifted, "ReduceMean")
    power = None if mean is None else view.maker(mean, 0)
    if shifted is None or mean is None or power is None or view.op(power) != "Pow":
        return None
    if any(
        view.sole_reader(node) is not reader
        for node, reader in ((shifted, root), (mean, shifted), (power, mean))
    ):
        return None
    quotient, others = view.sole_reader(root), [shifted, root]
    if quotient is not None and (
        view.op(quotient) == "Reciprocal" or view.number(quotient, 0) == 1.0
    ):
        others.append(quotient)
        quotient = view.sole_reader(quotient)
    scaled = None if quotient is None else view.sole_reader(quotient)
    if quotient is None or scaled is None or view.op(scaled) != "Mul":
        return None
    if view.op(quotient) != ("Mul" if others[-1] is not root else "Div"):
        return None
    return _Chain(power=power, mean=mean, others=tuple(others), quotient=quotient, scaled=scaled)


def _made_by(view: FusionView, node: Node, op: str) -> Node | None:
    """The producer of one of a node's operands that has this operator name; else None."""
    return next((maker for maker in view.makers(node) if view.op(maker) == op), None)


def _differences(view: FusionView, chain: _Chain) -> tuple[Node, ...] | None:
    """The subtractions of the mean before the square and the division, a single node if shared;
    None if there are none or they differ.
    """
    squared, divided = view.maker(chain.power, 0), _made_by(view, chain.quotient, "Sub")
    if squared is None or divided is None or view.op(squared) != "Sub":
        return None
    for node in (squared, divided):
        mean = view.maker(node, 1)
        if (
            mean is None
            or view.function(mean) is not Function.MEAN
            or not view.same(mean.inputs[0], node.inputs[0])
        ):
            return None
    are_alike = view.same(squared.inputs[0], divided.inputs[0]) and view.same(
        squared.inputs[1], divided.inputs[1]
    )
    if not are_alike:
        return None
    return (squared,) if squared.id == divided.id else (squared, divided)


def _rank(view: FusionView, node: Node, behind: Node) -> int | None:
    """Rank of the operand that `behind` does not produce; None if unknown."""
    operand = next((k for k in range(len(node.inputs)) if view.maker(node, k) is not behind), None)
    shape = None if operand is None else view.shape(node, operand)
    return None if shape is None else len(shape)


def _reading(view: FusionView, node: Node) -> tuple[tuple[Node, int], ...]:
    return () if node.outputs[0] is None else view.readers(node.outputs[0])
