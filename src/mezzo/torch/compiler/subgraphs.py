"""Planning of control flow subgraphs, with fixed boundary types except for weights.

A weight that a subgraph uses only in low precision is cast before the call, where a low-precision
copy may exist.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx

from mezzo.aten.marks import Mark
from mezzo.aten.program import Program, ProgramTensor, attribute_of, float_type
from mezzo.aten.read.retype import CAST, as_dtype, fake_mode_of, is_cast
from mezzo.aten.torch_internals import HigherOrderOperator
from mezzo.common.errors import ModelError
from mezzo.planner.options import Options
from mezzo.torch.compiler.rewriting import RewrittenGraph, rewrite


class _Form(NamedTuple):
    """The argument layout of a higher-order operator.

    `bodies` subgraphs start at argument `first`; `operands` is the index of the loop-invariant
    operands (with `is_rest`, of the first of them). Arguments `before` become the subgraph's first
    inputs, and may change between iterations.
    """

    first: int
    bodies: int
    before: tuple[int, ...]
    operands: int
    is_rest: bool = False


# Other operators keep their subgraphs unchanged: those of flex_attention become part of one kernel,
# which computes in FP32.
_FORMS: Mapping[str, _Form] = {
    "cond": _Form(1, 2, (), 3),
    "invoke_subgraph": _Form(0, 1, (), 2, is_rest=True),
    "map_impl": _Form(0, 1, (1,), 2),
    "scan": _Form(0, 1, (1, 2), 3),
    "while_loop": _Form(0, 2, (2,), 3),
}
_MIXED = "its callers are in different regions, so it stays as it is"


@dataclass(frozen=True, slots=True)
class BodyPlan:
    """A subgraph's path, and its plan or the reason why there is none."""

    path: tuple[str, ...]
    planned: RewrittenGraph | None
    note: str | None


@dataclass(eq=False)
class _Call:
    """A call of subgraphs. `operands` are their inputs' sources; None for those that may change."""

    node: fx.Node
    form: _Form
    names: tuple[str, ...]
    bodies: tuple[fx.GraphModule, ...]

    @property
    def operands(self) -> list[fx.Node | None]:
        args: Any = self.node.args
        carried = sum(len(args[place]) for place in self.form.before)
        invariant = args[self.form.operands :] if self.form.is_rest else args[self.form.operands]
        return [
            *[None] * carried,
            *(operand if isinstance(operand, fx.Node) else None for operand in invariant),
        ]

    def replace(self, at: int, by: fx.Node) -> None:
        """Replace an operand of the subgraphs."""
        args: Any = list(self.node.args)
        at -= sum(len(args[place]) for place in self.form.before)
        if self.form.is_rest:
            args[self.form.operands + at] = by
        else:
            invariant = list(args[self.form.operands])
            invariant[at] = by
            args[self.form.operands] = type(args[self.form.operands])(invariant)
        self.node.args = tuple(args)


def plan_bodies(program: Program, options: Options) -> list[BodyPlan]:
    """Plan and rewrite a graph's subgraphs, recursively; a shared one is planned once.

    Raises InputError: an option is invalid.
    """
    calls = list(_calls(program))
    callers: dict[fx.GraphModule, list[_Call]] = {}
    names: dict[fx.GraphModule, str] = {}
    for call in calls:
        for name, body in zip(call.names, call.bodies, strict=True):
            callers.setdefault(body, []).append(call)
            names.setdefault(body, name)
    plans: list[BodyPlan] = []
    for body, body_callers in callers.items():
        plans += _plan_body(program, options, body, names[body], body_callers)
    low = float_type(options.planning.low)
    for call, position in _cast_before(program, calls, callers, low):
        _cast_operand(program, call, position, low)
    for body in callers:
        body.recompile()
    return plans


def _plan_body(
    program: Program, options: Options, body: fx.GraphModule, name: str, callers: Sequence[_Call]
) -> Iterator[BodyPlan]:
    path = (*program.path, name)
    marks = [program.mark_of(call.node) for call in callers]
    if any(mark != marks[0] for mark in marks):
        yield BodyPlan(path, None, _MIXED)
        return
    subprogram = _body_program(program, body, path, marks[0], callers)
    try:
        yield BodyPlan(path, rewrite(subprogram, options), None)
    except ModelError as error:
        yield BodyPlan(path, None, str(error))
    yield from plan_bodies(subprogram, options)


def _body_program(
    program: Program,
    body: fx.GraphModule,
    path: tuple[str, ...],
    mark: Mark | None,
    callers: Sequence[_Call],
) -> Program:
    inputs = _inputs(body)
    weights: dict[str, ProgramTensor] = {}
    for position, node in enumerate(inputs):
        sources = [_held(program, call.operands[position]) for call in callers]
        first = sources[0]
        if first is not None and None not in sources:
            weights[node.name] = first if len(sources) == 1 else ProgramTensor(first.name, None)
    body_name = "/".join(path)
    return Program(
        graph=body.graph,
        owner=body,
        weights=weights,
        names={node.name: f"{body_name}/{node.name}" for node in inputs},
        name=f"body {body_name!r} of the graph of torch.compile",
        path=path,
        around=mark,
    )


def _calls(program: Program) -> Iterator[_Call]:
    for node in program.graph.nodes:
        form = (
            _FORMS.get(str(node.target)) if isinstance(node.target, HigherOrderOperator) else None
        )
        if form is None or len(node.args) <= form.operands:
            continue
        holders = node.args[form.first : form.first + form.bodies]
        bodies = tuple(attribute_of(program.owner, holder) for holder in holders)
        call = _Call(node, form, tuple(str(holder.target) for holder in holders), bodies)
        if all(
            isinstance(body, fx.GraphModule) and len(_inputs(body)) == len(call.operands)
            for body in bodies
        ):
            yield call


def _held(program: Program, operand: fx.Node | None) -> ProgramTensor | None:
    """The weight behind an operand; None if it is not a weight."""
    if operand is None:
        return None
    if operand.op == "get_attr":
        attribute = attribute_of(program.owner, operand)
        return (
            ProgramTensor(str(operand.target), lambda: attribute)
            if isinstance(attribute, torch.Tensor)
            else None
        )
    return program.weights.get(operand.name) if operand.op == "placeholder" else None


def _cast_before(
    program: Program,
    calls: Sequence[_Call],
    callers: Mapping[fx.GraphModule, Sequence[_Call]],
    low: torch.dtype,
) -> list[tuple[_Call, int]]:
    """Weight operands that every subgraph reading them uses only in low precision. For a shared
    subgraph, either all of its callers cast such an operand or none does.
    """
    chosen = {
        (call, position)
        for call in calls
        for position, operand in enumerate(call.operands)
        if _held(program, operand) is not None and _is_read_low(call, position, low)
    }
    while True:
        consistent = {
            (call, position)
            for call, position in chosen
            if all((caller, position) in chosen for body in call.bodies for caller in callers[body])
        }
        if consistent == chosen:
            return [
                (call, position)
                for call in calls
                for position in range(len(call.operands))
                if (call, position) in chosen
            ]
        chosen = consistent


def _is_read_low(call: _Call, position: int, low: torch.dtype) -> bool:
    users = [user for body in call.bodies for user in _inputs(body)[position].users]
    return bool(users) and all(is_cast(user, low) for user in users)


def _cast_operand(program: Program, call: _Call, position: int, low: torch.dtype) -> None:
    """Cast an operand before the call, and remove the casts inside the subgraphs."""
    operand = call.operands[position]
    assert operand is not None, "a weight"
    mode = fake_mode_of(program.graph)
    insert_after = operand
    if operand.op == "placeholder":
        insert_after = program.graph.find_nodes(op="placeholder")[-1]
    with program.graph.inserting_after(insert_after):
        cast = program.graph.call_function(CAST, (operand, low))
    cast.meta = {"val": as_dtype(mode, operand.meta["val"], low)}
    call.replace(position, cast)
    for body in call.bodies:
        body_input = _inputs(body)[position]
        for user in [user for user in body_input.users if is_cast(user, low)]:
            user.replace_all_uses_with(body_input)
            body.graph.erase_node(user)
        body_input.meta = {**body_input.meta, "val": cast.meta["val"]}


def _inputs(body: fx.GraphModule) -> list[fx.Node]:
    return body.graph.find_nodes(op="placeholder")


def casts_in(graph: fx.Graph) -> int:
    """The number of conversions in a graph and its subgraphs."""
    count = sum(node.target is CAST for node in graph.nodes)
    owner = graph.owning_module
    assert owner is not None, "a compiler's graph is of a module"
    bodies = {body for call in _calls(Program(graph=graph, owner=owner)) for body in call.bodies}
    return count + sum(casts_in(body.graph) for body in bodies)
