"""The commands worth trying after a command, spelled so that they can be copied."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mezzo.cli.options import Options
from mezzo.core.plans import Plan, PlannedNode
from mezzo.dtypes import DType
from mezzo.report.chain import suggest_change
from mezzo.report.freeing import free
from mezzo.report.groups import choose_example, group_high_nodes
from mezzo.report.names import clean, join_or, quote
from mezzo.report.picture import Remedy, shown_islands
from mezzo.views.picture import Picture

Steps = list[tuple[str, str]]


def steps_after_conversion(
    source: Path, plan: Plan, options: Options, replayed: Path | None, decided: Path | None
) -> Steps:
    """What to look at once a model is written. `decided`: the result, where data decided and it alone tells what."""
    steps: Steps = []
    example = choose_example(plan)
    if example is not None:
        told = replayed or decided
        steps.append((_ask(told or source, example.name, Options() if told else options), _why(example, plan)))
    is_free = replayed is None and not plan.origin  # and no plan, file or own, has decided
    if is_free and options.policy != "aggressive" and any(_is_policy(g.rule) for g in group_high_nodes(plan)):
        bolder = replace(options, policy="aggressive")
        steps.append(
            (_command("plan", source, "", bolder), f"how much more a bolder policy runs in {join_or(plan.lows)}")
        )
    return steps


def steps_to_free(
    source: Path, picture: Picture, plan: Plan, options: Options, replayed: Path | None = None
) -> list[Remedy]:
    """For each island that the report tells of, the command that shows the plan without it; None where none does."""
    found: list[Remedy] = []
    for island in shown_islands(picture):
        if replayed is not None:
            found.append((None, f"the plan says so: give its nodes another precision in {_path(replayed)}"))
            continue
        freeing = free(island, plan)
        command: str | None = None
        if freeing.add:
            words = [quote(option) for option in freeing.add]
            command = _command("plan", source, " ".join(words), _without(options, freeing.add))
        elif freeing.drop is not None:
            command = _command("plan", source, "", _dropped(options, freeing.drop, island.because))
        found.append((command, freeing.effect))
    return found


def _without(options: Options, added: Sequence[str]) -> Options:
    """The options without those that the added ones take the place of."""
    default = Options()
    for word in added:
        match word.partition("=")[0]:
            case "--target":
                options = replace(options, target=default.target)
            case "--policy":
                options = replace(options, policy=default.policy)
            case "--opset":
                options = replace(options, opset=default.opset)
            case "--io":
                options = replace(options, io=default.io)
            case "--out-of-range":
                options = replace(options, out_of_range=default.out_of_range)
    return options


def _dropped(options: Options, option: str, because: str) -> Options:
    """The options without the pattern that a reason names."""

    def others(words: Sequence[str]) -> tuple[str, ...]:
        return tuple(w for w in words if not {repr(w), repr(w.rpartition("=")[0])} & {_quoted(because)})

    match option:
        case "--exclude":
            return replace(options, exclude=others(options.exclude))
        case "--keep-region":
            return replace(options, keep_region=others(options.keep_region))
        case _:
            return replace(options, fix_region=others(options.fix_region))


def _quoted(because: str) -> str:
    """The pattern as the planner spells it at the end of "the user asked so with --exclude 'op:Gemm'"."""
    return because.partition(" with --")[2].partition(" ")[2]


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


def steps_after_explanation(
    source: Path, chain: Sequence[PlannedNode], lows: Sequence[DType], options: Options
) -> Steps:
    """The options that change the nodes at both ends of the chain: where the reason stands, and the asked one."""
    steps: Steps = []
    for node in dict.fromkeys((chain[-1], chain[0])):
        if node.rule in ("exclude", "keep-region", "fix-region"):
            dropped = _dropped(options, f"--{node.rule}", node.because)
            steps.append((_command("plan", source, "", dropped), f"leaves out that --{node.rule}"))
            continue
        change = suggest_change(node, lows)
        if change is not None:
            option, effect = change
            steps.append((_command("plan", source, quote(option), _without(options, [option])), effect))
    return list(dict.fromkeys(steps))


def steps_after_asking_a_plan(saved: Path, node: PlannedNode) -> Steps:
    """What changes a node of a saved plan: the plan itself."""
    effect = f'once another "precision" stands in the line of {clean(node.name)!r} in {_path(saved)}'
    return [(f"mezzo convert MODEL OUT --plan {_path(saved)}", effect)]


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
