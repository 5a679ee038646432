"""Requests for the models of a folder: fitted patterns, and one type for each tie."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from mezzo.api.folders.ties import Ports, Tie, dtypes_of, find_ties
from mezzo.common.errors import InputError, MezzoError
from mezzo.common.message_style import listing
from mezzo.common.message_style import option as called
from mezzo.common.name_matching import aside, did_you_mean
from mezzo.contracts.frontend import Model
from mezzo.contracts.options.option import NAMING_NODES, Form, about
from mezzo.contracts.options.request import IO, Request
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.recall import recall
from mezzo.formats.dtypes import HIGH, LOW_DTYPES
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.planner.options import read_options, requested_float
from mezzo.planner.planner import matcher
from mezzo.planner.verdicts.rules import nodes_in

Open = Callable[[str], Model]  # by name in the folder
Requests = dict[str, Request]


class FileError(Exception):
    """One model of a folder is at fault; the cause is the error."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name)
        self.name, self.error = name, error


def fit_requests(
    names: Sequence[str], request: Request, open_named: Open, fixed: Ports
) -> Requests:
    """The request of each model, such that every tie has one type across files.

    A tie that one file cannot hold in low precision is FP32 in all. `fixed` are ports of models
    that stay as they are.

    Raises:
        InputError: an option has no such value, or a pattern or name matches in no model.
        FileError: a model cannot be read or planned.
    """
    fitted = _fit_patterns(names, request, open_named)
    low = requested_float(request)
    # Ports are never quantized.
    if request.io == "keep" or (low is None and isinstance(request.io, str)):
        return fitted
    ports = {name: open_named(name).ports() for name in names}
    if isinstance(request.io, Mapping):
        io_of = _spread_names(request.io, find_ties(ports), ports)
        return {name: replace(fitted[name], io=_low_only(io_of[name])) for name in names}
    assert low is not None, "without a float nothing is asked of types but by name"
    return _agree(fitted, request, low, {**ports, **fixed}, open_named)


def in_file(name: str, error: MezzoError) -> MezzoError:
    """The error with the file's name in its message."""
    return error if name in str(error) else type(error)(f"{name!r}: {error}")


def _fit_patterns(names: Sequence[str], request: Request, open_named: Open) -> Requests:
    """Drop patterns that match only in other models. Raises InputError: one matches in no model."""
    forms = {
        option.name: about(option).form
        for option in fields(request)
        if about(option).form in NAMING_NODES
    }
    patterns = {name: tuple(getattr(request, name)) for name in forms}
    if not any(patterns.values()):
        return dict.fromkeys(names, request)
    low, matched = read_options(request).planning.low, set[tuple[str, str]]()
    fitted: Requests = {}
    for name in names:
        with naming_file(name):
            graph = open_named(name).read(low).graph
        own = {
            option: [p for p in values if _matches(graph, forms[option], p)]
            for option, values in patterns.items()
        }
        matched |= {(option, pattern) for option, matching in own.items() for pattern in matching}
        changes: dict[str, Any] = {
            option: _only(getattr(request, option), own[option]) for option in own
        }
        fitted[name] = replace(request, **changes)
    for option, values in patterns.items():
        for pattern in values:
            if (option, pattern) not in matched:
                raise InputError(
                    f"{called(option)} {pattern!r} matches no node in any of the folder's"
                    f" {len(names)} models; {listing()} lists the nodes of one"
                )
    return fitted


def _only(
    patterns: Sequence[str] | Mapping[str, str], matching: Sequence[str]
) -> Sequence[str] | Mapping[str, str]:
    """An option's patterns that match, with their dtypes if they have any."""
    return (
        {pattern: patterns[pattern] for pattern in matching}
        if isinstance(patterns, Mapping)
        else matching
    )


def _matches(graph: Graph, form: Form, pattern: str) -> bool:
    if form is not Form.PATTERNS:
        return bool(nodes_in(graph, pattern))
    matches = matcher(pattern)
    return any(node.kind in (Kind.OP, Kind.TIE) and matches(node) for node in graph.nodes)


def _spread_names(
    io: Mapping[str, str], ties: Sequence[Tie], ports: Ports
) -> dict[str, dict[str, str]]:
    """Ports of each model with the dtypes of `io`, applied to whole ties.

    Raises InputError: a name is no port, or one tie gets two dtypes.
    """
    tie_of = {member: tie for tie in ties for member in tie.members}
    port_names = {port.name for file_ports in ports.values() for port in file_ports}
    dtype_of: dict[str, dict[str, str]] = {model: {} for model in ports}
    source_of: dict[tuple[str, str], str] = {}
    for name, dtype in io.items():
        if name not in port_names:
            question = aside(did_you_mean(name, port_names, 1))
            raise InputError(
                f"{called('io')} {name!r} is no input or output of the folder's models{question};"
                " choose one of theirs"
            )
        for file, file_ports in ports.items():
            if all(port.name != name for port in file_ports):
                continue
            tie = tie_of.get((file, name))
            for member in ((file, name),) if tie is None else tie.members:
                earlier = source_of.setdefault(member, name)
                own_file, own_name = member
                if earlier != name and dtype_of[own_file][own_name] != dtype:
                    raise InputError(
                        f"{called('io')} asks for {earlier!r} and {name!r} in two dtypes, and one"
                        " feeds the other; ask for the same"
                    )
                dtype_of[own_file][own_name] = dtype
    return dtype_of


def _low_only(dtypes: Mapping[str, str]) -> IO:
    """A request's `io` without the ports that are FP32 anyway."""
    low = {name: dtype for name, dtype in dtypes.items() if dtype != "fp32"}
    return low or "keep"


def _agree(fitted: Requests, request: Request, to: str, ports: Ports, open_named: Open) -> Requests:
    """Plan every model with low ports, and return a tie to FP32 until all its members agree.

    `to` is the float format of the ports; INT8 does not affect them, so the plans are float plans.
    """
    ties, low = find_ties(ports), LOW_DTYPES[to]
    asked_for, fitted = fitted, {name: replace(fit, to=to) for name, fit in fitted.items()}
    low_requests = {name: replace(fit, io="low") for name, fit in fitted.items()}
    fixed = {name: file_ports for name, file_ports in ports.items() if name not in fitted}
    low_planned = {**fixed, **_planned_ports(low_requests, open_named)}
    planned = low_planned
    if request.io != "low":
        planned = {**fixed, **_planned_ports(fitted, open_named)}
    low_names = {
        name: {
            port.name
            for port, port_before in zip(planned[name], ports[name], strict=True)
            if port.dtype is low is not port_before.dtype
        }
        for name in fitted
    }
    for tie in ties:
        can_be_low = dtypes_of(tie.members, low_planned) == {low}
        # The option "follow" makes a tie low if all its outputs are.
        if can_be_low and (request.io == "low" or dtypes_of(tie.outputs, planned) == {low}):
            _ask_all(tie, ports, low_names)
        else:
            _ask_none(tie, low_names)
    while True:
        ports_of = {name: _low_only(dict.fromkeys(sorted(low_names[name]), to)) for name in fitted}
        requests = {name: replace(fitted[name], io=ports_of[name]) for name in fitted}
        planned = {**fixed, **_planned_ports(requests, open_named)}
        disagreeing = [
            tie
            for tie in ties
            if len(dtypes_of(tie.members, planned)) > 1 and _is_asked(tie, low_names)
        ]
        if not disagreeing:
            return {name: replace(fit, io=ports_of[name]) for name, fit in asked_for.items()}
        for tie in disagreeing:  # the checker refused the combination
            _ask_none(tie, low_names)


def _planned_ports(requests: Requests, open_named: Open) -> Ports:
    """Inputs and outputs of each model as converted."""
    ports = {}
    for name, request in requests.items():
        with naming_file(name):
            model = open_named(name)
            ports[name] = model.ports(
                convert_model(model, recall(model, read_options(request)), None)[1]
            )
    return ports


@contextmanager
def naming_file(name: str) -> Iterator[None]:
    """Turn errors about a model into FileError. Errors in options are the caller's."""
    try:
        yield
    except Exception as error:
        raise FileError(name, error) from error


def _ask_all(tie: Tie, ports: Ports, low_names: Mapping[str, set[str]]) -> None:
    for file, names in low_names.items():
        names.update(
            p.name for p in ports[file] if (file, p.name) in tie.members and p.dtype is HIGH
        )


def _ask_none(tie: Tie, low_names: Mapping[str, set[str]]) -> None:
    for file, name in tie.members:
        low_names.get(file, set()).discard(name)


def _is_asked(tie: Tie, low_names: Mapping[str, set[str]]) -> bool:
    return any(name in low_names.get(file, ()) for file, name in tie.members)
