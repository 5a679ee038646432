"""Data for one model: names, shapes and types are checked against its inputs, and errors say which file is at fault."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mezzo.errors import InputError
from mezzo.frontends.onnx.feeds import fit_feeds, retype
from mezzo.frontends.onnx.model import OnnxModel
from mezzo.numerics.datasets import Batch, Data, Dataset, open_data

if TYPE_CHECKING:
    import onnx


def open_model_data(
    model: "onnx.ModelProto | OnnxModel", data: Data, *, labels: Sequence[str] = (), batch_size: int | None = None
) -> Dataset:
    """Open data to feed a model with. Inputs with a default may be absent; those of an optional type are then empty.

    Where the model fixes the first length of its inputs and no `batch_size` is given, data that is longer is split
    into batches of it. Arrays come as they are in the data; running the model rounds them to its types.

    Raises:
        InputError: there is no such data or its names are wrong; while iterating: a type or shape is.
    """
    proto = model.source.model if isinstance(model, OnnxModel) else model
    ports, defaults = list(proto.graph.input), _defaults(proto)
    empty = {port.name: None for port in ports if port.type.HasField("optional_type") and port.name not in defaults}
    opened = open_data(
        data,
        [port.name for port in ports],
        labels=labels,
        batch_size=fixed_length(proto) if batch_size is None else batch_size,
        optional=defaults | empty.keys(),
    )

    def start() -> Iterator[Batch]:
        for batch in opened:
            fed = replace(batch, feeds={**empty, **batch.feeds})
            try:
                fit_feeds(fed.feeds, ports, defaults)
            except InputError as error:
                raise InputError(f"{batch.origin}: {error}") from error
            yield fed

    return Dataset(opened.name, start)


def typed_feeds(ports: "Iterable[onnx.ValueInfoProto]", feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Feeds that fit, as the model takes them: what its types cannot hold is infinite there."""
    types = {port.name: port.type for port in ports}
    return {name: retype(feed, types[name]) for name, feed in feeds.items() if name in types}


def fixed_length(model: "onnx.ModelProto") -> int | None:
    """The first length that every input fixes alike, scalars left out; None if one does not."""
    lengths, defaults = set(), _defaults(model)
    for port in model.graph.input:
        if port.name in defaults:
            continue
        tensor = port.type.tensor_type
        if not port.type.HasField("tensor_type") or not tensor.HasField("shape"):
            return None
        if tensor.shape.dim:
            lengths.add(tensor.shape.dim[0].dim_value)
    return lengths.pop() if len(lengths) == 1 and min(lengths) > 0 else None


def _defaults(model: "onnx.ModelProto") -> frozenset[str]:
    """Names that have a value without being fed."""
    graph = model.graph
    return frozenset(
        [*(tensor.name for tensor in graph.initializer), *(s.values.name for s in graph.sparse_initializer)]
    )
