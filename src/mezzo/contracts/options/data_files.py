"""Data that a command names: files, folders, patterns or functions, and how they are read."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Source: TypeAlias = str | os.PathLike[str]

# A longer list, as a shell makes of an unquoted pattern, is shortened where it is printed.
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, init=False)
class DataFiles:
    """Data in files, for every function that takes data.

    Each source is a file (.npz, .npy, .csv, .tsv, .txt, an image), a folder of arrays or images, a
    pattern ("calib/*.npz"), NAME=SOURCE for one input of several, or "module:function". Sources
    without names follow each other. `preprocess` says how images, or arrays, become the numbers
    that the model was trained on: "imagenet", or "resize=256,crop=224,scale=1/255". `tokenizer` is
    a folder with a tokenizer.json: text is then cut into rows of tokens for a language model.
    """

    sources: tuple[str, ...]
    preprocess: str | None = None
    tokenizer: str | None = None

    def __init__(
        self,
        sources: Source | Sequence[Source],
        preprocess: str | None = None,
        tokenizer: Source | None = None,
    ) -> None:
        parts = [sources] if isinstance(sources, str | os.PathLike) else sources
        object.__setattr__(self, "sources", tuple(map(os.fspath, parts)))
        object.__setattr__(self, "preprocess", preprocess)
        folder = None if tokenizer is None else os.fspath(tokenizer)
        object.__setattr__(self, "tokenizer", folder)

    def __str__(self) -> str:
        """The name in reports and plans."""
        names = list(self.sources)
        if len(names) > _MOST_NAMED:
            names[_MOST_NAMED - 1 :] = [f"{len(names) - _MOST_NAMED + 1} more"]
        preprocess = [] if self.preprocess is None else [f"preprocess {self.preprocess}"]
        tokenizer = [] if self.tokenizer is None else [f"tokenizer {self.tokenizer}"]
        return ", ".join([*names, *preprocess, *tokenizer])

    @property
    def single(self) -> str | None:
        """The only source, if nothing else is said about it."""
        is_alone = self.preprocess is None and self.tokenizer is None
        return self.sources[0] if len(self.sources) == 1 and is_alone else None
