"""The front end's verbs: open a model, read it as a graph, apply edits, verify, write."""

import logging
import os
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from mezzo.core.graph import ConstantFacts, Graph, Kind
from mezzo.core.plans import Edit
from mezzo.dtypes import DType
from mezzo.errors import ContractError, InputError, ModelError
from mezzo.files.provenance import MAX_BYTES
from mezzo.frontends.onnx import opset as opsets
from mezzo.frontends.onnx.apply import apply
from mezzo.frontends.onnx.blobs import EXTERNAL
from mezzo.frontends.onnx.checking import Standing, Strictness, find_fault, stand
from mezzo.frontends.onnx.expansion import check_expansion
from mezzo.frontends.onnx.files import Source, from_proto, load
from mezzo.frontends.onnx.handles import Handles
from mezzo.frontends.onnx.magnitudes import facts
from mezzo.frontends.onnx.metadata import PROVENANCE, put_entry, take_entry
from mezzo.frontends.onnx.order import sort_nodes
from mezzo.frontends.onnx.origins import title_of
from mezzo.frontends.onnx.read import read
from mezzo.frontends.onnx.save import DATA_SUFFIX, materialize, save
from mezzo.frontends.onnx.schema import find_schema
from mezzo.frontends.onnx.shapes import Sizes, all_nodes, may_crash, value_sizes

if TYPE_CHECKING:
    import onnx_ir

_log = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Reading:
    """A graph and its handles, good for one application, as read for the dtype `low`. `opset` is the default
    domain's.
    """

    graph: Graph
    handles: Handles
    low: DType
    opset: int | None


class OnnxModel:
    """A model that came in. It is never changed; every reading works on a copy without large weights."""

    def __init__(self, source: Source, progress: Progress | None) -> None:
        self.source = source
        self.progress = progress
        self.record = take_entry(source.model, PROVENANCE, MAX_BYTES)  # how it was made, if it says so
        self.data_suffix = _data_suffix(source)  # ends the name of a result's external data
        self._facts: dict[bytes, ConstantFacts] = {}
        self._sizes: Sizes | None = None
        self._is_sorted = True
        # What to tell the user once a result was held to less than the full check.
        self.leniency: str | None = None
        self._may_crash = True  # until the first reading has looked

    @property
    def opset(self) -> int | None:
        return opsets.default_opset(self.source.model)

    def read(self, low: DType, opset: int | None = None) -> Reading:
        """Read the model as a graph, at a newer opset if asked. Raises ModelError: it has no sound structure."""
        working = onnx.ModelProto()
        working.CopyFrom(self.source.model)
        if opset is not None and opset != self.opset:
            opsets.set_opset(working, opset)
        if not self._is_sorted:
            sort_nodes(working.graph)
        if self._sizes is None:
            data = working.SerializeToString()
            self._may_crash = may_crash(data)
            self._sizes = value_sizes(working, data, may_crash=self._may_crash)
        try:
            graph, handles = read(working, low, self._sizes, self._facts_of)
        except ModelError:
            if not self._is_sorted:
                raise
            self._is_sorted = False
            return self.read(low, opset)
        return Reading(graph, handles, low, opsets.default_opset(working))

    def _facts_of(self, tensor: onnx.TensorProto) -> ConstantFacts:
        if tensor.data_location != EXTERNAL:
            return facts(tensor, self.source.blobs)
        # A large weight is read once, however often the model is.
        key = tensor.SerializeToString(deterministic=True)
        if key not in self._facts:
            self._facts[key] = facts(tensor, self.source.blobs)
        return self._facts[key]

    def operators(self) -> set[tuple[str, str]]:
        """Domain and name of every operator in the model, bodies and functions included."""
        owners = (self.source.model.graph, *self.source.model.functions)
        return {(node.domain, node.op_type) for owner in owners for node in all_nodes(owner)}

    def attributes_of(self, op: str) -> Set[str] | None:
        """Names of the attributes that an operator of the default domain has; None for other operators."""
        schema = find_schema("", op, self.opset or opsets.newest_opset())
        return None if schema is None else schema.attributes.keys()

    def node_names(self) -> Set[str]:
        """Names of nodes as plans spell them."""
        return self.read(DType.FLOAT16).graph.by_name.keys()

    def helpful_opset(self, reading: Reading, wanted: Sequence[int], low: DType, limit: int | None) -> int | None:
        """Smallest opset step that lets the wanted nodes run low; None where none helps."""
        since = reading.opset
        if since is None or not wanted:
            return None
        newest = opsets.newest_opset() if limit is None else min(limit, opsets.newest_opset())
        reachable = opsets.reachable_opset(reading.handles.model, newest)
        best = opsets.helpful_opset(reading.graph, wanted, low, since, reachable)
        return best if best > since else None

    def smallest_opset(self, reading: Reading, first: Reading, nodes: Sequence[int]) -> int:
        """The smallest opset, from the model's own to that of `reading`, that lets nodes of it run low. `first` is the
        model as it came: what is legal there needs no step.
        """
        assert self.opset is not None, "asked where an opset was raised"
        assert reading.opset is not None, "asked where an opset was raised"
        held, rewritten = [], []
        for number in nodes:
            before = first.graph.by_name.get(reading.graph.nodes[number].name)
            if before is None:
                rewritten.append(number)
            elif reading.low not in first.graph.nodes[before].signature.legal:
                held.append(number)
        return opsets.smallest_opset(reading.graph, held, rewritten, reading.low, self.opset, reading.opset)

    def apply(self, reading: Reading, edits: Sequence[Edit]) -> onnx.ModelProto:
        """Carry edits out. The result shares large weights with the source until it is written."""
        apply(reading.graph, reading.handles, edits, self.source.blobs)
        return reading.handles.model

    @cached_property
    def standing(self) -> Standing:
        """How much of ONNX's full check the model passes as it came."""
        return stand(self.source.model, self.source.blobs, may_crash=self._may_crash)

    def added(self, reading: Reading) -> tuple[str, ...]:
        """Names, as a plan spells them, of the operators that an application has put in beside its Casts."""
        scopes = reading.graph.scopes
        titles = [(scopes[scope].path, title_of(proto)) for scope, proto in reading.handles.made]
        return tuple(sorted(f"{path}/{title}" if path else title for path, title in titles))

    def order_of(self, reading: Reading, low: DType) -> list[str]:
        """Names of the nodes of a result, in its own order."""
        graph, _ = read(reading.handles.model, low, self._sizes or Sizes({}, {}), self._facts_of)
        return [node.name for node in graph.nodes]

    def note_record(self, model: onnx.ModelProto, text: str) -> None:
        """Let a result say how it was made."""
        put_entry(model, PROVENANCE, text)

    def fault(self, model: onnx.ModelProto) -> str | None:
        """What the ONNX checker has against a result; None if nothing. It is held to what the model itself passes."""
        blobs = self.source.blobs
        found = find_fault(model, blobs, Strictness.FULL, may_crash=self._may_crash)  # mezzo adds no such operator
        if found is None or self.standing.strictness in (None, Strictness.FULL):
            return found
        self.leniency = self.standing.note
        return find_fault(model, blobs, self.standing.strictness, may_crash=self._may_crash)

    def check_part(self, model: onnx.ModelProto) -> None:
        """Raise ContractError where the checker faults a part of the model as a model of its own."""
        found = self.fault(model)
        if found is not None:
            raise ContractError(f"the part would be no valid model: {found}; take a larger part")

    def write(self, model: onnx.ModelProto, dst: str | os.PathLike[str], *, overwrite: bool) -> int:
        """Write a result, atomically. Returns its size in bytes, external data included."""
        progress = None if self.progress is None else partial(self.progress, "writing")
        saved = save(model, self.source, dst, overwrite=overwrite, data_suffix=self.data_suffix, progress=progress)
        return saved.size_bytes

    def materialize(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """A result with all its weights; the result itself where none are in files."""
        return materialize(model, self.source.blobs) if len(self.source.blobs) else model


def open_model(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    *,
    trust_external_paths: bool = False,
    progress: Progress | None = None,
) -> OnnxModel:
    """Open a path, a ModelProto or an onnx_ir.Model.

    Raises:
        InputError: it is none of these, or cannot be read.
        ModelError: it is damaged, names data outside its folder, or has functions without end.
    """
    if isinstance(src, str | os.PathLike):
        source = load(Path(src), trust_external_paths=trust_external_paths)
    elif isinstance(src, onnx.ModelProto):
        source = from_proto(src)
    elif type(src).__module__.partition(".")[0] == "onnx_ir":
        import onnx_ir

        source = from_proto(onnx_ir.to_proto(src))
    else:
        raise InputError(f"source is a {type(src).__name__}, wanted a path, an onnx.ModelProto or an onnx_ir.Model")
    check_expansion(source.model)  # before onnx's own inference, which follows every call
    return OnnxModel(source, progress)


def _data_suffix(source: Source) -> str:
    """Name a result's data as the source's is named: Hugging Face's tools look for model.onnx_data."""
    named = {os.path.basename(file.path) for file in source.files[1:]}
    return "_data" if source.path is not None and f"{source.path.name}_data" in named else DATA_SUFFIX


def load_result(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Read a result back whole, external data included."""
    return onnx.load(os.fspath(path))


def suspects(graph: Graph, fault: str) -> set[int]:
    """Nodes that a checker's message names, by node name or by operator."""
    ops = [node for node in graph.nodes if node.kind is Kind.OP and node.signature.dtype is not None]
    named = {node.id for node in ops if len(node.name) > 2 and node.name in fault}
    return named or {
        node.id for node in ops if f"{node.op})" in fault or f"op_type:{node.op}," in fault or f"({node.op}" in fault
    }
