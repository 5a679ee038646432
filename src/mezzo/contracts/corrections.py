"""Corrections of a model's constants for INT8 accuracy, chosen on calibration data: SmoothQuant,
GPTQ, bias correction, float fallback.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.name_matching import matching_names

LEAVE, SMOOTH, WEIGHTS, BIAS = "leave", "smooth", "weights", "bias"
# In the order in which they are tried, each on the result of the previous ones.
STEPS = (LEAVE, SMOOTH, WEIGHTS, BIAS)
# The default. Bias correction needs a run per matmul or convolution, the others a few in all.
_USUAL = (LEAVE, SMOOTH, WEIGHTS)
AUTO, NONE = "auto", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Change of a constant of the main graph, by value name: slices along `axis` are multiplied by
    one factor each, then one number each is added. Either may be empty. All are FP32.
    """

    value: str
    axis: int
    factors: tuple[float, ...] = ()
    added: tuple[float, ...] = ()


def read_steps(text: str) -> tuple[str, ...]:
    """The corrections to try: the default ones, none, or some by name with commas.

    Raises InputError: an unknown or repeated word, or auto or none together with others.
    """
    words = [word.strip() for word in text.split(",")]
    if words == [AUTO]:
        return _USUAL
    if words == [NONE]:
        return ()
    if {*words} - {*STEPS} or len({*words}) < len(words):
        raise InputError(
            f"{option('correct')} is {text!r}; write {AUTO} or {NONE} alone, or some of"
            f" {', '.join(STEPS)} with commas, each once"
        )
    return tuple(step for step in STEPS if step in words)


def settle_words(text: str, choices: Sequence[str]) -> str:
    """Normalize comma-separated words; unknown ones are rejected when the option is read."""
    matches = [
        (word.strip(), matching_names(word.strip(), dict.fromkeys(choices, ())))
        for word in text.split(",")
    ]
    return ",".join(names[0] if names else word for word, names in matches)
