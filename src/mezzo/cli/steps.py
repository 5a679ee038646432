"""The commands worth trying after a command, spelled so that they can be copied."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mezzo.cli.options import Options
from mezzo.dtypes import DType
from mezzo.plans import Plan, PlannedNode
from mezzo.report.chain import suggest_change
from mezzo.report.groups import choose_example, group_high_nodes
from mezzo.report.names import quote

Steps = list[tuple[str, str]]


def steps_after_conversion(source: Path, plan: Plan, options: Options, replayed: Path | None) -> Steps:
    """What to look at once a model is written."""
    steps: Steps = []
    example = choose_example(plan)
    if example is not None:
        asked = (source, options) if replayed is None else (replayed, Options())
        steps.append((_ask(asked[0], example.name, asked[1]), _why(example, plan)))
    if replayed is None and options.policy != "aggressive" and any(_is_policy(g.rule) for g in group_high_nodes(plan)):
        bolder = replace(options, policy="aggressive")
        steps.append((_command("plan", source, "", bolder), f"how much more a bolder policy runs in {plan.low}"))
    return steps


def steps_after_planning(source: Path, plan: Plan, options: Options, saved: Path | None) -> Steps:
    """What to do with a plan."""
    result = source.with_name(f"{source.stem}.{options.to}.onnx")
    steps: Steps = []
    example = choose_example(plan)
    if example is not None:
        steps.append((_ask(source, example.name, options), _why(example, plan)))
    if saved is None:
        steps.append((_command("convert", source, _path(result), options), "convert as planned"))
    else:
        replay = Options(trust_external_paths=options.trust_external_paths)
        words = f"{_path(result)} --plan {_path(saved)}"
        steps.append((_command("convert", source, words, replay), "replay the plan, edited or not"))
    return steps


def steps_after_explanation(source: Path, chain: Sequence[PlannedNode], low: DType, options: Options) -> Steps:
    """The option that changes the node at the end of the chain, where its reason stands, and the asked one."""
    steps: Steps = []
    for node in dict.fromkeys((chain[0], chain[-1])):
        change = suggest_change(node, low)
        if change is not None:
            option, effect = change
            steps.append((_command("plan", source, quote(option), options), effect))
    return steps


def _is_policy(rule: str) -> bool:
    return rule not in ("include", "exclude", "schema", "target", "typed")


def _why(node: PlannedNode, plan: Plan) -> str:
    return f"why this node {'stays' if node.precision.compute is plan.high else 'runs'} in {node.precision.compute}"


def _ask(source: Path, name: str, options: Options) -> str:
    if name.startswith("-"):  # not an option
        return f"{_command('explain', source, '', options)} -- {quote(name)}"
    return _command("explain", source, quote(name), options)


def _command(verb: str, source: Path, second: str, options: Options) -> str:
    return " ".join(word for word in ("mezzo", verb, _path(source), second, *options.words()) if word)


def _path(path: Path) -> str:
    return quote(os.fspath(path))
