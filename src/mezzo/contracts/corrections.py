"""What was decided on data to change of a model's constants, so that less is lost where it runs quantized."""

from collections.abc import Sequence
from dataclasses import dataclass

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.name_matching import names_meant

LEAVE, SMOOTH, WEIGHTS, BIAS = "leave", "smooth", "weights", "bias"
# In the order in which they are tried: each on what those before have left.
STEPS = (LEAVE, SMOOTH, WEIGHTS, BIAS)
# Those tried unless others are named: a bias takes a run of the model for each product, and the others a few in all.
_USUAL = (LEAVE, SMOOTH, WEIGHTS)
AUTO, NONE = "auto", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What becomes of a constant of the main graph, by its value's name: slices along an axis, counted from the front,
    are multiplied by a factor each, then a number each is added. Either may be empty. All are FP32 numbers.
    """

    value: str
    axis: int
    factors: tuple[float, ...] = ()
    added: tuple[float, ...] = ()


def read_steps(text: str) -> tuple[str, ...]:
    """The corrections that are to be tried: the usual ones, none, or some by name with commas.

    Raises InputError: it says auto or none beside others, or some word twice.
    """
    words = [word.strip() for word in text.split(",")]
    if words == [AUTO]:
        return _USUAL
    if words == [NONE]:
        return ()
    if {*words} - {*STEPS} or len({*words}) < len(words):
        raise InputError(
            f"{option('correct')} is {text!r}; write {AUTO} or {NONE} alone, or some of {', '.join(STEPS)} with "
            "commas, each once"
        )
    return tuple(step for step in STEPS if step in words)


def settle_words(text: str, choices: Sequence[str]) -> str:
    """Words with commas as mezzo itself writes them; what is none of the choices stays, and is refused when read."""
    meant = [(word.strip(), names_meant(word.strip(), dict.fromkeys(choices, ()))) for word in text.split(",")]
    return ",".join(names[0] if names else word for word, names in meant)
