"""Jobs of a folder and their results as JSON documents, for other processes and later runs."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from mezzo.api.folders.model_jobs import JobResult, ModelJob
from mezzo.common.documents import parse_json
from mezzo.common.errors import InputError
from mezzo.common.message_style import setting
from mezzo.contracts.frontend import Port
from mezzo.contracts.options.data_files import DataFiles
from mezzo.contracts.options.request import Request
from mezzo.conversion.results import revive
from mezzo.formats.dtypes import DType
from mezzo.formats.format_words import spell_formats
from mezzo.io.planfile import read_plan, to_json
from mezzo.numerics.measures import Ruling
from mezzo.report.records.documents import Document, encode
from mezzo.report.records.headline import read_headline
from mezzo.report.records.summary import Summary
from mezzo.tables.target import Gain

# What `with_graph` adds to an account.
_DRAWN = ("graph", "plans", "next")
_PATHS = ("source", "staged")


def spell_job(job: ModelJob) -> Document:
    """A job as a document. Raises InputError: its options or data are objects of this process."""
    assert job.search is None, "a search runs in the process that asks for it"
    document = {field.name: getattr(job, field.name) for field in fields(job)}
    document |= {name: os.fspath(document[name]) for name in _PATHS}
    document["labels"] = list(job.labels)
    document["request"] = _spell_request(job)
    if isinstance(job.data, DataFiles):
        files = job.data
        document |= {"data": None, "files": [files.sources, files.preprocess, files.tokenizer]}
    elif job.data is not None:
        document["data"] = _plain(job, "data", job.data)
    return document


def read_job(document: Mapping[str, Any]) -> ModelJob:
    """A job from its document."""
    values = {**document, **{name: Path(document[name]) for name in _PATHS}}
    files = values.pop("files", None)
    if files is not None:
        values["data"] = DataFiles(*files)
    return ModelJob(**{**values, "request": Request(**document["request"])})


def _spell_request(job: ModelJob) -> Document:
    document: Document = {}
    for field in fields(Request):
        value = getattr(job.request, field.name)
        if field.name == "to":
            value = None if value is None else spell_formats(value)
        document[field.name] = _plain(job, field.name, value)
    return document


def _plain(job: ModelJob, name: str, value: object) -> object:
    """A value as JSON data. Raises InputError: it is an object that a document cannot hold."""
    match value:
        case None | bool() | int() | str():
            return value
        case os.PathLike():
            return os.fspath(value)
        case Mapping():
            return {str(key): _plain(job, name, inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(job, name, inner) for inner in value]
        case _:
            raise InputError(
                f"{job.name!r}: {name} is a {type(value).__name__}, which cannot be sent to another"
                f" process; give {setting('jobs', 1)}, or a file"
            )


def spell_result(result: JobResult) -> Document:
    """A result as a document."""
    plan, drawn = result.converted.plan, result.drawn
    return {
        "plan": parse_json(to_json(plan)),
        "gain": encode(plan.gain),
        "choice": plan.choice,
        "summary": encode(result.converted.summary),
        "ruling": encode(result.ruling),
        "seconds": result.seconds,
        "before": encode(result.before),
        "after": encode(result.after),
        "account": result.account,
        "graph": None if drawn is None else {name: drawn[name] for name in _DRAWN},
    }


def revive_result(record: Mapping[str, Any], path: Path) -> JobResult:
    """A result from its document; `path`: its file. `measured` is None, and the plan has no edits:
    the account has what was measured.

    Raises KeyError, TypeError, ValueError, AttributeError or InputError: it is damaged.
    """
    gain = record["gain"]
    plan = replace(
        read_plan(record["plan"], "the plan of a record"),
        gain=None if gain is None else Gain(**{**gain, "dtype": DType(gain["dtype"])}),
        choice=record["choice"],
    )
    summary = record["summary"]
    summary = Summary(**{**summary, "notes": tuple(summary["notes"])})
    account = dict(record["account"])
    if account.get("format") != "mezzo-account/1":
        raise ValueError("it has no account")
    graph = record["graph"]
    return JobResult(
        converted=revive(plan, summary, path),
        account=account,
        headline=read_headline(account["summary"]),
        ruling=None if record["ruling"] is None else Ruling(record["ruling"]),
        seconds=float(record["seconds"]),
        before=_read_ports(record["before"]),
        after=_read_ports(record["after"]),
        drawn=None if graph is None else {**account, **{name: graph[name] for name in _DRAWN}},
    )


def _read_ports(ports: Iterable[Mapping[str, Any]]) -> tuple[Port, ...]:
    return tuple(
        Port(str(port["name"]), bool(port["is_input"]), DType(port["dtype"])) for port in ports
    )
