"""Ties between ports: inputs and outputs that exchange tensors between files and need one type.

An export does not record such links; names do, by the conventions of Optimum and transformers.js:
an output "present.0.key" returns as "past_key_values.0.key", an encoder's "last_hidden_state" is a
decoder's "encoder_hidden_states", and equal names are the same tensor.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mezzo.common.errors import ContractError
from mezzo.common.message_style import option
from mezzo.formats.dtypes import DType

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Port

# Input names for an output's name; the first that is an input of some file counts. Sources:
# transformers.js 4.3.1, getPastKeyValues in src/models/modeling_utils.js; Optimum's older exports.
# The host inserts them into the token embeddings.
_RENAMES = (
    (re.compile(r"\bpresents?(?=[._]|$)"), ("past_key_values", "past")),
    (re.compile(r"\bpresent_key_values\b"), ("past_key_values",)),
    (re.compile(r"^last_hidden_state$"), ("encoder_hidden_states", "encoder_outputs")),
    (
        re.compile(r"^(image|audio)_features$"),
        ("inputs_embeds",),
    ),
)

Ports = Mapping[str, "tuple[Port, ...]"]  # by file of a folder


@dataclass(frozen=True, slots=True)
class Tie:
    """Ports that must have one type. `name` is the input's; members are (file, port name)."""

    name: str
    outputs: tuple[tuple[str, str], ...]
    inputs: tuple[tuple[str, str], ...]

    @property
    def members(self) -> tuple[tuple[str, str], ...]:
        return (*self.outputs, *self.inputs)


@dataclass(frozen=True, slots=True)
class TypedTie:
    """A tie of the converted models, with the type of all its members."""

    tie: Tie
    dtype: DType


def find_ties(ports: Ports) -> tuple[Tie, ...]:
    """The ties between ports, in the order of the files. A port without a partner is no tie."""
    inputs = {port.name for file_ports in ports.values() for port in file_ports if port.is_input}
    members: dict[str, tuple[list[tuple[str, str]], list[tuple[str, str]]]] = {}
    for file, file_ports in ports.items():
        for port in file_ports:
            name = port.name if port.is_input else _input_for(port.name, inputs)
            members.setdefault(name, ([], []))[port.is_input].append((file, port.name))
    return tuple(
        Tie(name, tuple(outputs), tuple(readers))
        for name, (outputs, readers) in members.items()
        if len(outputs) + len(readers) > 1
    )


def _input_for(output: str, inputs: Iterable[str]) -> str:
    """The name of the input that a host feeds with an output; the output's own name without one."""
    input_names = frozenset(inputs)
    for pattern, words in _RENAMES:
        for word in words:
            renamed = pattern.sub(word, output, count=1)
            if renamed != output and renamed in input_names:
                return renamed
    return output


def dtypes_of(members: Iterable[tuple[str, str]], ports: Ports) -> frozenset[DType]:
    """The types of ports, which are given by file and name."""
    chosen = set(members)
    return frozenset(
        port.dtype
        for file, file_ports in ports.items()
        for port in file_ports
        if (file, port.name) in chosen
    )


def check_ties(before: Ports, after: Ports) -> tuple[TypedTie, ...]:
    """Ties of the results with types. Raises ContractError: one has several types and had one."""
    typed = []
    for tie in find_ties(before):
        dtypes = dtypes_of(tie.members, after)
        if len(dtypes) > 1 and len(dtypes_of(tie.members, before)) == 1:
            members = ", ".join(f"{name!r} of {file!r}" for file, name in tie.members[:4])
            types = " and ".join(sorted(map(str, dtypes)))
            raise ContractError(
                f"{members} would have {types}, and one feeds the other; leave out {option('io')}"
            )
        is_float = dtypes <= {DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16}
        if len(dtypes) == 1 and is_float and tie.outputs and tie.inputs:
            typed.append(TypedTie(tie, *dtypes))
    return tuple(typed)


def find_broken_ties(
    before: Ports, after: Ports, failed: Collection[str]
) -> dict[str, tuple[str, str]]:
    """Converted models that exchange tensors with a failed one in another type than before: the
    port and the failed model, by model. `failed` have the same ports before and after.
    """
    broken: dict[str, tuple[str, str]] = {}
    while True:
        stay = {*failed, *broken}
        types = {**after, **{name: before[name] for name in broken}}
        found = {
            file: (name, next(other for other, _ in tie.members if other in stay))
            for tie in find_ties(before)
            if len(dtypes_of(tie.members, types)) > 1 >= len(dtypes_of(tie.members, before))
            and any(other in stay for other, _ in tie.members)
            for file, name in tie.members
            if file not in stay
            and dtypes_of([(file, name)], types) != dtypes_of([(file, name)], before)
        }
        if not found:
            return broken
        broken |= found
