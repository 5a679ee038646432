"""Says what the pages name and is not there: commands, options, modules, files, targets of make, extras.

Read from blocks that never run, and from the words in `such quotes` of any page.
"""

import ast
import importlib
import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import typer
from page_blocks import ROOT, Block, commands_of, spelled

from mezzo.cli.app import load_commands, make_app
from mezzo.plugins.entries import GROUPS

_QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_OPTION = re.compile(r"^(--?[a-z][\w-]*)(?:=.*)?$")
_MODULE = re.compile(r"^mezzo(?:\.[A-Za-z_]\w*)+$")
_FOLDERS = ("src", "tests", "benchmarks", "tools", "examples", "docs")
# What stands for something of the reader's own: NAME, an ellipsis, a glob.
_STANDS_FOR = re.compile(r"[A-Z]{2,}|\.\.\.|[*<>{}$]")
SOURCE = ROOT / "src" / "mezzo"
_NEEDS_TORCH = ["mezzo", "torch"]  # importing it says so where PyTorch is not installed
_TOOLCHAIN = frozenset({"pip", "python3", ".", "git", "npm", "ray", "trtexec"})


def missing_in_block(block: Block) -> list[str]:
    """What the commands of a block name and is not there."""
    return [fault for command in commands_of(block) for fault in missing_in_command(spelled(command))]


def missing_in_quotes(text: str) -> list[str]:
    """What a page names in quotes and is not there."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return [fault for quoted in _QUOTED.findall(prose) for fault in _missing_in_words(quoted)]


def _missing_in_words(quoted: str) -> Iterator[str]:
    if re.match(r"mezzo [a-z]", quoted) or re.match(r"(make|python) \S", quoted):
        yield from missing_in_command(quoted)
    elif _MODULE.match(quoted) and quoted != "mezzo.toml":
        yield from [] if _is_name(quoted) else [f"{quoted}: no such name"]
    elif "/" in quoted and not _STANDS_FOR.search(quoted):
        yield from _missing_file(quoted.partition(" ")[0])


def _missing_file(path: str) -> Iterator[str]:
    """A path of the checkout, or of a package of mezzo (`contracts/frontend.py`), that leads nowhere."""
    first = path.partition("/")[0]
    is_ours = (
        bool(first) and (SOURCE / first).is_dir() and path.endswith((".py", "/"))
    )  # others have folders `onnx/` too
    place = ROOT if first in _FOLDERS else SOURCE if is_ours else None
    if place and not (place / path).exists():
        yield f"{path}: no such file"


def missing_in_command(command: str) -> Iterator[str]:
    """What one command names and is not there."""
    line = re.split(r" \| | > | && ", command)[0]
    words = [word for word in shlex.split(line.replace("...", "")) if word]
    program = Path(words[0]).name
    if program == "mezzo":
        yield from _missing_in_mezzo(words[1:])
    elif program == "make":
        known = set(re.findall(r"^([.a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        yield from (f"{command}: no such target" for word in words[1:] if "=" not in word and word not in known)
    elif program == "python" and len(words) > 1 and words[1].partition("/")[0] in _FOLDERS:
        yield from _missing_in_script(words)
    elif program == "pip":
        yield from _missing_extras(command)
    elif "=" not in words[0] and program not in {*_TOOLCHAIN, "python"}:
        yield f"{command}: a program that no page may name"


def _missing_in_mezzo(words: list[str]) -> Iterator[str]:
    names = [word for word in words if not word.startswith("-")]
    known = _options()
    if not names:
        yield from (f"mezzo {word}: no such option" for word in words if word not in known[""])
        return
    if not _STANDS_FOR.search(names[0]) and names[0] not in known:
        yield f"mezzo {names[0]}: no such command"
        return
    for word in words:
        option = _OPTION.match(word)
        if option and option[1] not in known.get(names[0], option[1]):
            yield f"mezzo {names[0]} {option[1]}: no such option"


@cache
def _options() -> dict[str, frozenset[str]]:
    """The options of each command by its name; those of `mezzo` itself under the empty one."""
    group = typer.main.get_command(make_app())
    commands = load_commands().items()
    found = {name: frozenset(word for p in command.params for word in p.opts) for name, command in commands}
    found[""] = frozenset(word for p in group.params for word in p.opts)
    return {name: words | {"--help", "--help-all", "--install-completion"} for name, words in found.items()}


def _missing_in_script(words: list[str]) -> Iterator[str]:
    path = ROOT / words[1]
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    if not files or not path.exists():
        yield f"{words[1]}: no such script"
        return
    beside = [*files, *path.parent.glob("*.py"), *path.parent.glob("*/*.py")]
    text = "".join(file.read_text(encoding="utf-8") for file in beside)
    options = [option[1] for word in words[2:] if (option := _OPTION.match(word))]
    yield from (f"{words[1]} {option}: no such option" for option in options if f'"{option}"' not in text)


def _missing_extras(command: str) -> Iterator[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        known = tomllib.load(file)["project"]["optional-dependencies"]
    for extras in re.findall(r"(?:mezzo|\.)\[([\w,-]+)\]", command):
        yield from (f"{command}: no such extra" for extra in extras.split(",") if extra not in known)


def _is_name(dotted: str) -> bool:
    """Whether a dotted name leads to a module, or to something in one."""
    if dotted in GROUPS.values():
        return True
    parts = dotted.split(".")
    if parts[:2] == _NEEDS_TORCH and importlib.util.find_spec("torch") is None:
        return _is_written(parts)
    for length in range(len(parts), 0, -1):
        try:
            thing: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False


def _is_written(parts: list[str]) -> bool:
    """Whether a module's source has a name, where the module cannot be imported."""
    *folders, name = parts
    if (ROOT / "src").joinpath(*parts, "__init__.py").exists() or (ROOT / "src").joinpath(
        *folders, f"{name}.py"
    ).exists():
        return True
    package = (ROOT / "src").joinpath(*folders)
    file = package / "__init__.py" if package.is_dir() else package.with_suffix(".py")
    known = ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if file.exists() else ()
    return any(name in (getattr(one, "name", None), getattr(one, "asname", None)) for one in known)
