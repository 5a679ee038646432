"""The suggested command at the end of a first screen, ready to copy."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from mezzo.cli.options.options import CommandOptions
from mezzo.contracts.plans import Plan
from mezzo.formats.format_words import words_of
from mezzo.report.layout.names import quote
from mezzo.report.records.headline import Aim, Headline, Move, NextCommand

_BUDGET = "1e-3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The arguments of a command that the next one needs again.

    `verb` is the command; `held_out` is data that a search did not use; `saved` a plan that was
    saved or replayed; `batch` the batch size; `teller` the file that `mezzo explain` can answer
    from if data decided; `budget` the bound on the error.
    """

    verb: str
    source: Path
    result: Path
    options: CommandOptions
    data: Path | None = None
    held_out: Path | None = None
    labels: Sequence[str] = ()
    batch: int | None = None
    teller: Path | None = None
    saved: Path | None = None
    budget: str | None = None


def result_of(source: Path, plan: Plan) -> Path:
    """The path for a planned model's result, in the source's folder."""
    word = "-".join(words_of(plan.lows)) or "low"
    return source.with_name(f"{source.stem}.{word}.onnx")


def with_step(headline: Headline, given: Given) -> Headline:
    """The headline with its aim as a command."""
    return headline.with_step(spell_step(headline.aim, given))


def spell_step(aim: Aim, given: Given) -> NextCommand:
    """The command for an aim, and its purpose."""
    source, result, data = given.source, given.result, given.held_out or given.data
    if given.verb in ("convert", "tune") and _is_replaced(source, result):
        return NextCommand(
            _command("show", result),
            "what stands in the place of the source, which is there no more",
        )
    match aim.move:
        case Move.WRITE:
            if given.saved is not None:
                words = [*_plan_words(given.saved), *given.options.beside_a_plan().words("convert")]
                return NextCommand(
                    _command("convert", source, result, *words), "replays the plan, edited or not"
                )
            return NextCommand(
                _command("convert", source, result, *given.options.words("convert")),
                "converts as planned",
            )
        case Move.JUDGE if data is None:
            words = ["--data", "random", *given.options.beside_a_plan().words("compare")]
            why = "does it run and answer the same? --data FILE.npz of yours proves more"
            return NextCommand(_command("compare", source, result, *words), why)
        case Move.JUDGE:
            words = [*_data_words(data, given), *given.options.beside_a_plan().words("compare")]
            return NextCommand(
                _command("compare", source, result, *words),
                "judges the result again, layer by layer",
            )
        case Move.JUDGE_ON_OWN_DATA:
            words = ["--data", _other_inputs(data), *given.options.beside_a_plan().words("compare")]
            why = (
                "on other random inputs; --data FILE.npz of yours, an array for each input, proves"
                " more"
            )
            return NextCommand(_command("compare", source, result, *words), why)
        case Move.RETARGET if not aim.words:
            return NextCommand(
                "mezzo targets", "which target gains, by which format, and what it takes"
            )
        case Move.RETARGET:
            return _retarget(aim, given)
        case Move.TUNE | Move.LOOSEN:
            return _tune(aim, given)
        case Move.MEASURE:
            words = [*_data_words(data, given), *given.options.beside_a_plan().words("ranges")]
            return NextCommand(
                _command("ranges", source, *words), "what values hold, and what a format would lose"
            )
        case Move.EXPLAIN if "node" not in aim.words:
            return NextCommand(
                _command("show", source),
                "the model as text: no node of it has a precision to choose",
            )
        case Move.EXPLAIN:
            explained = given.teller or source
            words = [] if explained.suffix.lower() == ".json" else given.options.words("explain")
            node = aim.words["node"]
            arguments = (
                [*words, "--", quote(node)] if node.startswith("-") else [quote(node), *words]
            )
            return NextCommand(
                _command("explain", explained, *arguments), "why this node runs in what it runs in"
            )
        case _:
            assert_never(aim.move)


def _retarget(aim: Aim, context: Given) -> NextCommand:
    to, target = aim.words["to"], aim.words["target"]
    result = context.result.with_name(f"{context.source.stem}.{to}.onnx")
    options = context.options.with_words("target", target).with_words("to", to)
    words = [
        *_data_words(context.data, context),
        *_budget_words(context),
        *options.words(context.verb),
    ]
    if context.verb == "plan":
        return NextCommand(
            _command("plan", context.source, *words),
            f"what gains on {target}, which is installed here",
        )
    return NextCommand(
        _command(context.verb, context.source, result, *words),
        f"gains on {target}, which is installed here",
    )


def _tune(aim: Aim, context: Given) -> NextCommand:
    budget = aim.words.get(
        "max_error", context.budget if context.budget not in (None, "0") else _BUDGET
    )
    options = (
        context.options.with_words("to", aim.words["to"]) if "to" in aim.words else context.options
    )
    words = [*_data_words(context.data, context), "--max-error", budget, *options.words("tune")]
    why = "the fastest model inside a budget of error, in place of this one"
    if aim.move is Move.LOOSEN:
        why = "with a budget that can be kept; --exclude keeps in FP32 what costs most"
    return NextCommand(_command("tune", context.source, context.result, *words), why)


def _budget_words(context: Given) -> list[str]:
    return [] if context.budget is None else ["--max-error", context.budget]


def _plan_words(saved: Path) -> list[str]:
    return ["--plan", quote(os.fspath(saved))]


def _data_words(data: Path | None, context: Given) -> list[str]:
    if data is None:
        return []
    batch = [] if context.batch is None else ["--batch", str(context.batch)]
    labels = [word for label in context.labels for word in ("--labels", quote(label))]
    return ["--data", quote(os.fspath(data)), *labels, *batch]


def _other_inputs(data: Path | None) -> str:
    """Random inputs with another seed than `data`: "random:8" after "random:7"."""
    seed = os.fspath(data or "").partition(":")[2]
    return f"random:{int(seed) + 1 if seed.isdecimal() else 1}"


def _is_replaced(source: Path, result: Path) -> bool:
    """Whether a result has replaced its source."""
    try:
        return source.samefile(result)
    except OSError:  # one of them does not exist
        return False


def _command(verb: str, *words: str | Path) -> str:
    return " ".join(
        (
            "mezzo",
            verb,
            *(quote(os.fspath(word)) if isinstance(word, Path) else word for word in words),
        )
    )
