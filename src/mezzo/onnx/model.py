"""The ONNX front end of one model: read it as a graph, apply a plan's edits, check the result."""

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from mezzo.common.errors import ModelError
from mezzo.contracts.frontend import Applied, Fault, Frontend, Port, Progress
from mezzo.contracts.plans import Edit
from mezzo.contracts.reading import Reading as AnyReading
from mezzo.formats.dtypes import DType
from mezzo.io.provenance import MAX_BYTES
from mezzo.ir.graph import ConstantFacts, Graph
from mezzo.ir.nodes import Kind
from mezzo.onnx import FRONTEND
from mezzo.onnx.edit import opset as opsets
from mezzo.onnx.edit.apply import apply
from mezzo.onnx.edit.checking import OnnxValidity, Strictness, find_fault, stand
from mezzo.onnx.files.files import ModelSource
from mezzo.onnx.files.magnitudes import facts
from mezzo.onnx.files.runnable_model import RunnableModel, whole_of
from mezzo.onnx.files.save import OnnxStore, file_bytes, materialize
from mezzo.onnx.folder import low_weights, ports_of
from mezzo.onnx.protos.constants import read_constants
from mezzo.onnx.protos.graphs import nodes_of
from mezzo.onnx.protos.metadata import PROVENANCE, put_entry, take_entry
from mezzo.onnx.protos.order import sort_nodes
from mezzo.onnx.read.origins import title_of
from mezzo.onnx.read.read import read
from mezzo.onnx.read.reading import OnnxReading, own
from mezzo.onnx.schema.custom_types import infer_types, lacks_types, state_types
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.schema import find_schema
from mezzo.onnx.schema.shapes import KnownShapes, may_crash, value_sizes
from mezzo.onnx.schema.types import ValueType

_log = logging.getLogger(__name__)

# Inline weights of at most this many bytes are cache keys by their content.
_INLINE_BYTES = 1 << 16


class OnnxModel:
    """An input model. It is never modified: each reading works on a copy without large weights."""

    def __init__(self, source: ModelSource, progress: Progress | None) -> None:
        self.source = source
        self.progress = progress
        self.record = take_entry(source.model, PROVENANCE, MAX_BYTES)  # provenance metadata, if any
        self._facts: dict[bytes, ConstantFacts] = {}
        self._sizes: KnownShapes | None = None
        self._inferred: Mapping[str, ValueType] | None = None
        self._is_sorted = True
        self._peeked: OnnxReading | None = None
        self._may_misstate = False  # whether its opset may show declared shapes to be wrong
        # The last upgrade to a newer opset is cached, as it does not depend on the plan.
        self._raised: tuple[int, onnx.ModelProto, tuple[str, ...]] | None = None
        self._reachable: dict[tuple[int, int], int] = {}
        # The note to the user after a result was checked less strictly than in full.
        self.leniency: str | None = None
        self._may_crash = True  # until the first reading has determined it

    @property
    def frontend(self) -> Frontend:
        return FRONTEND

    @property
    def name(self) -> str:
        return self.source.blobs.name

    @property
    def path(self) -> Path | None:
        """The file that the model was loaded from, if any."""
        return self.source.path

    @property
    def version(self) -> int | None:
        return opsets.default_opset(self.source.model)

    @property
    def size_bytes(self) -> int:
        return self.source.size_bytes

    @property
    def original(self) -> onnx.ModelProto:
        return self.source.model

    @cached_property
    def store(self) -> OnnxStore:
        return OnnxStore(self.source, self.progress)

    def peek(self, *lows: DType) -> OnnxReading:
        """What `read` returns next for these floats."""
        self._peeked = self.read(*lows)
        return self._peeked

    def read(self, *lows: DType, version: int | None = None) -> OnnxReading:
        """Read the model as a graph, at opset `version` if given. Raises ModelError: malformed."""
        peeked = self._peeked
        if peeked is not None and peeked.lows == lows and version in (None, peeked.version):
            self._peeked = None
            return peeked
        original, corrected = self._at(version)
        working = deepcopy(original)
        if not self._is_sorted:
            sort_nodes(working.graph)
        if self._inferred:
            state_types(working, self._inferred)
        if self._sizes is None:
            data = working.SerializeToString()
            self._may_crash = may_crash(working, data)
            self._sizes = value_sizes(working, data, may_crash=self._may_crash)
        try:
            graph, handles = read(working, lows, self._sizes, self._facts_of)
        except ModelError:
            if not self._is_sorted:
                raise
            self._is_sorted = False
            return self.read(*lows, version=version)
        if self._inferred is None and lacks_types(graph):
            self._inferred = infer_types(working, graph)
            return self.read(*lows, version=version)
        opset = opsets.default_opset(working)
        notes = (
            f"the shape that output {name!r} states is wrong, and replaced: opset {opset} shows it"
            for name in corrected
        )
        return OnnxReading(replace(graph, notes=(*graph.notes, *notes)), handles, lows, opset)

    def take_over(self, before: "OnnxModel", reading: OnnxReading) -> None:
        """Know what a reading's model was known by before operators of it were replaced: facts of
        weights, and shapes if all values are among its own.
        """
        self._facts = before._facts
        self._may_misstate = reading.version != self.version
        results = chain.from_iterable(node.output for node in nodes_of(self.source.model))
        if {value.name for value in reading.graph.values}.issuperset(results):
            self._sizes, self._may_crash = before._sizes, before._may_crash

    def _at(self, version: int | None) -> tuple[onnx.ModelProto, tuple[str, ...]]:
        """The model at an opset (shared, read-only), and outputs with corrected shapes."""
        if version in (None, self.version):
            return self.source.model, ()
        if self._raised is None or self._raised[0] != version:
            raised = deepcopy(self.source.model)
            corrected = opsets.set_opset(raised, version)
            self._raised = version, raised, corrected
        return self._raised[1:]

    def _facts_of(self, tensor: onnx.TensorProto) -> ConstantFacts:
        if tensor.ByteSize() > _INLINE_BYTES:
            return facts(tensor, self.source.blobs)
        # The facts of each weight are computed once, however often the model is read.
        key = tensor.SerializeToString(deterministic=True)
        if key not in self._facts:
            self._facts[key] = facts(tensor, self.source.blobs)
        return self._facts[key]

    def operators(self) -> set[tuple[str, str]]:
        """Dialect and name of every operator in the model, subgraphs and functions included."""
        return {
            ("onnx" if node.domain in DEFAULT else node.domain, node.op_type)
            for node in nodes_of(self.source.model)
        }

    def attributes_of(self, op: str) -> Set[str] | None:
        """Attribute names of an operator of the default domain; None for other operators."""
        schema = find_schema("", op, self.version or opsets.newest_opset())
        return None if schema is None else schema.attributes.keys()

    def next_version(
        self, reading: AnyReading, wanted: Mapping[DType, Sequence[int]], limit: int | None
    ) -> int | None:
        """The smallest newer opset that allows the most nodes their dtype, or None."""
        since = reading.version
        if since is None or not any(wanted.values()):
            return None
        steps = since, opsets.newest_within(limit)
        if steps not in self._reachable:
            self._reachable[steps] = opsets.reach(own(reading).handles.model, steps[1])[0]
        reachable = self._reachable[steps]
        best = max(
            opsets.helpful_opset(reading.graph, numbers, low, since, reachable)
            for low, numbers in wanted.items()
        )
        return best if best > since else None

    def obstacle(
        self, reading: AnyReading, wanted: Mapping[DType, Sequence[int]], limit: int | None
    ) -> str | None:
        """A sentence on the first node that blocks an upgrade to a helpful opset, with a remedy;
        None if no upgrade would help or none is blocked.
        """
        if reading.version is None or not any(wanted.values()):
            return None
        newest = opsets.newest_within(limit)
        reached, upgraded = opsets.reach(own(reading).handles.model, newest)
        helpful = {
            low: opsets.helpful_opsets(reading.graph, numbers, low, reached, newest)
            for low, numbers in wanted.items()
        }
        opset = max(
            (opset for opsets_of_level in helpful.values() for opset in opsets_of_level),
            default=None,
        )
        if opset is None or not upgraded.obstacles:
            return None
        count, formats = (
            sum(map(len, helpful.values())),
            " and ".join(str(low) for low in helpful if helpful[low]),
        )
        node, other_count = upgraded.obstacles[0], len(upgraded.obstacles) - 1
        more = f" ({other_count} more cannot either)" if other_count else ""
        nodes = "1 node" if count == 1 else f"{count} nodes"
        return (
            f"opset {opset} is out of reach, which keeps {nodes} out of {formats}: node"
            f" {node.node!r} ({node.op}) cannot go to opset {node.version}, as"
            f" {node.because}{more}; export the model at opset {opset} or newer"
        )

    def least_version(
        self, reading: AnyReading, first: AnyReading, nodes: Mapping[DType, Sequence[int]]
    ) -> int:
        """The smallest opset, from the model's own to that of `reading`, at which nodes of
        `reading` can have the dtypes of `nodes`. `first` is the original model: what is legal there
        needs no upgrade.
        """
        return max(
            self._least_version(reading, first, low, numbers) for low, numbers in nodes.items()
        )

    def _least_version(
        self, reading: AnyReading, first: AnyReading, low: DType, nodes: Sequence[int]
    ) -> int:
        assert self.version is not None, "asked where an opset was raised"
        assert reading.version is not None, "asked where an opset was raised"
        illegal_before, rewritten = [], []
        for number in nodes:
            before = first.graph.by_name.get(reading.graph.nodes[number].name)
            if before is None:
                rewritten.append(number)
            elif low not in first.graph.nodes[before].signature.legal:
                illegal_before.append(number)
        return opsets.smallest_opset(
            reading.graph, illegal_before, rewritten, low, self.version, reading.version
        )

    def weights(
        self, reading: AnyReading, values: Sequence[int]
    ) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """The elements of constants in FP32, one tensor in memory at a time."""
        return read_constants(reading.graph, own(reading).handles, self.source.blobs, values)

    def apply(self, reading: AnyReading, edits: Sequence[Edit]) -> onnx.ModelProto:
        """Apply edits in place to the reading's model. It shares large weights with the source."""
        apply(reading.graph, own(reading).handles, edits, self.source.blobs)
        return own(reading).handles.model

    def unchanged(self, reading: AnyReading) -> onnx.ModelProto:
        """The reading's model without edits."""
        return own(reading).handles.model

    @cached_property
    def standing(self) -> OnnxValidity:
        """The strictest level of ONNX's checker that the original model passes."""
        return stand(self.source, may_crash=self._may_crash)

    def applied(self, reading: AnyReading) -> Applied:
        """Side effects of applying a plan: inserted nodes, a changed node order, and operators that
        became others.
        """
        handles, scopes = own(reading).handles, reading.graph.scopes
        titles = [(scopes[scope].path, title_of(proto)) for scope, proto in handles.made]
        order = None
        if handles.is_resorted:
            graph, _ = read(
                handles.model, reading.lows, self._sizes or KnownShapes({}, {}), self._facts_of
            )
            order = [node.name for node in graph.nodes]
        operators = {
            node.name: proto.op_type
            for node, proto in zip(reading.graph.nodes, handles.protos, strict=True)
            if proto is not None and node.kind is Kind.OP and proto.op_type != node.op
        }
        added = sorted(f"{path}/{title}" if path else title for path, title in titles)
        return Applied(tuple(added), order, operators)

    def note_record(self, model: onnx.ModelProto, text: str) -> None:
        """Store the provenance record in a result's metadata."""
        put_entry(model, PROVENANCE, text)

    def fault(self, graph: Graph, result: onnx.ModelProto) -> Fault | None:
        """The ONNX checker's error for a result, or None; as strict as the original passes."""
        text = self.find_fault(result)
        return None if text is None else Fault(text, suspects(graph, text))

    def find_fault(self, model: onnx.ModelProto) -> str | None:
        """The ONNX checker's message, or None if the model is valid."""
        blobs = self.source.blobs
        # No edit makes it crash.
        fault = find_fault(model, blobs, Strictness.FULL, may_crash=self._may_crash)
        if fault is not None and self._may_misstate:
            opsets.mend_shapes(self.source.model)
            opsets.mend_shapes(model)
            fault = find_fault(model, blobs, Strictness.FULL, may_crash=self._may_crash)
        if fault is None or self.standing.strictness in (None, Strictness.FULL):
            return fault
        self.leniency = self.standing.note
        return find_fault(model, blobs, self.standing.strictness, may_crash=self._may_crash)

    def runnable(self, model: onnx.ModelProto) -> RunnableModel:
        """A result with access to its large weights, which stay in their files, ready to run."""
        return whole_of(model, self.source)

    def materialize(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """A result with all weights inline; the same object if none are in files."""
        return materialize(model, self.source.blobs) if len(self.source.blobs) else model

    def size_of(self, result: onnx.ModelProto) -> int:
        """Size of a result as a file."""
        return file_bytes(result, self.source)

    def ports(self, result: onnx.ModelProto | None = None) -> tuple[Port, ...]:
        """Inputs and outputs that are tensors of a known type, of the model or of a result."""
        return ports_of(self.source.model if result is None else result)

    def low_weights(self) -> DType | None:
        """The low-precision dtype of most weights; None if none exceeds FP32."""
        return low_weights(self.source.model)

    def show(self) -> str:
        """The model as typed text."""
        from mezzo.onnx.read.show import show_model

        return show_model(self.source.model)


def suspects(graph: Graph, fault: str) -> set[int]:
    """Ids of the nodes that a checker's message names, by node name or else by operator type."""
    ops = [
        node for node in graph.nodes if node.kind is Kind.OP and node.signature.dtype is not None
    ]
    named = {node.id for node in ops if len(node.name) > 2 and node.name in fault}
    return named or {
        node.id
        for node in ops
        if f"{node.op})" in fault or f"op_type:{node.op}," in fault or f"({node.op}" in fault
    }
