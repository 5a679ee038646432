"""Where `mezzo.toml` is, and the options `--config` and `--no-config`."""

from collections.abc import Sequence
from pathlib import Path

from mezzo.common.errors import InputError

FILE_NAME = "mezzo.toml"


def find_file(folder: Path) -> Path | None:
    """The nearest mezzo.toml from a folder upwards to the root of its repository or to the home
    folder. Outside of both only the folder itself is searched: others may write above it.
    """
    above = (folder, *folder.parents)
    roots = [each for each in above if (each / ".git").exists() or each == _home()]
    searched = above[: above.index(roots[0]) + 1] if roots else above[:1]
    return next((each / FILE_NAME for each in searched if (each / FILE_NAME).is_file()), None)


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # a user without one
        return None


def choose_file(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The file that a command reads, and its words without `--config FILE` and `--no-config`.

    Raises InputError: both are given, one twice, or no file follows.
    """
    end = words.index("--") if "--" in words else len(words)
    remaining: list[str] = []
    files: list[str] = []
    is_off = False
    head = iter(words[:end])
    for word in head:
        option, equals, value = word.partition("=")
        if word == "--no-config":
            is_off = True
        elif option == "--config":
            value = value if equals else next(head, "")
            if not value:
                raise InputError("--config lacks its value; write the file behind it")
            files.append(value)
        else:
            remaining.append(word)
    if len(files) + is_off > 1:
        raise InputError("--config and --no-config are given more than once in all; keep one")
    remaining += words[end:]
    if files:
        return Path(files[0]), remaining
    return None if is_off else find_file(Path.cwd()), remaining
