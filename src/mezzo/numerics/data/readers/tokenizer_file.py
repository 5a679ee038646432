"""The tokenizer.json of Hugging Face's tokenizers. It is JSON, and runs no code."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mezzo.common.errors import InputError
from mezzo.common.packages import missing
from mezzo.common.safe_paths import read_file

TOKENIZER = "tokenizer.json"
# The fault of one that reads, and cannot split a text.
SPLITS_NO_TEXT = "cannot split the text"
_MOST_BYTES = 256 << 20


def read_tokenizer(file: Path) -> bytes:
    """The content of a tokenizer's file. Raises InputError: it cannot be read, or is too large."""
    try:
        content = read_file(file, _MOST_BYTES)
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); copy it again") from error
    if content is None:
        raise InputError(
            f"{file}: has more than {_MOST_BYTES} bytes, which no tokenizer has; copy it again"
        )
    return content


def make_tokenizer(file: Path, content: bytes) -> Any:
    """The tokenizer that a file holds. Raises InputError: its package is missing, or the file is
    damaged.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise missing("tokenizers", "text") from error
    with naming_faults(file, "is no tokenizer"):
        return Tokenizer.from_buffer(content)


@contextmanager
def naming_faults(file: Path, fault: str) -> Iterator[None]:
    """Raises InputError for an error of tokenizers: an Exception, or, where Rust panics, a
    BaseException of its own.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{file}: {fault} ({reason}); copy it again") from error
