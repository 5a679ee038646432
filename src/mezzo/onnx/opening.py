"""Opening of ONNX models from a path, a ModelProto or an onnx_ir.Model."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.corrections import Correction
from mezzo.contracts.frontend import Progress
from mezzo.contracts.plans import Rescaling
from mezzo.contracts.reading import Extract
from mezzo.contracts.reading import Reading as AnyReading
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.onnx.edit.correcting import correct, exchange
from mezzo.onnx.edit.opset import check_opsets, newest_opset, upgrade_in_place
from mezzo.onnx.edit.replacements import write_replacements
from mezzo.onnx.edit.rescaling import rescale
from mezzo.onnx.files.files import ModelSource, from_proto, load
from mezzo.onnx.files.runnable_model import RunnableModel
from mezzo.onnx.model import OnnxModel
from mezzo.onnx.normal_form.widening import find_obstacle, widen
from mezzo.onnx.protos.expansion import check_expansion
from mezzo.onnx.protos.graphs import all_nodes
from mezzo.onnx.read.reading import own
from mezzo.onnx.run.extraction import extract_nodes
from mezzo.tables.target import Respelling

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import onnx_ir

    from mezzo.contracts.replacements import Replacement
    from mezzo.contracts.sequences.sequence_lab import SequenceLab
    from mezzo.formats.weight_grid import GridElements


class Opened(OnnxModel):
    """An opened model with its lab, rewrites and extraction. `given` is the original of a rewritten
    model, else the model itself.
    """

    def __init__(
        self, source: ModelSource, progress: Progress | None, given: "Opened | None" = None
    ) -> None:
        super().__init__(source, progress)
        self._given = given
        if given is not None:
            self.record = given.record

    @property
    def given(self) -> "Opened":
        return self._given or self

    @property
    def path(self) -> Path | None:
        return super().path if self.given is self else None

    def widening_obstacle(self) -> str | None:
        """A sentence on the node for which `widened` does not convert the model, or None."""
        return find_obstacle(self.source.model)

    def widened(self, ports: Collection[str] = ()) -> "Opened":
        """The model converted to FP32 if it is in FP16 or BF16, else itself."""
        source = widen(self.source, ports)
        return self if source is None else Opened(source, self.progress, self.given)

    def fused(
        self,
        reading: AnyReading,
        apart: Sequence[int],
        copied: float = 1.0,
        respellings: Sequence[Respelling] = (),
    ) -> "Opened":
        """The model in normal form, with affine operators folded; `apart` are nodes to keep."""
        from mezzo.onnx.normal_form.folding import fold

        nodes, values = reading.graph.nodes, reading.graph.values
        kept_results = {
            values[value].name
            for node in apart
            for value in nodes[node].outputs
            if value is not None
        }
        source = fold(self.source, kept_results, copied, respellings)
        return self if source is None else Opened(source, self.progress, self.given)

    def replaced(
        self,
        result: onnx.ModelProto,
        lows: "Sequence[DType]",
        find: "Callable[[Graph], Sequence[Replacement]]",
    ) -> onnx.ModelProto:
        """A result in which one operator replaces each group of nodes that `find` returns."""
        reading = Opened(replace(self.source, model=result), None).read(*lows)
        return write_replacements(reading, find(reading.graph), self.source.blobs)

    def has_operators(self, names: Set[str]) -> bool:
        """Whether some node is an operator of these names."""
        return any(node.op_type in names for node in all_nodes(self.source.model.graph))

    def raised(
        self, reading: AnyReading, replacements: "Sequence[Replacement]", version: int
    ) -> "Opened | None":
        """The model with one operator in place of each group of nodes, or None."""
        handles = own(reading).handles
        if version != reading.version:
            replaced = {id(handles.protos[node]) for each in replacements for node in each.nodes}
            is_defined = version <= newest_opset()
            if not is_defined or upgrade_in_place(handles.model, version, replaced):
                return None
        model = write_replacements(own(reading), replacements, self.source.blobs)
        opened = Opened(replace(self.source, model=model), self.progress, self.given)
        opened.take_over(self, own(reading))
        return opened

    def corrected(self, corrections: Sequence[Correction]) -> "Opened":
        """The model with corrected constants."""
        return (
            Opened(correct(self.source, corrections), self.progress, self.given)
            if corrections
            else self
        )

    def rescaled(self, reading: AnyReading, changes: Rescaling) -> "Opened":
        """The model with operands and attributes multiplied by powers of two."""
        return Opened(rescale(own(reading), changes, self.source), self.progress, self.given)

    def exchanged(
        self, weights: "Mapping[str, npt.NDArray[np.float32] | GridElements]"
    ) -> "Opened":
        """The model with other elements of constants."""
        if not weights:
            return self
        return Opened(exchange(self.source, weights), self.progress, self.given)

    @cached_property
    def lab(self) -> "SequenceLab":
        from mezzo.onnx.measure.lab import open_lab

        return open_lab(self)

    def extract(self, reading: AnyReading, nodes: Sequence[int]) -> Extract:
        """Extract nodes of the main graph as a model. Raises: errors of `extract_nodes`;
        ContractError: the part is no valid model.
        """
        part = extract_nodes(own(reading), nodes)
        fault = self.find_fault(part)
        if fault is not None:
            raise ContractError(f"the part would be no valid model: {fault}; take a larger part")
        inputs, outputs = (
            [port.name for port in ports] for ports in (part.graph.input, part.graph.output)
        )
        return Extract(part, len(part.graph.node), tuple(inputs), tuple(outputs))


def open_model(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model | RunnableModel",
    *,
    trust_external_paths: bool = False,
    progress: Progress | None = None,
) -> Opened:
    """Open a path, a ModelProto, an onnx_ir.Model, or a RunnableModel.

    Raises:
        InputError: the source is none of these, or cannot be read.
        ModelError: it is malformed, names data outside its folder, has recursive functions, or an
            opset that the installed onnx does not define.
        ContractError: the weights of a RunnableModel exceed the size of one protobuf message.
    """
    if isinstance(src, str | os.PathLike):
        source = load(Path(src), trust_external_paths=trust_external_paths)
    elif isinstance(src, onnx.ModelProto):
        source = from_proto(src)
    elif isinstance(src, RunnableModel):
        source = from_proto(src.filled())
    elif type(src).__module__.partition(".")[0] == "onnx_ir":
        import onnx_ir

        source = from_proto(onnx_ir.to_proto(src))
    else:
        raise InputError(
            f"source is a {type(src).__name__}, wanted a path, an onnx.ModelProto or an"
            " onnx_ir.Model"
        )
    check_opsets(source.model, source.blobs.name)
    check_expansion(source.model)  # before onnx's inference, which expands every call
    return Opened(source, progress)
