"""Conversion of an FP16 or BF16 model to FP32: `mezzo.convert` with to="fp32".

Nothing is decided: every low float becomes FP32, weights keep their values, and no intermediate
result is rounded. What the low file has lost stays lost, and notes say where.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from mezzo.common.errors import InputError
from mezzo.common.message_style import option, setting
from mezzo.common.name_matching import aside, did_you_mean
from mezzo.contracts.frontend import Model, Port
from mezzo.contracts.options.option import OptionScope
from mezzo.contracts.options.request import IO, Request, choose_one, options_about
from mezzo.contracts.plans import WIDENED, Plan, PlannedNode
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.results import Converted, finish
from mezzo.formats.dtypes import FORMATS, HIGH, LOW_DTYPES, DType
from mezzo.formats.format_words import FORMAT_WORDS, FP32, read_format
from mezzo.formats.precision_line import line_of
from mezzo.planner.choices.gains import SMALLEST
from mezzo.planner.options import Options, read_options
from mezzo.report.layout.names import join_some
from mezzo.report.layout.numbers import spell_count
from mezzo.report.records.groups import is_operator
from mezzo.report.records.summary import Widening

if TYPE_CHECKING:
    from mezzo.ir.graph import Graph

_LOW = {dtype: word for word, dtype in LOW_DTYPES.items()}
_NAMES_SHOWN = 8


def convert_to_fp32(
    model: Model,
    dst: str | os.PathLike[str] | None,
    request: Request,
    io: IO | None,
    *,
    overwrite: bool,
) -> Converted:
    """Widen an open model. `io`: the request's, None if the caller has not set it: then inputs and
    outputs become FP32 too.

    Raises InputError: the model has no low floats, or some that cannot be widened, or an option
    asks for low floats. Other errors are those of `convert`.
    """
    ports = [port for port in model.ports() if port.dtype in _LOW]
    kept = _kept_ports(model, ports, io)
    before = model.read(next(iter(_LOW))).graph
    widened = model.widened([port.name for port in ports if port.name not in kept])
    if widened is model:
        obstacle = model.widening_obstacle()
        if obstacle is None:
            raise InputError(
                f"{model.name} has no FP16 or BF16, so {setting('to', FP32)} would change nothing;"
                f" use it as it is, or choose one of {', '.join(FORMAT_WORDS)}"
            )
        raise InputError(
            f"{model.name}: {obstacle}, so {setting('to', FP32)} cannot widen the model; export it"
            " in FP32"
        )
    decided, result = convert_model(widened, _options(request, io), None)
    after = {port.name for port in widened.ports() if port.dtype in _LOW}
    _refuse_remains(widened, decided.reading.graph, after)
    lows, damage = _low_nodes(before), (*_damage(before),)
    notes = (*decided.reading.graph.notes, *_port_notes(ports, after), *damage)
    plan = replace(_with_origins(decided.plan, lows), notes=notes)
    decided = replace(decided, plan=plan, spell_record=None)
    converted = finish(widened, decided, result, dst, overwrite=overwrite)
    widening = Widening(nodes=_count(plan, lows), damage=damage)
    return replace(converted, summary=replace(converted.summary, widening=widening))


def check_widening(request: Request, given: Mapping[str, object]) -> None:
    """Raises InputError: an argument of `convert` has no meaning for a conversion to FP32. `given`:
    those that are no options, by name.
    """
    single = [name for name in options_about(OptionScope.SINGLE_NODES) if name != "io"]
    values = {**given, **{name: getattr(request, name) for name in single}}
    used = next((name for name, value in values.items() if value), None)
    if used is not None:
        raise InputError(
            f"{option(used)} is given with {setting('to', FP32)}, which widens all of a model and"
            f" decides nothing; leave {option(used)} out"
        )


def _options(request: Request, io: IO | None) -> Options:
    """Options of a plan with the one level FP32, which the result's metadata does not record."""
    options = read_options(replace(request, to=SMALLEST, io="keep"))
    planning = replace(options.planning, line=line_of(HIGH))
    settings = (("to", FP32), *((("io", io),) if isinstance(io, str) else ()))
    return replace(options, planning=planning, settings=settings, is_recorded=False)


def _kept_ports(model: Model, low: Sequence[Port], io: IO | None) -> frozenset[str]:
    """Names of the low inputs and outputs that keep their types, behind Casts.

    Raises InputError: the option asks for what the model has not.
    """
    if io is None:
        return frozenset()
    if isinstance(io, str):
        word = choose_one("io", io, ("keep", "low", "follow"))
        if word == "low":
            raise InputError(
                f"{setting('io', word)} asks for low inputs and outputs, and {setting('to', FP32)}"
                f" leaves nothing low; leave {option('io')} out, or write {setting('io', 'keep')}"
                " for the types that they have"
            )
        return frozenset(port.name for port in low if word == "keep" or port.is_input)
    return frozenset(_kept_by_name(model, io))


def _kept_by_name(model: Model, io: Mapping[str, str]) -> Iterator[str]:
    dtypes = {port.name: port.dtype for port in model.ports()}
    for name, text in io.items():
        if name not in dtypes:
            asked = aside(did_you_mean(name, dtypes, 1))
            raise InputError(
                f"{option('io')} {name!r} is no input or output of the model{asked}; choose one of"
                f" {', '.join(sorted(dtypes))}"
            )
        word = read_format(text, f"{option('io')} of {name!r}", (FP32,))
        dtype = dtypes[name]
        if word != _LOW.get(dtype, FP32) and (word != FP32 or dtype not in _LOW):
            own = f" or {_LOW[dtype]}" if dtype in _LOW else ""
            raise InputError(
                f"{option('io')} of {name!r} is {word}: {name!r} is {dtype} in {model.name}; write"
                f" {FP32}{own}, or leave it out"
            )
        if word != FP32:
            yield name


def _refuse_remains(model: Model, graph: "Graph", kept: Set[str]) -> None:
    """Raises InputError: a value inside the widened model is still a low float."""
    for value in graph.values:
        if value.dtype in _LOW and value.name not in kept:
            node = graph.nodes[value.producer]
            raise InputError(
                f"{model.name}: node {node.name!r} ({node.op}) still makes {value.dtype} when the"
                " model is widened, as it takes its type from elsewhere; export the model in FP32"
            )


def _low_nodes(graph: "Graph") -> Mapping[str, DType]:
    """The low float that a node makes, or as an output of the model takes, by its name."""
    lows = {}
    for node in graph.nodes:
        for value in node.present_outputs or node.present_inputs:
            dtype = graph.values[value].dtype
            if dtype in _LOW:
                lows[node.name] = dtype
    return lows


def _count(plan: Plan, lows: Mapping[str, DType]) -> Mapping[DType, int]:
    """Operators by the low float that they were in, the most frequent first."""
    dtypes = (lows[node.name] for node in plan.nodes if is_operator(node) and node.name in lows)
    return dict(Counter(dtypes).most_common())


def _with_origins(plan: Plan, lows: Mapping[str, DType]) -> Plan:
    """The plan, whose nodes say what they were."""

    def with_origin(node: PlannedNode) -> PlannedNode:
        if node.name not in lows or node.precision.output is not HIGH:
            return node._replace(rule="typed", because=f"is {node.precision.output} in the file")
        because = f"was {lows[node.name]}, all of whose numbers {HIGH} holds exactly"
        return node._replace(rule=WIDENED, because=because)

    return plan.with_nodes(map(with_origin, plan.nodes))


def _port_notes(ports: Sequence[Port], kept: Set[str]) -> Iterator[str]:
    changed = [port.name for port in ports if port.name not in kept]
    if changed:
        yield (
            f"inputs and outputs that are {HIGH} now: {_names(changed)}; {setting('io', 'keep')}"
            " keeps their types"
        )
    if kept:
        yield f"inputs and outputs that keep their types, behind Casts that round: {_names(kept)}"


def _damage(graph: "Graph") -> Iterator[str]:
    """Sentences on weights whose numbers the low float could not hold."""
    infinite, absent, largest = [], [], dict[DType, list[str]]()
    for number, facts in graph.constants.items():
        value = graph.values[number]
        if value.dtype not in _LOW:
            continue
        if facts.has_infinity:
            infinite.append(value.name)
        if facts.has_nan:
            absent.append(value.name)
        if facts.largest == FORMATS[value.dtype].max_finite:
            largest.setdefault(value.dtype, []).append(value.name)
    for numbers, names in (("infinities", infinite), ("NaN", absent)):
        if names:
            yield (
                f"{_holders(names)} {numbers}, which stay: {_names(names)}; only an export in FP32"
                " has the numbers"
            )
    for dtype, names in largest.items():
        yield (
            f"{_holders(names)} {FORMATS[dtype].max_finite:g}, the largest {dtype}, and may have"
            f" been clamped to it: {_names(names)}"
        )


def _holders(names: Sequence[str]) -> str:
    return f"{spell_count(len(names), 'weight')} {'holds' if len(names) == 1 else 'hold'}"


def _names(names: Collection[str]) -> str:
    return join_some(sorted(names), _NAMES_SHOWN)
