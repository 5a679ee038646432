"""What the host hands from one file of a folder to another, or back to the same one: its type must be one everywhere.

The files of an export do not say what feeds what; names do, by the conventions of Optimum and transformers.js: an
output "present.0.key" comes back as "past_key_values.0.key", an encoder's "last_hidden_state" is a decoder's
"encoder_hidden_states", and equal names mean equal things.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mezzo.formats.dtypes import DType

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Port

# What a host makes of an output's name, the first that some file has as an input. The cache's are those of
# transformers.js 4.3.1, getPastKeyValues in src/models/modeling_utils.js, and of Optimum's older exports.
_RENAMES = (
    (re.compile(r"\bpresents?(?=[._]|$)"), ("past_key_values", "past")),
    (re.compile(r"\bpresent_key_values\b"), ("past_key_values",)),
    (re.compile(r"^last_hidden_state$"), ("encoder_hidden_states", "encoder_outputs")),
    (re.compile(r"^(image|audio)_features$"), ("inputs_embeds",)),  # the host puts them between the tokens' embeddings
)

Ports = Mapping[str, "tuple[Port, ...]"]  # of each file of a folder


@dataclass(frozen=True, slots=True)
class Tie:
    """Inputs and outputs that must have one type. `name` is that of the input; members are files and names there."""

    name: str
    outputs: tuple[tuple[str, str], ...]
    inputs: tuple[tuple[str, str], ...]

    @property
    def members(self) -> tuple[tuple[str, str], ...]:
        return (*self.outputs, *self.inputs)


@dataclass(frozen=True, slots=True)
class TypedTie:
    """A tie that a conversion has kept, with the type all its members have."""

    tie: Tie
    dtype: DType


def find_ties(ports: Ports) -> tuple[Tie, ...]:
    """Find what belongs together, in the order of the files. A port that nothing belongs to is no tie."""
    inputs = {port.name for several in ports.values() for port in several if port.is_input}
    found: dict[str, tuple[list[tuple[str, str]], list[tuple[str, str]]]] = {}
    for file, several in ports.items():
        for port in several:
            name = port.name if port.is_input else _input_for(port.name, inputs)
            found.setdefault(name, ([], []))[port.is_input].append((file, port.name))
    return tuple(
        Tie(name, tuple(outputs), tuple(fed)) for name, (outputs, fed) in found.items() if len(outputs) + len(fed) > 1
    )


def _input_for(output: str, inputs: Iterable[str]) -> str:
    """The name of the input that an output feeds, as a host spells it; its own name where there is none."""
    known = frozenset(inputs)
    for pattern, words in _RENAMES:
        for word in words:
            renamed = pattern.sub(word, output, count=1)
            if renamed != output and renamed in known:
                return renamed
    return output


def dtypes_in(tie: Tie, ports: Ports) -> frozenset[DType]:
    """The types that the members of a tie have."""
    members = set(tie.members)
    return frozenset(p.dtype for file, several in ports.items() for p in several if (file, p.name) in members)


def low_outputs(tie: Tie, ports: Ports, low: DType) -> bool:
    """Whether all outputs of a tie, and at least one, have the low type."""
    members = set(tie.outputs)
    found = [p.dtype for file, ps in ports.items() for p in ps if not p.is_input and (file, p.name) in members]
    return bool(found) and all(dtype is low for dtype in found)
