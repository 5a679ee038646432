"""Suggested commands after a command, ready to copy."""

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo.cli.hints.suggestions import CommandContext, node_words, result_of, spell_command
from mezzo.cli.options.options import CommandOptions
from mezzo.contracts.options.option import (
    NAMING_NODES,
    Form,
    about,
    because_requested,
    spell_option,
)
from mezzo.contracts.options.request import Request
from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.conversion.results import decided_nodes
from mezzo.formats.format_words import FP32, WEIGHT_BITS, spell_formats
from mezzo.report.layout.names import clean, join_or, quote
from mezzo.report.records.groups import choose_example, group_high_nodes
from mezzo.report.records.suggestions import free
from mezzo.report.records.trust import where_error_begins
from mezzo.report.text.chain import suggest_change
from mezzo.report.text.picture import Remedy, shown_islands
from mezzo.report.views.picture import Picture

if TYPE_CHECKING:
    from mezzo.api.folders.converting import ConvertedFolder
    from mezzo.numerics.blames import Blame
    from mezzo.numerics.calibrations import Calibrations
    from mezzo.numerics.measures import Comparison

Steps = list[tuple[str, str]]
_ASKED = 3


def steps_after_conversion(context: CommandContext, plan: Plan) -> Steps:
    """Suggestions after a conversion."""
    if context.options.word("to") == FP32:
        words = ["--data", "random", *context.options.without_settings().words("compare")]
        command = spell_command("compare", context.result, context.source, *words)
        return [(command, "where the low file goes wrong; --data FILE.npz of yours proves more")]
    steps: Steps = []
    options, teller, example = context.options, context.teller, choose_example(plan)
    if example is not None and teller is not None:
        # A plan has its own options.
        explain_options = CommandOptions() if teller.suffix.lower() == ".json" else options
        steps.append((_ask(teller, example.name, explain_options), _why(example, plan)))
    # Neither a plan nor the model's metadata decided.
    is_free = context.saved is None and not plan.origin
    if (
        is_free
        and plan.lows
        and options.word("policy") != "aggressive"
        and any(_is_policy(group.rule) for group in group_high_nodes(plan))
    ):
        bolder = options.with_words("policy", "aggressive")
        why = f"how much more a bolder policy runs in {join_or(plan.lows)}"
        steps.append((_command("plan", context.source, "", bolder), why))
    return steps


def steps_to_free(context: CommandContext, picture: Picture, plan: Plan) -> list[Remedy]:
    """The command that plans without an island's cause, per island; None if there is none."""
    source, options, replayed = context.source, context.options, context.saved
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
            added = " ".join(_spell(*addition) for addition in freeing.add)
            remaining = _without(options, [option for option, _ in freeing.add])
            command = _command("plan", source, added, remaining)
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
        p
        for p in patterns
        if because_requested(rule, p.rpartition("=")[0] if is_paired else p) != because
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
        command = _command("convert", source, words, options.without_settings())
        steps.append((command, "replay the plan, edited or not"))
    return steps


def steps_after_explanation(
    source: Path, chain: Sequence[PlannedNode], plan: Plan, options: CommandOptions
) -> Steps:
    """Options that change the nodes at both ends of a chain: the root and the requested node."""
    steps: Steps = []
    for node in dict.fromkeys((chain[-1], chain[0])):
        if node.rule in ("exclude", "keep-region", "fix-region"):
            dropped = _dropped(options, f"--{node.rule}", node.because)
            steps.append((_command("plan", source, "", dropped), f"leaves out that --{node.rule}"))
            continue
        change = suggest_change(node, plan.lows, plan.weights_read(node.name))
        if change is not None:
            (option, value), effect = change
            remaining = _without(options, [option])
            steps.append((_command("plan", source, _spell(option, value), remaining), effect))
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


def steps_after_folder(folder: "ConvertedFolder", options: CommandOptions) -> Steps:
    """Suggestions after a folder conversion; `options` name no parts of a model."""
    source = folder.source / folder.files[0].source
    why = "why the nodes of one model run in what they run in"
    steps = [(_command("plan", source, "", options), why)]
    if folder.layout == "beside":
        words = f"{_path(folder.path / folder.files[0].result)} --data random"
        command = _command("compare", source, words, options.without_settings())
        steps.append((command, "the same answers? --data FILE.npz of yours proves more"))
    return steps


def steps_to_the_beginning(context: CommandContext, comparison: "Comparison") -> Steps:
    """A command that explains the first layer with an excessive error, if two models differ.

    It asks the compared model if its metadata has its decisions, else the reference.
    """
    if comparison.verdict.ruling.value != "different":
        return []
    beginning = where_error_begins(comparison)
    if beginning is None:
        return []
    is_decided = decided_nodes(context.result, trust_external_paths=context.trusts_paths)
    explained = context.result if is_decided else context.source
    words = [*context.options.words("explain"), *node_words(beginning.name)]
    why = "why what makes the first wrong value runs in what it does"
    return [(spell_command("explain", explained, *words), why)]


def steps_after_comparison(context: CommandContext, comparison: "Comparison") -> Steps:
    """Suggestions after a comparison."""
    reference, model = context.source, context.result
    words = [*context.data_words(context.data), *context.options.words("compare")]
    why = "what values hold, and what a format would lose"
    steps = [(spell_command("ranges", reference, *words), why)]
    if comparison.verdict.ruling.value in ("different", "undecided"):
        sensitivity = spell_command("sensitivity", reference, *words)
        steps.append((sensitivity, "which operators cost the error"))
        tune = spell_command("tune", reference, model, *words, "--max-error", "1e-3")
        steps.append((tune, "the fastest model inside a budget, in place of this one"))
    return steps


def steps_after_tuning(context: CommandContext) -> Steps:
    """Suggestions after a search."""
    source, result, options = context.source, context.result, context.options
    judge = context.data_words(context.held_out or context.data)
    judge += options.without_settings().words("compare")
    to = options.word("to")
    formats = [] if to is None else spell_formats(to).split(",")
    steps: Steps = []
    if not WEIGHT_BITS.keys() & set(formats):
        # Sensitivity takes one format.
        narrowed = options.with_words("to", formats[0]) if len(formats) > 1 else options
        words = [*context.data_words(context.data), *narrowed.words("sensitivity")]
        command = spell_command("sensitivity", source, *words)
        steps.append((command, "what each operator costs in error"))
    if not source.samefile(result):
        command = spell_command("compare", source, result, *judge)
        steps.insert(0, (command, "judge the result again, layer by layer"))
    return steps


def steps_after_calibrations(context: CommandContext, calibrations: "Calibrations") -> Steps:
    """The command that writes the result of the best calibrator."""
    best = calibrations.best
    if best is None:
        return []
    source, to = context.source, calibrations.to
    result = source.with_name(f"{source.stem}.{to.replace(',', '-')}.onnx")
    options = context.options.with_words("to", to).with_words("calibrator", best.calibrator)
    words = [*context.data_words(context.data), *options.words("convert")]
    why = "writes it: the most accurate among those with the most INT8 matmuls"
    return [(spell_command("convert", source, result, *words), why)]


def steps_after_blame(model: Path, blame: "Blame") -> Steps:
    """Commands that run the part at fault alone, and explain where the plan's error begins."""
    steps: Steps = []
    if blame.reproduction and blame.target is not None:
        part, arrays = blame.reproduction
        command = spell_command("blame", part, part, "--data", arrays, "--target", blame.target)
        steps.append((command, "runs the part alone"))
    if blame.plan_node is not None:
        steps.append((_ask(model, blame.plan_node.name, CommandOptions()), "why it runs so"))
    return steps


def advise_on_plan(saved: Path, node: PlannedNode) -> str:
    """How to change a node of a saved plan: edit the plan."""
    return (
        f'another "precision" in the line of {clean(node.name)!r} in {_path(saved)}, and --plan'
        f" {_path(saved)}"
    )


def _is_policy(rule: str) -> bool:
    return rule not in ("include", "exclude", "schema", "target", "typed")


def _why(node: PlannedNode, plan: Plan) -> str:
    if not plan.lows:
        return "how its weight is stored, and why"
    return (
        f"why this node {'stays' if node.precision.compute is plan.high else 'runs'} in"
        f" {node.precision.compute}"
    )


def _ask(source: Path, name: str, options: CommandOptions) -> str:
    return spell_command("explain", source, *node_words(name, *options.words("explain")))


def _command(verb: str, source: Path, second: str, options: CommandOptions) -> str:
    return spell_command(verb, source, second, *options.words(verb))


def _spell(option: str, value: str) -> str:
    return quote(f"{option}={value}")


def _path(path: Path) -> str:
    return quote(os.fspath(path))
