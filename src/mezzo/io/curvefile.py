"""Reads recorded trainings: a JSON document with "rows", or JSON lines, each a whole training or one of its steps.

A row is {"way": text, "seed": whole number, "losses": [numbers]}, and may have "network" (text) and "held_out" (a
number). A line of a step is {"way", "seed", "step": whole number, "loss": number}; steps may be left out but not come
twice. "seed" may be missing where there is one training of a way.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real

from mezzo.common.errors import InputError
from mezzo.common.safe_paths import read_file
from mezzo.contracts.training_curves import Training

_MOST_BYTES = 32 << 20
_MOST_TRAININGS = 1000
_MOST_LOSSES = 4_000_000
_LONGEST_NAME = 200
_MOST_STEPS = 100_000_000
_NEEDED = 'a row is {"way": ..., "seed": ..., "losses": [...]}, a step {"way", "seed", "step": ..., "loss": ...}'
_HELD = "recorded"  # where rows are that no file holds
_Key = tuple[str, str, int]
_Rows = Iterator[tuple[str, object]]  # each with its place in words


def read_curves(paths: Sequence[str | os.PathLike[str]]) -> tuple[Training, ...]:
    """The trainings of some files together, in their order.

    Raises InputError: a file cannot be read or is none of these, is too large, or a training is there twice.
    """
    names = [repr(os.fspath(path)) for path in paths]
    return _collect((where, _rows(path, where)) for path, where in zip(paths, names, strict=True))


def read_rows(rows: Iterable[Mapping[str, object]]) -> tuple[Training, ...]:
    """The trainings of rows, or of steps, that a program holds; they are as those of a file.

    Raises InputError: one is neither a row nor a step, there are too many, or a training is there twice.
    """
    return _collect([(_HELD, ((f"{_HELD}, row {number}", row) for number, row in enumerate(rows, 1)))])


def _collect(sources: Iterable[tuple[str, _Rows]]) -> tuple[Training, ...]:
    trainings: dict[_Key, Training] = {}
    left, read = _MOST_LOSSES, []
    for where, rows in sources:
        read.append(where)
        for training in _trainings(rows, where, left):
            key = training.network, training.way, training.seed
            if key in trainings:
                raise InputError(
                    f"{where}: way {training.way!r} with seed {training.seed} is there twice; give each its own seed"
                )
            trainings[key] = training
            left -= len(training.losses)
        if len(trainings) > _MOST_TRAININGS:
            raise InputError(f"{where} brings the trainings to {len(trainings)}; give at most {_MOST_TRAININGS}")
    if not trainings:
        raise InputError(f"{', '.join(read) or _HELD}: no training is there; {_NEEDED}")
    return tuple(trainings.values())


def _rows(path: str | os.PathLike[str], where: str) -> _Rows:
    """What a file holds row by row."""
    try:
        data = read_file(path, _MOST_BYTES)
    except OSError as error:
        raise InputError(f"cannot read {where}: {error.strerror or error}; name a file of recorded losses") from error
    if data is None:
        raise InputError(f"{where} is larger than {_MOST_BYTES >> 20} MiB; record fewer steps")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is no text in UTF-8 (byte {error.start}); give JSON or JSON lines") from error
    try:
        whole = _parse(text)
    except ValueError:
        whole = None
    if isinstance(whole, dict) and isinstance(whole.get("rows"), list):
        yield from ((f"{where}, row {number}", row) for number, row in enumerate(whole["rows"], 1))
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            place = f"{where}, line {number}"
            try:
                yield place, _parse(line)
            except ValueError as error:
                raise InputError(f"{place} is no JSON ({error}); {_NEEDED}") from error


def _parse(text: str) -> object:
    """Raises ValueError: it is no JSON, or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _trainings(rows: _Rows, where: str, most: int) -> Iterator[Training]:
    steps: dict[_Key, dict[int, float]] = {}
    count = 0
    for place, row in rows:
        if not isinstance(row, Mapping):
            raise InputError(f"{place} holds {_kind(row)}; {_NEEDED}")
        network, way = _text(row, "network", place, ""), _text(row, "way", place)
        key = network, way, _whole(row, "seed", place, 0)
        if "losses" in row:
            losses = row["losses"]
            if not isinstance(losses, list | tuple) or not losses:
                raise InputError(f"{place}: losses is {_kind(losses)}; give a list of numbers, one for each step")
            count += len(losses)
            _check_count(count, most, where)
            held_out = row.get("held_out")
            yield Training(
                network=network,
                way=way,
                seed=key[2],
                losses=tuple(_number(loss, "losses", place) for loss in losses),
                held_out=None if held_out is None else _number(held_out, "held_out", place),
            )
        elif "loss" in row:
            count += 1
            _check_count(count, most, where)
            step = _whole(row, "step", place)
            if step in steps.setdefault(key, {}):
                raise InputError(f"{place}: step {step} of way {way!r} with seed {key[2]} is there twice; keep one")
            steps[key][step] = _number(row["loss"], "loss", place)
        else:
            raise InputError(f"{place} has neither losses nor a loss; {_NEEDED}")
    for (network, way, seed), of in steps.items():
        yield Training(network=network, way=way, seed=seed, losses=tuple(of[step] for step in sorted(of)))


def _check_count(count: int, most: int, where: str) -> None:
    if count > most:
        raise InputError(f"{where} brings the losses to more than {_MOST_LOSSES}; record fewer steps")


def _text(row: Mapping[str, object], name: str, place: str, usual: str | None = None) -> str:
    told = row.get(name, usual)
    if not isinstance(told, str) or len(told) > _LONGEST_NAME or (usual is None and not told):
        raise InputError(f"{place}: {name} is {_kind(told)}; give a text of at most {_LONGEST_NAME} characters")
    return told


def _whole(row: Mapping[str, object], name: str, place: str, usual: int | None = None) -> int:
    told = row.get(name, usual)
    if isinstance(told, bool) or not isinstance(told, Integral) or abs(int(told)) > _MOST_STEPS:
        raise InputError(f"{place}: {name} is {_kind(told)}; give a whole number up to {_MOST_STEPS}")
    return int(told)


def _number(told: object, name: str, place: str) -> float:
    if isinstance(told, bool) or not isinstance(told, Real):
        raise InputError(f"{place}: {name} holds {_kind(told)}; give numbers")
    try:
        return float(told)
    except OverflowError:
        return -math.inf if told < 0 else math.inf


def _kind(told: object) -> str:
    """What was found, in few words, however long it is."""
    match told:
        case None:
            return "missing"
        case dict():
            return "an object"
        case list() | tuple():
            return "an empty list" if not told else "a list"
        case str() if len(told) > _LONGEST_NAME:
            return f"a text of {len(told)} characters"
        case int() if abs(told) > _MOST_STEPS:
            return "a whole number too large"
    return repr(told)
