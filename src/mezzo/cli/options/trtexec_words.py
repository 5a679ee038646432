"""A trtexec line as the words of a command, and as TensorRT 11 takes it."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mezzo.common.errors import InputError
from mezzo.conversion.results import open_source
from mezzo.formats.dtypes import DType
from mezzo.io.trtexec import TrtexecLine, float_types, read_line
from mezzo.ir.nodes import Kind, port_of

_OPTION = "--from-trtexec"
_TARGET = "tensorrt"
_LONGEST = 30  # characters of a flag in the table of dropped ones


def expand(words: Sequence[str], parameters: Iterable[Any]) -> list[str]:
    """The words of a command with those that its trtexec line means; unchanged without one.

    Options that the user gave too win. Raises InputError: the line cannot be read.
    """
    values = _values(words[1:], parameters)
    line = values.get(_OPTION)
    if line is None:
        return list(words)
    trtexec = read_line(line)
    to = values.get("--to") or trtexec.to(has_data="--data" in values)
    added = [] if "--to" in values else ["--to", to]
    added += [] if "--target" in values else ["--target", _TARGET]
    added += [*_options(trtexec, values), *_ports(trtexec)]
    result = [] if words[0] != "convert" or values["arguments"] else [_result(trtexec, to)]
    return [words[0], trtexec.model, *result, *words[1:], *added]


def spell_migration(line: str, to: str, result: Path | None) -> str:
    """A trtexec line as TensorRT 11 takes it for the typed file, and the flags that it lacks."""
    trtexec = read_line(line)
    typed_file = _result(trtexec, to) if result is None else os.fspath(result)
    lines = ["", "TensorRT 11", f"  {trtexec.for_tensorrt_11(typed_file)}"]
    if trtexec.dropped:
        flags = [_shorten(flag) for flag, _ in trtexec.dropped]
        width = max(map(len, flags))
        reasons = [why for _, why in trtexec.dropped]
        lines.append("dropped")
        lines += [f"  {f:{width}}  {why}" for f, why in zip(flags, reasons, strict=True)]
    return "\n".join(lines)


def _shorten(flag: str) -> str:
    return flag if len(flag) <= _LONGEST else f"{flag[: _LONGEST - 3]}..."


def _options(trtexec: TrtexecLine, values: dict[str, str]) -> list[str]:
    """Options for layers, without those that the user gave and that may be given once."""
    options = list(trtexec.options)
    if "--policy" in values and options[:1] == ["--policy"]:
        return options[2:]
    return options


def _ports(trtexec: TrtexecLine) -> list[str]:
    """--io for the types of inputs and outputs, whose names are read from the model."""
    if not trtexec.inputs and not trtexec.outputs:
        return []
    nodes = open_source(trtexec.model, trust=False, progress=None).read(DType.FLOAT16).graph.nodes
    words = []
    for kind, flag, types in (
        (Kind.INPUT, "inputIOFormats", trtexec.inputs),
        (Kind.OUTPUT, "outputIOFormats", trtexec.outputs),
    ):
        ports = tuple(port_of(node) for node in nodes if node.kind is kind)
        for name, dtype in float_types(flag, types, ports).items() if types else ():
            words += ["--io", f"{name}={dtype}"]
    return words


def _result(trtexec: TrtexecLine, to: str) -> str:
    """The default name of the typed file, in the folder of its source: model.fp16.onnx."""
    source = Path(trtexec.model)
    return os.fspath(source.with_name(f"{source.stem}.{to.replace(',', '-')}.onnx"))


def _values(words: Sequence[str], parameters: Iterable[Any]) -> dict[str, str]:
    """The given options, with their values; "arguments" is there if other words are."""
    options = [param for param in parameters if param.param_type_name == "option"]
    flags = {word: param.is_flag for param in options for word in param.opts}
    values = {"arguments": ""}
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            values["arguments"] = word
        elif flags.get(option, True) or equals:
            values[option] = value
        else:
            values[option] = next(rest, "")
    if _OPTION in values and not values[_OPTION]:
        raise InputError(f"{_OPTION} lacks its value; write the trtexec line behind it, in quotes")
    return values
