"""Times of each node of a model on a target."""

from collections.abc import Mapping, Sequence
from statistics import median

import onnx

from mezzo.contracts.profiles import CastTime, Effort, NodeTimes
from mezzo.onnx.profile.attribution import share_out
from mezzo.onnx.profile.jobs import KernelTime, Timed, Write, time_models
from mezzo.onnx.profile.prepare import Label, Prepared, TimedNode, prepare
from mezzo.onnx.run.feeds import Datum
from mezzo.tables.target import Target

_CONVERSIONS = frozenset({"Cast", "QuantizeLinear", "DequantizeLinear"})


def profile_models(
    models: Sequence[onnx.ModelProto],
    target: Target,
    feeds: Mapping[str, Datum],
    label: Label,
    weights: Mapping[str, float],
    effort: Effort,
    write: Write,
) -> tuple[NodeTimes, ...]:
    """Time the nodes of several models, interleaved. `label` names nodes, `write` saves a model to
    a file. `weights`: shares of nodes in the time of a fused kernel; equal if empty.

    Raises:
        InputError: the runtime is missing, or the feeds do not fit.
        ContractError: the runtime cannot load or run a model.
    """
    prepared = [prepare(model, label) for model in models]
    timed = time_models(
        [copy.model for copy in prepared], target, feeds, effort, profile=True, write=write
    )
    return tuple(
        _node_times(copy, times, weights) for copy, times in zip(prepared, timed, strict=True)
    )


def _node_times(prepared: Prepared, timed: Timed, weights: Mapping[str, float]) -> NodeTimes:
    pieces = prepared.pieces
    heavy = {
        number: weights.get(piece.label, 0.0) if weights else 1.0
        for number, piece in enumerate(pieces)
        if piece.label is not None
    }
    shares = share_out(prepared, timed.kernels, heavy)
    by_node: dict[str, float] = {}
    spreads: dict[str, float] = {}
    casts = []
    for piece, time_ns, spread_ns in zip(pieces, shares.times_ns, shares.spreads_ns, strict=True):
        if piece.label is not None:
            by_node[piece.label] = by_node.get(piece.label, 0.0) + time_ns
            spreads[piece.label] = spreads.get(piece.label, 0.0) + spread_ns
        elif piece.op in _CONVERSIONS:
            source = _source_of(pieces, piece)
            if source is not None:
                label, position = source
                casts.append(
                    CastTime(
                        source=label, position=position, time_ns=time_ns, spread_ns=spread_ns,
                        is_quantizing=piece.op != "Cast",
                    )
                )  # fmt: skip
    return NodeTimes(
        total_ns=median(timed.rounds_ns),
        by_node=by_node,
        spread_ns=spreads,
        casts=tuple(casts),
        mapped_share=shares.mapped_ns / shares.total_ns if shares.total_ns else 1.0,
        kernels_ns=shares.total_ns,
        kernel_runs=_count(timed.kernels),
        between_ns=timed.between_ns,
    )


def _source_of(pieces: Sequence[TimedNode], piece: TimedNode) -> tuple[str, int] | None:
    """Label and output position of a conversion's source; for DequantizeLinear, of its
    QuantizeLinear's. None if the source has no label: a weight, or another conversion.
    """
    read = piece.reads[0]
    if piece.op == "DequantizeLinear":
        if (
            isinstance(read, str)
            or pieces[read[0]].op != "QuantizeLinear"
            or pieces[read[0]].label is not None
        ):
            return None
        read = pieces[read[0]].reads[0]
    producer, position = (read, 0) if isinstance(read, str) else (pieces[read[0]].label, read[1])
    return None if producer is None else (producer, position)


def _count(kernels: Sequence[KernelTime]) -> float:
    return sum(kernel.calls for kernel in kernels)
