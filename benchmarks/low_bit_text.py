"""Text for the low-bit benchmark: the pages of Python's reference manual, split into calibration and held-out text. No
script.

Every Python carries the pages (`pydoc_data.topics`), so nothing is downloaded. Pages repeat one another's paragraphs: a
paragraph counts once, for the page that has it first, and whole pages are held out.
"""

import pydoc_data.topics
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

_SEED = 44
_HELD_OUT = 3  # one page in so many

Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Text:
    """Token rows [rows, tokens]; no paragraph is in both parts."""

    calibration: np.ndarray
    held_out: np.ndarray


def read_parts() -> tuple[str, str]:
    """The manual's calibration pages and its held-out pages, without repeated paragraphs."""
    names = sorted(pydoc_data.topics.topics)
    random.Random(_SEED).shuffle(names)
    parts: tuple[list[str], list[str]] = ([], [])
    known: set[str] = set()
    for number, name in enumerate(names):
        paragraphs = [part.strip() for part in pydoc_data.topics.topics[name].split("\n\n")]
        fresh = [part for part in dict.fromkeys(paragraphs) if part and part not in known]
        known.update(fresh)
        parts[number % _HELD_OUT == 0].append("\n\n".join(fresh))
    return "\n\n".join(parts[0]), "\n\n".join(parts[1])


def cut_text(encode: Encode, calibration_rows: int, held_out_rows: int, tokens: int) -> Text:
    """Tokenize both parts and draw rows that do not overlap."""
    rows = (calibration_rows, held_out_rows)
    parts = [_rows(encode(part), count, tokens) for part, count in zip(read_parts(), rows, strict=True)]
    return Text(*parts)


def _rows(ids: Sequence[int], count: int, tokens: int) -> np.ndarray:
    places = np.random.default_rng(_SEED).choice(len(ids) // tokens, count, replace=False)
    return np.stack([np.asarray(ids[place * tokens : (place + 1) * tokens], np.int64) for place in np.sort(places)])
