"""Write docs/reference/cli.md from the command line itself. Run: python tools/cli_reference.py [--check]"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from generated import keep

from mezzo.cli.app import load_commands, make_app
from mezzo.cli.help import default_of, group_options
from mezzo.cli.hints.examples import EXAMPLES, TOP_EXAMPLES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "cli.md"
HEAD = """\
# The command line

<!-- Written by tools/cli_reference.py from the commands' own help: change that, then run the script. -->

`mezzo COMMAND --help-all` prints the same, and `--help` the options that most people need.
`mezzo --install-completion` teaches your shell (bash, zsh, fish) to complete
commands, options, the names of policies, strategies, targets, formats and operators, and the node names of the model
that stands on the command line. The model is read, never run; its names are kept in the user's cache folder
(`$XDG_CACHE_HOME/mezzo/names`), and names with signs that a shell would act on are not offered.

## Exit codes

| code | meaning |
|---|---|
| 0 | done |
| 1 | refused: the result would break a contract (`--out-of-range error`); a comparison finds other answers, \
`diff` a difference, `show --grep` no line, or a file of `bench` does not run |
| 2 | bad input: a file, an option, a pattern or a plan; one line on stderr says which, and nothing is written |
| 3 | cannot tell: data with NaN, infinities or no sample, a reference whose answers are not finite, never change or \
are noise, or too few samples to decide; what is written is safe by what is known without data |
| 130 | interrupted from the keyboard (`mezzo: interrupted`); nothing is left half-written |

## Output

Reports go to stdout, errors and progress to stderr. In a terminal reports have colours and rules and wrap at its
width; in a pipe they are plain, and a line is as long as what it says. `--json` prints one JSON document and nothing
else; its `format` says what it is, with a version: `mezzo-account/1` from `convert`, `compare`, `ranges`,
`sensitivity` and `tune`, which [the account as data](account.md) tells field by field; `mezzo-plan/1`,
`mezzo-plan-diff/1`, `mezzo-explanation/1`, `mezzo-policies/1`, `mezzo-strategies/1`,
`mezzo-targets/1`, `mezzo-ops/1`, `mezzo-partition/1`, `mezzo-extracted/1`, `mezzo-bench/1`, which
[times as data](bench.md) tells, and `mezzo-quantize-report/1`, which [calibrators as data](quantize-report.md) tells.
Names come from the model, so characters that a terminal would act on are shown escaped.
"""

# Their words change with typer's version; the head of the page tells of them.
_TYPERS_OWN = ("install_completion", "show_completion")


def render() -> str:
    """Lay out the whole page."""
    group: Any = typer.main.get_command(make_app())
    parts = [HEAD, *_render_command("mezzo", group, TOP_EXAMPLES)]
    for name, command in load_commands().items():
        parts += _render_command(f"mezzo {name}", command, name)
    return "\n".join(parts)


def _render_command(title: str, command: Any, examples: str) -> Iterator[str]:
    yield f"## {title}\n"
    yield f"{inspect.cleandoc(command.help)}\n"
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    groups = group_options(p for p in command.params if p.name not in _TYPERS_OWN)
    if arguments:
        yield "| argument | meaning |\n|---|---|"
        yield from (f"| `{_cell(p.metavar or p.name)}` | {_cell(p.help)} |" for p in arguments)
        yield ""
    yield "| option | meaning | default |\n|---|---|---|"
    for name, options in groups.items():
        if len(groups) > 1:
            yield f"| **{name}** | | |"
        for option in options:
            yield f"| {_cell(_spelling(option))} | {_cell(option.help)} | {_cell(_default(option))} |"
    yield "\n```sh"
    for words, effect in EXAMPLES[examples]:
        yield f"{words}  # {effect}" if effect else words
    yield "```\n"


def _spelling(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    if option.is_flag:
        return names
    return f"{names} `{option.metavar or 'NAME'}`"


def _default(option: Any) -> str:
    default = default_of(option)
    return default if not default or isinstance(option.show_default, str) else f"`{default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(keep({PAGE: render()}, "the command line", __doc__))
