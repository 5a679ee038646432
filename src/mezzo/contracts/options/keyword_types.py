"""Typed keywords of the public verbs, one for each option of a request; None is the default.

Written by tools/option_keywords.py from the fields of `Request`: change those, then run it.
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from mezzo.contracts.options.request import IO, PolicyLike, TargetLike
from mezzo.formats.format_words import FormatLike


class PlanOptions(TypedDict, total=False):
    """The options that decide; their defaults are those of `Request`."""

    to: FormatLike | None
    policy: PolicyLike | None
    strategy: str | None
    target: TargetLike | None
    include: Sequence[str] | None
    exclude: Sequence[str] | None
    keep_region: Sequence[str] | None
    fix_region: Mapping[str, str] | None
    io: IO | None
    out_of_range: str | None
    opset: str | None
    calibrator: str | None
    quantize_mode: str | None
    reduce_range: str | None
    decode: float | str | None
    fuse: str | None
    correct: str | None
    assume: Mapping[str, str] | None
    feedback: Sequence[str] | None
    trust_external_paths: bool | None


class ConvertOptions(PlanOptions, total=False):
    """The options that decide, and those about the model that is written."""

    provenance: bool | None
    check: bool | None
