"""Suggested commands after a command, ready to copy."""

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from mezzo.cli.hints.suggestions import result_of
from mezzo.cli.options.options import CommandOptions
from mezzo.contracts.options.option import NAMING_NODES, Form, about, asked_so, spell_option
from mezzo.contracts.options.request import Request
from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.formats.dtypes import DType
from mezzo.report.layout.names import clean, join_or, quote
from mezzo.report.records.groups import choose_example, group_high_nodes
from mezzo.report.records.suggestions import free
from mezzo.report.text.chain import suggest_change
from mezzo.report.text.picture import Remedy, shown_islands
from mezzo.report.views.picture import Picture

Steps = list[tuple[str, str]]
_ASKED = 3


def steps_after_conversion(
    source: Path, plan: Plan, options: CommandOptions, replayed: Path | None, teller: Path | None
) -> Steps:
    """Suggestions after a conversion.

    `teller` is the file that `mezzo explain` can answer from, if there is one: a model with
    `options`, or a plan, which has its own.
    """
    steps: Steps = []
    example = choose_example(plan)
    if example is not None and teller is not None:
        explain_options = CommandOptions() if teller.suffix.lower() == ".json" else options
        steps.append((_ask(teller, example.name, explain_options), _why(example, plan)))
    # Neither a plan nor the model's metadata decided.
    is_free = replayed is None and not plan.origin
    if (
        is_free
        and options.word("policy") != "aggressive"
        and any(_is_policy(g.rule) for g in group_high_nodes(plan))
    ):
        bolder = options.with_words("policy", "aggressive")
        steps.append(
            (
                _command("plan", source, "", bolder),
                f"how much more a bolder policy runs in {join_or(plan.lows)}",
            )
        )
    return steps


def steps_to_free(
    source: Path,
    picture: Picture,
    plan: Plan,
    options: CommandOptions,
    replayed: Path | None = None,
) -> list[Remedy]:
    """The command that plans without an island's cause, per island; None if there is none."""
    remedies: list[Remedy] = []
    for island in shown_islands(picture):
        if replayed is not None:
            remedies.append(
                (None, f"the plan says so: give its nodes another precision in {_path(replayed)}")
            )
            continue
        freeing = free(island, plan)
        command: str | None = None
        if freeing.add:
            words = " ".join(_spell(*addition) for addition in freeing.add)
            command = _command(
                "plan", source, words, _without(options, [option for option, _ in freeing.add])
            )
        elif freeing.drop is not None:
            command = _command("plan", source, "", _dropped(options, freeing.drop, island.because))
        remedies.append((command, freeing.effect))
    return remedies


def _without(options: CommandOptions, added: Sequence[str]) -> CommandOptions:
    """The options without those that the added ones replace."""
    return options.without(
        *(
            option.name
            for option in fields(Request)
            if about(option).form not in NAMING_NODES
            and spell_option(option.name, about(option).form) in added
        )
    )


def _dropped(options: CommandOptions, option: str, because: str) -> CommandOptions:
    """The options without the pattern that gave this reason."""
    option_field = next(
        candidate
        for candidate in fields(Request)
        if spell_option(candidate.name, about(candidate).form) == option
    )
    patterns = options.written.get(option_field.name)
    if not isinstance(patterns, tuple):
        return options
    is_paired, rule = about(option_field).form is Form.PATH_DTYPES, option.removeprefix("--")
    remaining = tuple(
        p for p in patterns if asked_so(rule, p.rpartition("=")[0] if is_paired else p) != because
    )
    return options.with_words(option_field.name, remaining)


def steps_after_planning(
    source: Path, plan: Plan, options: CommandOptions, saved: Path | None
) -> Steps:
    """Suggestions after a plan."""
    result = result_of(source, plan)
    steps: Steps = []
    example = choose_example(plan)
    if example is not None:
        steps.append((_ask(source, example.name, options), _why(example, plan)))
    if saved is None:
        steps.append((_command("convert", source, _path(result), options), "convert as planned"))
    else:
        words = f"{_path(result)} --plan {_path(saved)}"
        steps.append(
            (
                _command("convert", source, words, options.beside_a_plan()),
                "replay the plan, edited or not",
            )
        )
    return steps


def steps_after_explanation(
    source: Path, chain: Sequence[PlannedNode], lows: Sequence[DType], options: CommandOptions
) -> Steps:
    """Options that change the nodes at both ends of a chain: the root and the requested node."""
    steps: Steps = []
    for node in dict.fromkeys((chain[-1], chain[0])):
        if node.rule in ("exclude", "keep-region", "fix-region"):
            dropped = _dropped(options, f"--{node.rule}", node.because)
            steps.append((_command("plan", source, "", dropped), f"leaves out that --{node.rule}"))
            continue
        change = suggest_change(node, lows)
        if change is not None:
            (option, value), effect = change
            steps.append(
                (
                    _command("plan", source, _spell(option, value), _without(options, [option])),
                    effect,
                )
            )
    return list(dict.fromkeys(steps))


def steps_to_single_nodes(
    source: Path, nodes: Sequence[PlannedNode], options: CommandOptions
) -> Steps:
    """`explain` commands for single nodes: the first of each rule and precision."""
    first = {(node.rule, node.precision): node for node in reversed(nodes)}
    examples = [node for node in nodes if first[node.rule, node.precision] is node][:_ASKED]
    return [
        (_ask(source, n.name, options), f"how this one came to {n.precision.compute}")
        for n in examples
    ]


def tell_of_a_plan(saved: Path, node: PlannedNode) -> str:
    """How to change a node of a saved plan: edit the plan."""
    return (
        f'another "precision" in the line of {clean(node.name)!r} in {_path(saved)}, and --plan'
        f" {_path(saved)}"
    )


def _is_policy(rule: str) -> bool:
    return rule not in ("include", "exclude", "schema", "target", "typed")


def _why(node: PlannedNode, plan: Plan) -> str:
    return (
        f"why this node {'stays' if node.precision.compute is plan.high else 'runs'} in"
        f" {node.precision.compute}"
    )


def _ask(source: Path, name: str, options: CommandOptions) -> str:
    if name.startswith("-"):  # not an option
        return f"{_command('explain', source, '', options)} -- {quote(name)}"
    return _command("explain", source, quote(name), options)


def _command(verb: str, source: Path, second: str, options: CommandOptions) -> str:
    return " ".join(
        word for word in ("mezzo", verb, _path(source), second, *options.words(verb)) if word
    )


def _spell(option: str, value: str) -> str:
    return quote(f"{option}={value}")


def _path(path: Path) -> str:
    return quote(os.fspath(path))
