"""One request for all models of a folder, fitted to each: patterns where they match, and types that files share."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from mezzo.api.folders.ties import Ports, Tie, dtypes_in, find_ties, low_outputs
from mezzo.common.errors import InputError, MezzoError
from mezzo.common.message_style import listing
from mezzo.common.message_style import option as called
from mezzo.common.name_matching import aside, did_you_mean
from mezzo.contracts.frontend import Model
from mezzo.contracts.options.option import NAMING_NODES, Form, about
from mezzo.contracts.options.request import IO, Request
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.recall import recall
from mezzo.formats.dtypes import HIGH, LOW_DTYPES, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.planner.options import asked_float, check_parameters, read_options
from mezzo.planner.planner import matcher
from mezzo.planner.verdicts.rules import nodes_in

Open = Callable[[str], Model]  # by name in the folder
Requests = dict[str, Request]


def fit_requests(names: Sequence[str], request: Request, open_named: Open) -> Requests:
    """Say what to ask of each model so that together they do as the request says, and every tie has one type.

    What one file cannot hold low becomes FP32 in all.

    Raises:
        InputError: an option has no such value, or a pattern or name matches in no model.
    """
    fitted = _fit_patterns(names, request, open_named)
    low = asked_float(request)
    if request.io == "keep" or (low is None and isinstance(request.io, str)):  # what is quantized crosses no border
        return fitted
    ports = {name: open_named(name).ports() for name in names}
    if isinstance(request.io, Mapping):
        given = _spread_names(request.io, find_ties(ports), ports)
        return {name: replace(fitted[name], io=_low_only(given[name])) for name in names}
    assert low is not None, "without a float nothing is asked of types but by name"
    return _agree(fitted, request, low, ports, open_named)


def check_data(requests: Requests, given: Collection[str]) -> None:
    """Raises InputError: a model is to be quantized and has no data for its scales; nothing was converted yet."""
    for name, request in requests.items():
        if name not in given:
            try:
                check_parameters(read_options(request))
            except InputError as error:
                raise in_file(name, error) from error


def in_file(name: str, error: MezzoError) -> MezzoError:
    """The same error, with the file of the folder that it is about."""
    return error if name in str(error) else type(error)(f"{name!r}: {error}")


def _fit_patterns(names: Sequence[str], request: Request, open_named: Open) -> Requests:
    """Leave out what matches nothing in a model, as long as it matches in another."""
    forms = {option.name: about(option).form for option in fields(request) if about(option).form in NAMING_NODES}
    patterns = {name: tuple(getattr(request, name)) for name in forms}
    if not any(patterns.values()):
        return dict.fromkeys(names, request)
    low, matched = read_options(request).planning.low, set[tuple[str, str]]()
    fitted: Requests = {}
    for name in names:
        graph = open_named(name).read(low).graph
        own = {option: [p for p in given if _matches(graph, forms[option], p)] for option, given in patterns.items()}
        matched |= {(option, pattern) for option, several in own.items() for pattern in several}
        kept: dict[str, Any] = {option: _only(getattr(request, option), own[option]) for option in own}
        fitted[name] = replace(request, **kept)
    for option, given in patterns.items():
        for pattern in given:
            if (option, pattern) not in matched:
                raise InputError(
                    f"{called(option)} {pattern!r} matches no node in any of the folder's {len(names)} models; "
                    f"{listing()} lists the nodes of one"
                )
    return fitted


def _only(patterns: Sequence[str] | Mapping[str, str], kept: Sequence[str]) -> Sequence[str] | Mapping[str, str]:
    """An option's patterns, with the dtypes that they have, if any."""
    return {pattern: patterns[pattern] for pattern in kept} if isinstance(patterns, Mapping) else kept


def _matches(graph: Graph, form: Form, pattern: str) -> bool:
    if form is not Form.PATTERNS:
        return bool(nodes_in(graph, pattern))
    matches = matcher(pattern)
    return any(node.kind in (Kind.OP, Kind.TIE) and matches(node) for node in graph.nodes)


def _spread_names(io: Mapping[str, str], ties: Sequence[Tie], ports: Ports) -> dict[str, dict[str, str]]:
    """Give a type asked for by name to all that shares it."""
    tie_of = {member: tie for tie in ties for member in tie.members}
    known = {port.name for several in ports.values() for port in several}
    found: dict[str, dict[str, str]] = {name: {} for name in ports}
    asked: dict[tuple[str, str], str] = {}
    for wanted, dtype in io.items():
        if wanted not in known:
            question = aside(did_you_mean(wanted, known, 1))
            raise InputError(
                f"{called('io')} {wanted!r} is no input or output of the folder's models{question}; "
                "choose one of theirs"
            )
        for file, several in ports.items():
            for port in several:
                if port.name != wanted:
                    continue
                tie = tie_of.get((file, wanted))
                for member in ((file, wanted),) if tie is None else tie.members:
                    if asked.setdefault(member, wanted) != wanted and found[member[0]][member[1]] != dtype:
                        raise InputError(
                            f"{called('io')} asks for {asked[member]!r} and {wanted!r} in two dtypes, and one feeds "
                            "the other; ask for the same"
                        )
                    found[member[0]][member[1]] = dtype
    return found


def _low_only(given: Mapping[str, str]) -> IO:
    """A request's `io`; what it does not name stays FP32."""
    low = {name: dtype for name, dtype in given.items() if dtype != "fp32"}
    return low or "keep"


def _agree(fitted: Requests, request: Request, to: str, ports: Ports, open_named: Open) -> Requests:
    """Plan every model, and take back to FP32 what its tie cannot hold everywhere, until all ties have one type.

    `to`: the float that borders may have. What is quantized beside it asks no type of them, so plans are of it alone.
    """
    ties, low = find_ties(ports), LOW_DTYPES[to]
    asked_for, fitted = fitted, {name: replace(fit, to=to) for name, fit in fitted.items()}
    able = _planned_ports({name: replace(fit, io="low") for name, fit in fitted.items()}, open_named)
    held = able if request.io == "low" else _planned_ports(fitted, open_named)
    wanted = {
        name: {p.name for p, before in zip(held[name], ports[name], strict=True) if p.dtype is low is not before.dtype}
        for name in fitted
    }
    for tie in ties:
        if dtypes_in(tie, able) != {low} or not (request.io == "low" or low_outputs(tie, held, low)):
            _ask_none(tie, wanted)
        else:
            _ask_all(tie, ports, wanted)
    while True:
        ports_of = {name: _low_only(dict.fromkeys(sorted(wanted[name]), to)) for name in fitted}
        asked = {name: replace(fitted[name], io=ports_of[name]) for name in fitted}
        held = _planned_ports(asked, open_named)
        mixed = [tie for tie in ties if len(dtypes_in(tie, held)) > 1 and _is_asked(tie, wanted)]
        if not mixed:
            return {name: replace(fit, io=ports_of[name]) for name, fit in asked_for.items()}
        for tie in mixed:  # where the checker refuses what all of them together ask for
            _ask_none(tie, wanted)


def _planned_ports(requests: Requests, open_named: Open) -> Ports:
    """Inputs and outputs of each model as it would be converted."""
    found = {}
    for name, request in requests.items():
        try:
            model = open_named(name)
            found[name] = model.ports(convert_model(model, recall(model, read_options(request)), None)[1])
        except MezzoError as error:
            raise in_file(name, error) from error
    return found


def _ask_all(tie: Tie, ports: Ports, wanted: Mapping[str, set[str]]) -> None:
    for file, several in ports.items():
        wanted[file].update(p.name for p in several if (file, p.name) in tie.members and p.dtype is HIGH)


def _ask_none(tie: Tie, wanted: Mapping[str, set[str]]) -> None:
    for file, name in tie.members:
        wanted[file].discard(name)


def _is_asked(tie: Tie, wanted: Mapping[str, set[str]]) -> bool:
    return any(name in wanted[file] for file, name in tie.members)


def split_ties(ties: Iterable[Tie], before: Ports, after: Ports) -> list[tuple[Tie, frozenset[DType]]]:
    """The ties that had one type and have more now."""
    return [(t, dtypes_in(t, after)) for t in ties if len(dtypes_in(t, before)) == 1 < len(dtypes_in(t, after))]
