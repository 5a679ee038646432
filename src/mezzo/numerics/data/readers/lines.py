"""Lines of untrusted text files, in UTF-8 and of bounded length."""

import io
from collections.abc import Iterator
from pathlib import Path

from mezzo.common.errors import InputError
from mezzo.common.safe_paths import open_regular

_LONGEST = 4 << 20


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file with their ends. Raises InputError: it cannot be read, is not UTF-8, or
    has a line of millions of characters.
    """
    try:
        file = io.TextIOWrapper(
            io.BufferedReader(open_regular(path)[0]), encoding="utf-8-sig", newline=""
        )
        with file:
            number = 0
            while line := file.readline(_LONGEST + 1):
                number += 1
                if len(line) > _LONGEST:
                    raise InputError(
                        f"{path}: line {number} has more than {_LONGEST} characters; split it"
                    )
                if "\0" in line:
                    raise InputError(f"{path}: line {number} holds a zero byte; store it as text")
                yield line
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; name a file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not text in UTF-8; store it so") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name another file") from error
