"""The suggested command at the end of a first screen, ready to copy."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from mezzo.cli.options.options import CommandOptions
from mezzo.contracts.options.data_files import DataFiles
from mezzo.contracts.plans import Plan
from mezzo.report.layout.names import quote
from mezzo.report.records.headline import Aim, Headline, Move, NextCommand

_BUDGET = "1e-3"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """The arguments of a command that the next one needs again.

    `verb` is the command; `held_out` is data that a search did not use; `saved` a plan that was
    saved or replayed; `batch` the batch size; `steps` the length of a sequence; `teller` the file
    that `mezzo explain` can answer from if data decided; `budget` the bound on the error.
    """

    verb: str
    source: Path
    result: Path
    options: CommandOptions
    data: DataFiles | None = None
    held_out: DataFiles | None = None
    labels: Sequence[str] = ()
    batch: int | None = None
    steps: int | None = None
    teller: Path | None = None
    saved: Path | None = None
    budget: str | None = None

    @property
    def trusts_paths(self) -> bool:
        """Whether models may have external data anywhere."""
        return bool(self.options.written.get("trust_external_paths"))

    def data_words(self, data: DataFiles | None) -> list[str]:
        """The options that give a command this data, with the same labels and batch size."""
        if data is None:
            return []
        labels = [word for label in self.labels for word in ("--labels", quote(label))]
        batch = [] if self.batch is None else ["--batch", str(self.batch)]
        steps = [] if self.steps is None else ["--steps", str(self.steps)]
        files = [word for source in data.sources for word in ("--data", quote(source))]
        images = [] if data.preprocess is None else ["--preprocess", quote(data.preprocess)]
        folder = [] if data.tokenizer is None else ["--tokenizer", quote(data.tokenizer)]
        return [*files, *images, *folder, *labels, *batch, *steps]


def spell_command(verb: str, *words: str | Path) -> str:
    """A command: paths are quoted, and empty words left out."""
    spelled = (quote(os.fspath(word)) if isinstance(word, Path) else word for word in words)
    return " ".join(word for word in ("mezzo", verb, *spelled) if word)


def node_words(name: str, *options: str) -> list[str]:
    """The name of a node and options: a name that looks like an option comes last."""
    return [*options, "--", quote(name)] if name.startswith("-") else [quote(name), *options]


def result_of(source: Path, plan: Plan) -> Path:
    """The path for a planned model's result, in the source's folder."""
    word = "-".join(plan.formats) or "low"
    return source.with_name(f"{source.stem}.{word}.onnx")


def with_step(headline: Headline, context: CommandContext) -> Headline:
    """The headline with its aim as a command."""
    return headline.with_step(spell_step(headline.aim, context))


def spell_step(aim: Aim, context: CommandContext) -> NextCommand:
    """The command for an aim, and its purpose."""
    source, result = context.source, context.result
    if context.verb in ("convert", "tune") and _is_replaced(source, result):
        why = "shows the model that replaced the source"
        return NextCommand(spell_command("show", result), why)
    match aim.move:
        case Move.WRITE:
            return _write(context)
        case Move.JUDGE | Move.JUDGE_ON_OWN_DATA:
            return _judge(aim, context)
        case Move.RETARGET if not aim.words:
            why = "which target gains, by which format, and what it takes"
            return NextCommand(spell_command("targets"), why)
        case Move.RETARGET:
            return _retarget(aim, context)
        case Move.TUNE | Move.LOOSEN:
            return _tune(aim, context)
        case Move.MEASURE:
            data_words = context.data_words(context.held_out or context.data)
            words = [*data_words, *context.options.without_settings().words("ranges")]
            why = "what values hold, and what a format would lose"
            return NextCommand(spell_command("ranges", source, *words), why)
        case Move.REPLAN:
            words = ["--to", aim.words["to"], "--data", "random"]
            why = "plans it anew; --data FILE.npz of yours shows what overflows"
            return NextCommand(spell_command("convert", result, *words), why)
        case Move.EXPLAIN if "node" not in aim.words:
            why = "the model as text: no node of it has a precision to choose"
            return NextCommand(spell_command("show", source), why)
        case Move.EXPLAIN:
            explained = context.teller or source
            is_plan = explained.suffix.lower() == ".json"
            options = [] if is_plan else context.options.words("explain")
            words = node_words(aim.words["node"], *options)
            why = "why this node runs in what it runs in"
            return NextCommand(spell_command("explain", explained, *words), why)
        case _:
            assert_never(aim.move)


def describe_swap(context: CommandContext) -> str:
    """The sentence on a comparison whose reference should come second, with the command to give."""
    budget = [] if context.budget is None else ["--max-error", context.budget]
    words = [*context.data_words(context.data), *budget, *context.options.words("compare")]
    command = spell_command("compare", context.result, context.source, *words)
    return (
        f"{os.fspath(context.source)!r} has low precision and {os.fspath(context.result)!r} has"
        f" none; the reference comes first: {command}"
    )


def _write(context: CommandContext) -> NextCommand:
    words, why = context.options.words("convert"), "converts as planned"
    if context.saved is not None:
        own_options = context.options.without_settings().words("convert")
        words = ["--plan", quote(os.fspath(context.saved)), *own_options]
        why = "replays the plan, edited or not"
    return NextCommand(spell_command("convert", context.source, context.result, *words), why)


def _judge(aim: Aim, context: CommandContext) -> NextCommand:
    data = context.held_out or context.data
    if aim.move is Move.JUDGE_ON_OWN_DATA:
        words = ["--data", _other_inputs(data)]
        why = (
            "on other random inputs; --data FILE.npz of yours, an array for each input, proves more"
        )
    elif data is None:
        words = ["--data", "random"]
        why = "does it run and answer the same? --data FILE.npz of yours proves more"
    else:
        words = context.data_words(data)
        why = "judges the result again, layer by layer"
    words += context.options.without_settings().words("compare")
    return NextCommand(spell_command("compare", context.source, context.result, *words), why)


def _retarget(aim: Aim, context: CommandContext) -> NextCommand:
    to, target = aim.words["to"], aim.words["target"]
    options = context.options.with_words("target", target).with_words("to", to)
    budget = [] if context.budget is None else ["--max-error", context.budget]
    words = [*context.data_words(context.data), *budget, *options.words(context.verb)]
    gain = f"{target}, which is installed here"
    if context.verb == "plan":
        return NextCommand(spell_command("plan", context.source, *words), f"what gains on {gain}")
    result = context.result.with_name(f"{context.source.stem}.{to}.onnx")
    command = spell_command(context.verb, context.source, result, *words)
    return NextCommand(command, f"gains on {gain}")


def _tune(aim: Aim, context: CommandContext) -> NextCommand:
    usual_budget = _BUDGET if context.budget in (None, "0") else context.budget
    budget = aim.words.get("max_error", usual_budget)
    options = context.options
    if "to" in aim.words:
        options = options.with_words("to", aim.words["to"])
    words = [*context.data_words(context.data), "--max-error", budget, *options.words("tune")]
    why = "the fastest model inside a budget of error, in place of this one"
    if aim.move is Move.LOOSEN:
        why = "with a budget that can be kept; --exclude keeps in FP32 what costs most"
    return NextCommand(spell_command("tune", context.source, context.result, *words), why)


def _other_inputs(data: DataFiles | None) -> str:
    """Random inputs with another seed than `data`: "random:8" after "random:7"."""
    seed = str(data or "").partition(":")[2]
    return f"random:{int(seed) + 1 if seed.isdecimal() else 1}"


def _is_replaced(source: Path, result: Path) -> bool:
    """Whether a result has replaced its source."""
    try:
        return source.samefile(result)
    except OSError:  # one of them does not exist
        return False
