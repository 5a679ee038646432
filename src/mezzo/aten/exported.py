"""Exported programs: results become exported programs again, whose weights are stored as they are read."""

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
    InputSpec,
    TensorArgument,
)  # fmt: skip

from mezzo.aten.apply import Rewritten
from mezzo.aten.model import TorchModel
from mezzo.aten.program import TORCH_DTYPES, Program
from mezzo.common.errors import InputError
from mezzo.common.safe_paths import check_destination
from mezzo.common.staging import Staging
from mezzo.contracts.frontend import Progress
from mezzo.contracts.reading import Artifact

# A weight, three calls that keep it within a limit, and its conversion.
_LONGEST_WAY = 5


class ExportedModel(TorchModel):
    """An exported program that came in, brought into functional form."""

    def __init__(self, program: Program, exported: ExportedProgram, progress: Progress | None) -> None:
        super().__init__(program, progress)
        self.exported = exported
        self.store = ExportedStore(self)

    def materialize(self, result: "Rewritten | Program") -> Artifact:
        return export_again(self.exported, result) if isinstance(result, Rewritten) else self.exported

    def size_of(self, whole: "ExportedProgram | Rewritten | Program") -> int:
        if not isinstance(whole, ExportedProgram):
            return super().size_of(whole)
        held = {id(one): one for one in (*whole.state_dict.values(), *whole.constants.values())}
        return sum(one.numel() * one.element_size() for one in held.values() if isinstance(one, torch.Tensor))


class ExportedStore:
    """Writes results as `.pt2` files. Their size is that of their weights and constants, as it is of what came in
    memory: a file has traces and example inputs beside them.
    """

    data_suffix = ""
    companions: Sequence[str] = ()

    def __init__(self, model: ExportedModel) -> None:
        self._model = model

    def write(self, result: Rewritten, dst: str | os.PathLike[str], *, overwrite: bool) -> int:
        path = Path(dst)
        check_destination(path)
        if path.suffix != ".pt2":
            raise InputError(f"{os.fspath(dst)!r} does not end in .pt2, as PyTorch's programs do; name it so")
        made = self._model.materialize(result)
        with Staging() as staging:
            with staging.create(path) as sink:
                torch.export.save(made, sink)
            staging.commit()
        return self._model.size_of(made)

    def load(self, path: Path) -> ExportedProgram:
        """Read back what was just written."""
        return torch.export.load(path)


def export_again(exported: ExportedProgram, result: Rewritten) -> ExportedProgram:
    """The exported program that a result is. Weights are stored in what their readers want, once in each type; those
    that share memory go on doing so.
    """
    return _Exporter(exported, result).export()


class _Exporter:
    def __init__(self, exported: ExportedProgram, result: Rewritten) -> None:
        self.exported, self.result = exported, result
        self.graph = result.program.copied()
        self.state: dict[str, Any] = dict(exported.state_dict)
        self.constants: dict[str, Any] = dict(exported.constants)
        self.specs = {spec.arg.name: spec for spec in exported.graph_signature.input_specs}
        self.stored: dict[tuple[int, object], torch.Tensor] = {}  # by what a weight was, and what was made of it

    def export(self) -> ExportedProgram:
        casts = frozenset(self.result.casts)
        for cast in [node for node in self.graph.nodes if node.name in casts]:
            way = self._way_from_weight(cast)
            if way and self.specs[way[0].name].target is not None:
                self._store(way[0], way[1:])
        return self._rebuild()

    def _way_from_weight(self, cast: fx.Node) -> list[fx.Node]:
        """The weight that a conversion is of, what was put between them to keep it within a limit, and the conversion;
        nothing where it is of no weight.
        """
        way, pending = {cast}, [cast]
        while pending:
            for read in pending.pop().all_input_nodes:
                if read not in way:
                    way.add(read)
                    pending.append(read)
            if len(way) > _LONGEST_WAY:
                return []
        ordered = [node for node in self.graph.nodes if node in way]
        return ordered if self._is_weight(ordered[0]) and not any(map(self._is_input, ordered[1:])) else []

    def _is_weight(self, node: fx.Node) -> bool:
        return node.op == "placeholder" and node.name in self.result.program.weights

    def _is_input(self, node: fx.Node) -> bool:
        return node.op != "call_function"

    def _store(self, weight: fx.Node, way: Sequence[fx.Node]) -> None:
        """Store what a conversion makes of a weight: in its place if nobody else reads it, else beside it."""
        spec, cast = self.specs[weight.name], way[-1]
        target = spec.target
        assert target is not None, "weights have names"
        home = self.constants if target in self.constants else self.state
        low = self._converted(home[target], way)
        if set(weight.users) <= set(way):
            self._replace_everywhere(home, home[target], low, target)
            further = weight
        else:
            name = f"{target}_{TORCH_DTYPES[low.dtype]}"
            further = self._add_beside(weight, spec, name)
            home[name] = low
        further.meta = {**further.meta, "val": cast.meta["val"]}
        cast.replace_all_uses_with(further)
        for node in reversed(way):
            if not node.users:
                self.graph.erase_node(node)

    def _converted(self, held: torch.Tensor, way: Sequence[fx.Node]) -> torch.Tensor:
        """What calls make of a weight, once for all of its names."""
        steps = tuple((node.target, tuple(one for one in node.args if not isinstance(one, fx.Node))) for node in way)
        if (id(held), steps) not in self.stored:
            made: dict[fx.Node, Any] = {}
            for node in way:
                target: Any = node.target
                made[node] = target(*fx.map_arg(node.args, lambda one: made.get(one, held.detach())))
            low = made[way[-1]]
            is_parameter = isinstance(held, torch.nn.Parameter)
            self.stored[id(held), steps] = torch.nn.Parameter(low, requires_grad=False) if is_parameter else low
        return self.stored[id(held), steps]

    def _replace_everywhere(self, home: dict[str, Any], held: torch.Tensor, low: torch.Tensor, target: str) -> None:
        """Store a weight in another type, under its other names too where nobody reads those."""
        for node in self.graph.nodes:
            spec = self.specs.get(node.name) if node.op == "placeholder" else None
            is_unread = spec is not None and spec.target is not None and not node.users
            if is_unread and spec is not None and home.get(spec.target or "") is held:
                home[spec.target or ""] = low
                node.meta = {**node.meta, "val": node.meta["val"].to(low.dtype)}
        home[target] = low

    def _add_beside(self, weight: fx.Node, spec: InputSpec, target: str) -> fx.Node:
        with self.graph.inserting_after(weight):
            further = self.graph.placeholder(f"{weight.name}_{target.rpartition('_')[2]}")
        further.meta = dict(weight.meta)
        self.specs[further.name] = replace(spec, arg=TensorArgument(name=further.name), target=target)
        return further

    def _rebuild(self) -> ExportedProgram:
        old = self.exported
        end = next(node for node in reversed(self.graph.nodes) if node.op == "output")
        returned = end.args[0]
        assert isinstance(returned, tuple | list), "an exported graph returns a tuple"
        outputs = [
            replace(spec, arg=TensorArgument(name=node.name)) if isinstance(spec.arg, TensorArgument) else spec
            for spec, node in zip(old.graph_signature.output_specs, returned, strict=True)
        ]
        inputs = [self.specs[node.name] for node in self.graph.nodes if node.op == "placeholder"]
        module = fx.GraphModule(old.graph_module, self.graph)
        module.meta.update(old.graph_module.meta)
        return ExportedProgram(
            root=module,
            graph=module.graph,
            graph_signature=ExportGraphSignature(input_specs=inputs, output_specs=outputs),
            state_dict=self.state,
            range_constraints=copy.deepcopy(old.range_constraints),
            module_call_graph=old.module_call_graph,
            example_inputs=old.example_inputs,
            constants=self.constants,
            verifiers=old.verifiers,
        )
