"""Conversion of results back to `torch.export` programs, with weights stored in converted types."""

import copy
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    TensorArgument,
)  # fmt: skip

from mezzo.aten.edit.addends import protect_addends
from mezzo.aten.edit.apply import Rewritten
from mezzo.aten.edit.quantizing import QUANTIZE
from mezzo.aten.model import TorchModel
from mezzo.aten.parts import with_module
from mezzo.aten.program import TORCH_DTYPES, Program, attribute_of
from mezzo.common.errors import InputError
from mezzo.common.safe_paths import check_destination
from mezzo.common.staging import Staging
from mezzo.contracts.frontend import Progress
from mezzo.contracts.reading import Artifact

# A weight, a call that scales it, three that clamp it, and its conversion.
_LONGEST_WAY = 6


class ExportedModel(TorchModel):
    """An exported program, in functional form."""

    def __init__(
        self, program: Program, exported: ExportedProgram, progress: Progress | None
    ) -> None:
        super().__init__(program, progress)
        self.exported = exported
        self.store = ExportedStore(self)

    def of(self, program: Program) -> "ExportedModel":
        return ExportedModel(program, self.exported, self.progress)

    def materialize(self, result: "Rewritten | Program") -> Artifact:
        return (
            export_again(self.exported, result) if isinstance(result, Rewritten) else self.exported
        )

    def size_of(self, whole: "ExportedProgram | Rewritten | Program") -> int:
        if not isinstance(whole, ExportedProgram):
            return super().size_of(whole)
        stored = (*whole.state_dict.values(), *whole.constants.values())
        tensors = {id(tensor): tensor for tensor in stored if isinstance(tensor, torch.Tensor)}
        return sum(tensor.nbytes for tensor in tensors.values())


class ExportedStore:
    """Writes results as `.pt2` files. Reported sizes are those of weights and constants, as for
    programs in memory; a file also contains traces and example inputs.
    """

    data_suffix = ""
    companions: Sequence[str] = ()

    def __init__(self, model: ExportedModel) -> None:
        self._model = model

    def write(self, result: Rewritten, dst: str | os.PathLike[str], *, overwrite: bool) -> int:
        path = Path(dst)
        check_destination(path)
        if path.suffix != ".pt2":
            raise InputError(
                f"{os.fspath(dst)!r} does not end in .pt2, as PyTorch's programs do; name it so"
            )
        program = self._model.materialize(result)
        with Staging() as staging:
            with staging.create(path) as sink:
                torch.export.save(program, sink)
            staging.commit()
        return self._model.size_of(program)

    def load(self, path: Path) -> ExportedProgram:
        """Load the file that was just written."""
        return torch.export.load(path)


def export_again(exported: ExportedProgram, result: Rewritten) -> ExportedProgram:
    """Build the exported program of a result. Each weight is stored once per dtype that its users
    need; weights that share memory still do.
    """
    return _Exporter(exported, result).export()


class _Exporter:
    def __init__(self, exported: ExportedProgram, result: Rewritten) -> None:
        self.exported, self.result = exported, result
        self.graph = result.program.copied()
        self.state: dict[str, Any] = dict(exported.state_dict)
        self.constants: dict[str, Any] = dict(exported.constants)
        self.specs = {spec.arg.name: spec for spec in exported.graph_signature.input_specs}
        self.stored: dict[tuple[int, object], torch.Tensor] = {}  # by weight id and calls applied

    def export(self) -> ExportedProgram:
        self._exchange()
        casts = frozenset(self.result.casts)
        stored = [
            node for node in self.graph.nodes if node.name in casts or node.target in QUANTIZE
        ]
        self._store_sums()
        for cast in stored:
            path = self._way_from_weight(cast)
            if path and self.specs[path[0].name].target is not None:
                self._store(path[0], path[1:])
        self._hold_constants()
        inputs = self.graph.find_nodes(op="placeholder")
        kinds = {node: self.specs[node.name].kind for node in inputs}
        user_inputs = {node for node, kind in kinds.items() if kind is InputKind.USER_INPUT}
        protect_addends(self.graph, user_inputs)
        return self._rebuild()

    def _store_sums(self) -> None:
        """Store the sums of quantized weights."""
        for node in [node for node in self.graph.nodes if node.name in self.result.sums]:
            path = self._way_from_weight(node)
            target = self.specs[path[0].name].target if path else None
            if target is None:
                continue
            sums = self._converted(self._home_of(target)[target].detach(), path[1:])
            self.result.program.owner.register_buffer(name := f"mezzo_{node.name}", sums)
            with self.graph.inserting_before(node):
                constant = self.graph.create_node("get_attr", name)
            constant.meta = dict(node.meta)
            node.replace_all_uses_with(constant)
            self._erase_unread(path[1:])

    def _exchange(self) -> None:
        """Store the weights that corrections have changed."""
        for node in self.graph.find_nodes(op="placeholder"):
            weight = self.result.program.weights.get(node.name)
            target = self.specs[node.name].target
            if weight is None or target is None:
                continue
            assert weight.tensor is not None, "an exported program has its weights"
            home, elements = self._home_of(target), weight.tensor()
            if elements is not home[target]:
                changed = _alike(elements, home[target])
                self._replace_everywhere(home, home[target], changed, target)

    def _home_of(self, target: str) -> dict[str, Any]:
        return self.constants if target in self.constants else self.state

    def _hold_constants(self) -> None:
        """Make constants that the edits have added inputs of the graph, as buffers, before those of
        the user.
        """
        inputs = self.graph.find_nodes(op="placeholder")
        given = (node for node in inputs if self.specs[node.name].kind is InputKind.USER_INPUT)
        first = next(given, next(iter(self.graph.nodes)))
        for node in [node for node in self.graph.nodes if node.op == "get_attr"]:
            name = str(node.target)
            if hasattr(self.exported.graph_module, name):
                continue
            with self.graph.inserting_before(first):
                placeholder = self.graph.placeholder(name)
            placeholder.meta = dict(node.meta)
            self.specs[placeholder.name] = InputSpec(
                InputKind.BUFFER, TensorArgument(name=placeholder.name), name, persistent=True
            )
            self.state[name] = attribute_of(self.result.program.owner, node)
            node.replace_all_uses_with(placeholder)
            self.graph.erase_node(node)

    def _way_from_weight(self, cast: fx.Node) -> list[fx.Node]:
        """The path from a weight to a conversion: the weight, the calls that scale and clamp it,
        the conversion or quantization. Empty if the conversion's source is not a weight.
        """
        path, pending = {cast}, [cast]
        while pending:
            for source in pending.pop().all_input_nodes:
                if source not in path and source.op != "get_attr":
                    path.add(source)
                    pending.append(source)
            if len(path) > _LONGEST_WAY:
                return []
        ordered = [node for node in self.graph.nodes if node in path]
        first, *calls = ordered
        is_weight = first.op == "placeholder" and first.name in self.result.program.weights
        are_calls = all(node.op == "call_function" for node in calls)
        return ordered if is_weight and are_calls else []

    def _store(self, weight: fx.Node, path: Sequence[fx.Node]) -> None:
        """Store a converted weight, replacing the original if that has no other users."""
        spec, cast = self.specs[weight.name], path[-1]
        target = spec.target
        assert target is not None, "weights have names"
        home = self._home_of(target)
        low = self._converted(home[target], path)
        if set(weight.users) <= set(path):
            self._replace_everywhere(home, home[target], low, target)
            stored = weight
        else:
            name = f"{target}_{TORCH_DTYPES[low.dtype]}"
            stored = self._add_beside(weight, spec, name)
            home[name] = low
        stored.meta = {**stored.meta, "val": cast.meta["val"]}
        cast.replace_all_uses_with(stored)
        self._erase_unread(path)

    def _erase_unread(self, path: Sequence[fx.Node]) -> None:
        for node in reversed(path):
            if not node.users:
                self.graph.erase_node(node)

    def _converted(self, weight: torch.Tensor, path: Sequence[fx.Node]) -> torch.Tensor:
        """The result of the calls on a weight, computed once for all of its names."""
        calls = tuple(
            (
                node.target,
                tuple(
                    argument.target if isinstance(argument, fx.Node) else argument
                    for argument in node.args
                    if argument not in path and argument is not node.args[0]
                ),
            )
            for node in path
        )
        if (id(weight), calls) not in self.stored:
            results: dict[fx.Node, Any] = {}

            def held(argument: fx.Node) -> Any:
                if argument.op == "get_attr":
                    return attribute_of(self.result.program.owner, argument)
                return results.get(argument, weight.detach())

            for node in path:
                target: Any = node.target
                results[node] = target(*fx.map_arg(node.args, held))
            self.stored[id(weight), calls] = _alike(results[path[-1]], weight)
        return self.stored[id(weight), calls]

    def _replace_everywhere(
        self, home: dict[str, Any], weight: torch.Tensor, low: torch.Tensor, target: str
    ) -> None:
        """Store a weight in another dtype, also under its unused aliases."""
        for node in self.graph.find_nodes(op="placeholder"):
            alias = self.specs[node.name].target
            if alias is not None and not node.users and home.get(alias) is weight:
                home[alias] = low
                node.meta = {**node.meta, "val": node.meta["val"].to(low.dtype)}
        home[target] = low

    def _add_beside(self, weight: fx.Node, spec: InputSpec, target: str) -> fx.Node:
        with self.graph.inserting_after(weight):
            placeholder = self.graph.placeholder(f"{weight.name}_{target.rpartition('_')[2]}")
        placeholder.meta = dict(weight.meta)
        self.specs[placeholder.name] = replace(
            spec, arg=TensorArgument(name=placeholder.name), target=target
        )
        return placeholder

    def _rebuild(self) -> ExportedProgram:
        old = self.exported
        returned = self.graph.output_node().args[0]
        assert isinstance(returned, tuple | list), "an exported graph returns a tuple"
        outputs = [
            (
                replace(spec, arg=TensorArgument(name=node.name))
                if isinstance(spec.arg, TensorArgument)
                else spec
            )
            for spec, node in zip(old.graph_signature.output_specs, returned, strict=True)
        ]
        inputs = [self.specs[node.name] for node in self.graph.find_nodes(op="placeholder")]
        module = fx.GraphModule(old.graph_module, self.graph)
        module.meta.update(old.graph_module.meta)
        return with_module(
            old,
            module,
            graph_signature=ExportGraphSignature(input_specs=inputs, output_specs=outputs),
            state_dict=self.state,
            range_constraints=copy.deepcopy(old.range_constraints),
            constants=self.constants,
        )


def _alike(numbers: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Elements as a parameter, if the weight that they replace is one."""
    is_parameter = isinstance(weight, torch.nn.Parameter)
    return torch.nn.Parameter(numbers, requires_grad=False) if is_parameter else numbers
