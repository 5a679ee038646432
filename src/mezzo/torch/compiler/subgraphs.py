"""Plans the bodies that a graph calls, each by itself: what crosses a border keeps its type, but for weights.

A weight that all that read it in a body read low comes in low: it is cast before the call, where the driver has its low
copy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx

from mezzo.aten.marks import Mark
from mezzo.aten.program import FROM_DTYPE, Held, Program, attribute_of
from mezzo.aten.read.retype import CAST, as_dtype, fake_mode_of, is_cast
from mezzo.common.errors import ModelError
from mezzo.planner.options import Options
from mezzo.torch.compiler.rewriting import Planned, rewrite


class _Form(NamedTuple):
    """How an operator calls bodies: how many stand from where among its arguments, and in which one, or from which on,
    are the operands that stay the same. Arguments of `before` are the body's first ones, and may change in a loop.
    """

    first: int
    bodies: int
    before: tuple[int, ...]
    operands: int
    is_rest: bool = False


# Others keep their bodies as they are: those of flex_attention become part of one kernel, which computes in FP32.
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
    """What became of a body: its path, and its plan or why there is none."""

    path: tuple[str, ...]
    planned: Planned | None
    note: str | None


@dataclass(eq=False)
class _Call:
    """A call of bodies. `operands` are what stands behind each input of theirs; None where that may change."""

    node: fx.Node
    form: _Form
    names: tuple[str, ...]
    bodies: tuple[fx.GraphModule, ...]

    @property
    def operands(self) -> list[fx.Node | None]:
        args: Any = self.node.args
        skipped = sum(len(args[place]) for place in self.form.before)
        same = args[self.form.operands :] if self.form.is_rest else args[self.form.operands]
        return [*[None] * skipped, *(one if isinstance(one, fx.Node) else None for one in same)]

    def replace(self, at: int, by: fx.Node) -> None:
        """Give the bodies another operand."""
        args: Any = list(self.node.args)
        at -= sum(len(args[place]) for place in self.form.before)
        if self.form.is_rest:
            args[self.form.operands + at] = by
        else:
            same = list(args[self.form.operands])
            same[at] = by
            args[self.form.operands] = type(args[self.form.operands])(same)
        self.node.args = tuple(args)


def plan_bodies(program: Program, options: Options) -> list[BodyPlan]:
    """Plan the bodies that a graph calls, theirs included, and carry the plans out. One that several call is planned
    once.

    Raises InputError: an option is at fault.
    """
    calls = list(_calls(program))
    callers: dict[fx.GraphModule, list[_Call]] = {}
    names: dict[fx.GraphModule, str] = {}
    for call in calls:
        for name, body in zip(call.names, call.bodies, strict=True):
            callers.setdefault(body, []).append(call)
            names.setdefault(body, name)
    found: list[BodyPlan] = []
    for body, several in callers.items():
        found += _plan_body(program, options, body, names[body], several)
    low = FROM_DTYPE[options.planning.low]
    for call, at in _cast_before(program, calls, callers, low):
        _cast_operand(program, call, at, low)
    for body in callers:
        body.recompile()
    return found


def _plan_body(
    program: Program, options: Options, body: fx.GraphModule, name: str, callers: Sequence[_Call]
) -> Iterator[BodyPlan]:
    path = (*program.path, name)
    marks = [program.mark_of(call.node) for call in callers]
    if any(mark != marks[0] for mark in marks):
        yield BodyPlan(path, None, _MIXED)
        return
    inside = _body_program(program, body, path, marks[0], callers)
    try:
        yield BodyPlan(path, rewrite(inside, options), None)
    except ModelError as error:
        yield BodyPlan(path, None, str(error))
    yield from plan_bodies(inside, options)


def _body_program(
    program: Program, body: fx.GraphModule, path: tuple[str, ...], mark: Mark | None, callers: Sequence[_Call]
) -> Program:
    inputs = _inputs(body)
    weights: dict[str, Held] = {}
    for at, node in enumerate(inputs):
        behind = [_held(program, call.operands[at]) for call in callers]
        first = behind[0]
        if first is not None and None not in behind:
            weights[node.name] = first if len(behind) == 1 else Held(first.name, None)
    where = "/".join(path)
    return Program(
        graph=body.graph,
        owner=body,
        weights=weights,
        names={node.name: f"{where}/{node.name}" for node in inputs},
        name=f"body {where!r} of the graph of torch.compile",
        path=path,
        around=mark,
    )


def _calls(program: Program) -> Iterator[_Call]:
    for node in program.graph.nodes:
        form = _FORMS.get(str(node.target)) if isinstance(node.target, torch._ops.HigherOrderOperator) else None
        if form is None or len(node.args) <= form.operands:
            continue
        holders = node.args[form.first : form.first + form.bodies]
        bodies = tuple(attribute_of(program.owner, holder) for holder in holders)
        call = _Call(node, form, tuple(str(holder.target) for holder in holders), bodies)
        if all(isinstance(body, fx.GraphModule) and len(_inputs(body)) == len(call.operands) for body in bodies):
            yield call


def _held(program: Program, operand: fx.Node | None) -> Held | None:
    """The weight that an operand is; None of what is none."""
    if operand is None:
        return None
    if operand.op == "get_attr":
        held = attribute_of(program.owner, operand)
        return Held(str(operand.target), lambda: held) if isinstance(held, torch.Tensor) else None
    return program.weights.get(operand.name) if operand.op == "placeholder" else None


def _cast_before(
    program: Program, calls: Sequence[_Call], callers: Mapping[fx.GraphModule, Sequence[_Call]], low: torch.dtype
) -> list[tuple[_Call, int]]:
    """Operands that are weights, and that every body that reads them reads low alone. Of a body that several call, all
    of them hand such an operand over, or none does.
    """
    chosen = {
        (call, at)
        for call in calls
        for at, operand in enumerate(call.operands)
        if _held(program, operand) is not None and _is_read_low(call, at, low)
    }
    while True:
        kept = {
            (call, at)
            for call, at in chosen
            if all((other, at) in chosen for body in call.bodies for other in callers[body])
        }
        if kept == chosen:
            return [(call, at) for call in calls for at in range(len(call.operands)) if (call, at) in chosen]
        chosen = kept


def _is_read_low(call: _Call, at: int, low: torch.dtype) -> bool:
    users = [user for body in call.bodies for user in _inputs(body)[at].users]
    return bool(users) and all(is_cast(user, low) for user in users)


def _cast_operand(program: Program, call: _Call, at: int, low: torch.dtype) -> None:
    """Cast an operand before the call, and no more in the bodies."""
    operand = call.operands[at]
    assert operand is not None, "a weight"
    mode = fake_mode_of(program.graph)
    behind = operand
    if operand.op == "placeholder":
        behind = next(node for node in reversed(program.graph.nodes) if node.op == "placeholder")
    with program.graph.inserting_after(behind):
        cast = program.graph.call_function(CAST, (operand, low))
    cast.meta = {"val": as_dtype(mode, operand.meta["val"], low)}
    call.replace(at, cast)
    for body in call.bodies:
        held = _inputs(body)[at]
        for user in [user for user in held.users if is_cast(user, low)]:
            user.replace_all_uses_with(held)
            body.graph.erase_node(user)
        held.meta = {**held.meta, "val": cast.meta["val"]}


def _inputs(body: fx.GraphModule) -> list[fx.Node]:
    return [node for node in body.graph.nodes if node.op == "placeholder"]


def casts_in(graph: fx.Graph) -> int:
    """Conversions of a graph and of the bodies that it calls."""
    count = sum(node.target is CAST for node in graph.nodes)
    owner = graph.owning_module
    assert owner is not None, "a compiler's graph is of a module"
    bodies = {body for call in _calls(Program(graph=graph, owner=owner)) for body in call.bodies}
    return count + sum(casts_in(body.graph) for body in bodies)
