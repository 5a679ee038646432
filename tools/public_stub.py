"""The stub of the package: its public names as editors and type checkers read them.

A verb with options has one keyword for each field of a request there, with its type, its default and its help.
"""

import ast
import builtins
import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FunctionType

import mezzo

HEAD = '''\
"""mezzo: automatic mixed precision as a graph compiler pass.

Written by tools/option_keywords.py from the package's signatures and docstrings: change those, then
run it.
"""
'''
# Imports of a stub: a module, and the name taken from it; None where the module itself is named.
Imports = dict[tuple[str, str | None], None]


def spell_stub(keyword_types: str) -> str:
    """The whole file. `keyword_types`: the text of the module with the types of options."""
    types = ast.parse(keyword_types)
    members = {name: getattr(mezzo, name) for name in mezzo.__all__ if name != "__version__"}
    verbs = {
        name: member for name, member in members.items()
        if isinstance(member, FunctionType) and hasattr(member, "__signature__")
    }  # fmt: skip
    imports: Imports = {(member.__module__, name): None for name, member in members.items() if name not in verbs}
    definitions = [_spell_verb(verb, types, imports) for verb in verbs.values()]
    listed = "".join(f'    "{name}",\n' for name in mezzo.__all__)
    return "\n".join(
        [HEAD, *_spell_imports(imports), f"__all__ = [\n{listed}]", "", "__version__: str\n", *definitions]
    )


def _spell_verb(verb: FunctionType, types: ast.Module, imports: Imports) -> str:
    """A verb with its keywords. Adds to `imports` what its annotations name."""
    module = ast.parse(Path(str(sys.modules[verb.__module__].__file__)).read_text(encoding="utf-8"))
    definition = next(n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == verb.__name__)
    own = {arg.arg: arg.annotation for arg in (*definition.args.args, *definition.args.kwonlyargs)}
    options = {
        line.target.id: line.annotation
        for record in types.body if isinstance(record, ast.ClassDef)
        for line in record.body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }  # fmt: skip
    words: list[str] = []
    for parameter in inspect.signature(verb).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        if parameter.name in own:
            kind = _spell_type(own[parameter.name], module, verb.__module__, imports)
        else:
            kind = _spell_type(options[parameter.name], types, "", imports)
        default = "" if parameter.default is parameter.empty else f" = {_spell_default(parameter.default)}"
        words.append(f"{parameter.name}: {kind}{default}")
    result = _spell_type(definition.returns, module, verb.__module__, imports)
    parameters = "".join(f"    {word},\n" for word in words)
    return f"def {verb.__name__}(\n{parameters}) -> {result}:\n{_spell_doc(verb)}"


def _spell_default(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _spell_doc(verb: FunctionType) -> str:
    lines = f'"""{inspect.getdoc(verb)}\n"""'.splitlines()
    return "".join(f"    {line}".rstrip() + "\n" for line in lines)


def _spell_type(annotation: ast.expr | None, module: ast.Module, name: str, imports: Imports) -> str:
    """An annotation without quotes. Adds to `imports` where the module has its names from; `name` is its own."""
    assert annotation is not None, "public verbs are annotated"
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    homes = dict(_imported(module))
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
            imports[homes.get(node.id, (name, node.id))] = None
    return ast.unparse(annotation)


def _imported(module: ast.Module) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """The names that a module imports, each with its home."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((alias.name, (alias.name, None)) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.name, (str(node.module), alias.name)) for alias in node.names)


def _spell_imports(imports: Imports) -> Iterator[str]:
    """Import statements as ruff sorts them: the standard library, other packages, mezzo's own."""
    homes = {module for module, _ in imports}
    standard = {home for home in homes if home.partition(".")[0] in sys.stdlib_module_names}
    own = {home for home in homes if home.startswith("mezzo.")}
    for section in (standard, homes - standard - own, own):
        yield from (f"import {home}" for home in sorted(section) if (home, None) in imports)
        for home in sorted(section):
            names = sorted((name for module, name in imports if module == home and name is not None), key=_rank)
            if names:
                yield _spell_import(home, names)
        yield ""


def _rank(name: str) -> tuple[bool, bool, str]:
    """Constants, then classes, then functions."""
    return not name.isupper(), name[0].islower(), name


def _spell_import(home: str, names: Sequence[str]) -> str:
    line = f"from {home} import {', '.join(names)}"
    if len(line) <= 100:
        return line
    listed = "".join(f"    {name},\n" for name in names)
    return f"from {home} import (\n{listed})"
