"""States that a caller feeds back: outputs that become inputs of the next call, as the user names
them or as their names show.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from mezzo.common.errors import InputError
from mezzo.common.message_style import option, setting
from mezzo.common.name_matching import unknown
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Value, port_of

GUESS = "guess"
_SHOWN = 4
# What names of states begin and end with, for outputs and for inputs, between other words:
# present.0.key and past_key_values.0.key, h_n and h_0, new_state and state, cache_out and cache_in.
_MARKS = {
    Kind.OUTPUT: r"present_key_values|present|new|next|updated|final|output|out|n",
    Kind.INPUT: r"past_key_values|past|previous|prev|old|initial|init|input|in|0",
}
_SIGN = r"[._/:-]"


def find_feedback(graph: Graph, words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Outputs of a graph, each with the input that it becomes at the next call. `words`: OUT=IN, or
    "guess" for those that names show.

    Raises InputError: no such output or input, a name twice, another type or shape, or no guess.
    """
    outputs, inputs = _ports(graph, Kind.OUTPUT), _ports(graph, Kind.INPUT)
    pairs: dict[str, str] = {}
    for word in words:
        if word == GUESS:
            continue
        output, sign, name = word.partition("=")
        where = f"{option('feedback')} {word!r}"
        if not sign:
            raise InputError(
                f"{where} is not understood; give OUTPUT=INPUT, or {setting('feedback', GUESS)}"
            )
        if output not in outputs:
            raise unknown(f"output of {option('feedback')}", output, outputs)
        if name not in inputs:
            raise unknown(f"input of {option('feedback')}", name, inputs)
        if output in pairs or name in pairs.values():
            twice = f"output {output!r}" if output in pairs else f"input {name!r}"
            raise InputError(f"{where} names {twice} a second time; give each once")
        difference = _difference(graph, outputs[output], inputs[name])
        if difference is not None:
            raise InputError(f"{where}: {difference}; an output can become an input like it")
        pairs[output] = name
    if GUESS in words:
        pairs |= _guess(graph, outputs, inputs, pairs)
        if not pairs:
            raise InputError(
                f"{setting('feedback', GUESS)}: no output is named as the next value of an input,"
                f" as 'present.0.key' is of 'past.0.key'; name them with"
                f" {setting('feedback', 'OUTPUT=INPUT')}"
            )
    return tuple(pairs.items())


def describe_feedback(feedback: Iterable[tuple[str, str]]) -> str:
    """Fed-back outputs as text: "'h_n' as 'h_0', 'c_n' as 'c_0'"."""
    pairs = [f"{output!r} as {name!r}" for output, name in feedback]
    if len(pairs) > _SHOWN:
        pairs[_SHOWN - 1 :] = [f"{len(pairs) - _SHOWN + 1} more"]
    return ", ".join(pairs)


def _ports(graph: Graph, kind: Kind) -> dict[str, int]:
    """The values of a graph's inputs or outputs by port name."""
    values = {
        port_of(node): (*node.inputs, *node.outputs)[0] for node in graph.nodes if node.kind is kind
    }
    return {name: value for name, value in values.items() if value is not None}


def _guess(
    graph: Graph, outputs: Mapping[str, int], inputs: Mapping[str, int], known: Mapping[str, str]
) -> dict[str, str]:
    """Outputs and inputs of one stem, if exactly one of each has it, and they are alike."""
    stems: dict[str, tuple[list[str], list[str]]] = {}
    for side, (kind, names) in enumerate(((Kind.OUTPUT, outputs), (Kind.INPUT, inputs))):
        for name in names:
            if name not in (*known, *known.values()):
                stems.setdefault(_stem(name, kind), ([], []))[side].append(name)
    return {
        theirs[0]: ours[0]
        for stem, (theirs, ours) in stems.items()
        if stem and len(theirs) == len(ours) == 1
        and _difference(graph, outputs[theirs[0]], inputs[ours[0]]) is None
    }  # fmt: skip


def _stem(name: str, kind: Kind) -> str:
    """A port's name without what marks it as the last or the next value."""
    folded, marks = re.sub(r"(?<=^[hcs])(?=[n0]$)", "_", name.casefold()), _MARKS[kind]
    stem = re.sub(rf"^(?:{marks}){_SIGN}|{_SIGN}(?:{marks})$", "", folded, count=1)
    return re.sub(_SIGN, ".", stem)


def _difference(graph: Graph, output: int, name: int) -> str | None:
    """Why an output cannot become an input, as text; None if it can."""
    ours, theirs = graph.values[output], graph.values[name]
    first, second = graph.shapes.get(output), graph.shapes.get(name)
    if _kind(ours) != _kind(theirs):
        return f"{ours.name!r} is {ours.dtype} and {theirs.name!r} is {theirs.dtype}"
    if first is None or second is None:
        return None
    are_alike = len(first) == len(second) and all(
        length in (None, other) or other is None
        for length, other in zip(first, second, strict=True)
    )
    if are_alike:
        return None
    return f"{ours.name!r} is {_spell(first)} and {theirs.name!r} is {_spell(second)}"


def _spell(shape: Sequence[int | None]) -> str:
    return "[" + ",".join("?" if length is None else str(length) for length in shape) + "]"


def _kind(value: Value) -> object:
    """What two values must share: floats are rounded to the type of the input."""
    name = str(value.dtype)
    return "float" if isinstance(value.dtype, DType) and name.startswith(("f", "bf")) else name
