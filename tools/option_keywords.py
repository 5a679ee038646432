"""Writes what type checkers and editors read of the options of a request: src/mezzo/contracts/options/keyword_types.py,
and src/mezzo/__init__.pyi, the public names with every option as a keyword.

python tools/option_keywords.py           # writes the files
python tools/option_keywords.py --check   # ends with 1 if a file differs from the request
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from generated import keep
from public_stub import spell_stub

from mezzo.contracts.options.option import about
from mezzo.contracts.options.request import Request

_PACKAGE = Path(__file__).resolve().parents[1] / "src" / "mezzo"
_OPTIONS = _PACKAGE / "contracts" / "options"
_HEAD = '''\
"""Typed keywords of the public verbs, one for each option of a request; None is the default.

Written by tools/option_keywords.py from the fields of `Request`: change those, then run it.
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from mezzo.contracts.options.request import IO, PolicyLike, TargetLike
from mezzo.formats.format_words import FormatLike


class PlanOptions(TypedDict, total=False):
    """The options that decide; their defaults are those of `Request`."""

'''
_OF_RESULTS = '''

class ConvertOptions(PlanOptions, total=False):
    """The options that decide, and those about the model that is written."""

'''


def spell_types() -> str:
    """The whole file."""
    deciding, of_result = ([o.name for o in fields(Request) if about(o).is_of_result is is_] for is_ in (False, True))
    types = dict(_types())
    return _HEAD + _spell(deciding, types) + _OF_RESULTS + _spell(of_result, types)


def _types() -> Iterator[tuple[str, str]]:
    """The fields of a request, each with its type as it is written."""
    tree = ast.parse((_OPTIONS / "request.py").read_text(encoding="utf-8"))
    request = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Request")
    for line in request.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id, ast.unparse(line.annotation)


def _spell(names: list[str], types: dict[str, str]) -> str:
    return "".join(f"    {name}: {types[name].removesuffix(' | None')} | None\n" for name in names)


if __name__ == "__main__":
    types = spell_types()
    files = {_OPTIONS / "keyword_types.py": types, _PACKAGE / "__init__.pyi": spell_stub(types)}
    sys.exit(keep(files, "the request", __doc__))
