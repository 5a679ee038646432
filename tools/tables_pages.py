"""Writes docs/reference/policies.md, targets.md and operators.md: the tables that decisions are made from.

python tools/tables_pages.py           # writes the pages
python tools/tables_pages.py --check   # ends with 1 if a page differs from the tables
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from generated import keep

from mezzo.analysis.structure import rules_of, structure_rules
from mezzo.plugins import discovery
from mezzo.plugins.entries import BUILT_IN
from mezzo.report.text.catalogue import block_rows, format_name, quantized_rows, sum_rows
from mezzo.tables import facts
from mezzo.tables.ops import dialects, op_facts
from mezzo.tables.policy import Lifting, Policy, Rule
from mezzo.tables.rows import EVERY_VERSION
from mezzo.tables.target import KernelListing, Refusal, Target

T = TypeVar("T")
FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
_WRITTEN = "<!-- Written by tools/tables_pages.py from the tables themselves: change those, then run the script. -->\n"
# What people call a dialect; others by their domain.
_DIALECTS = {
    "aten": "PyTorch (aten)",
    "higher_order": "PyTorch, operators that take functions (higher_order)",
    "onnx": "ONNX",
    "prims": "PyTorch, what decompositions are written in (prims)",
}
_PRESETS = ("balanced", "conservative", "aggressive", "off")  # the rest stands for other systems


def check_entry_points() -> None:
    """Without mezzo's entry points the reference systems would be missing in the pages."""
    if not {"tvm", "mxnet"} <= {*discovery.policies()}:
        sys.exit("mezzo's entry points are not installed: run 'pip install --no-deps -e .', then this again")


def spell_policies() -> Iterator[str]:
    """Policies and strategies: what is wanted, and how casts are placed."""
    yield "# Policies and strategies\n"
    yield _WRITTEN
    yield (
        "A **policy** says what is wanted of each operator: `allow` (low precision), `infer` (as its neighbours), "
        "`clear` (the same, for what only moves values), `deny` (FP32). The first rule that speaks of a node decides. "
        "A **strategy** then decides what is left open and so where casts stand. `mezzo policies` and "
        "`mezzo strategies` print the same; [a policy of your own](../how-to/policies.md) is a TOML file.\n"
    )
    yield "## Strategies\n"
    yield from _table(
        ("strategy", "how it decides"),
        ((f"`{name}`", strategy.summary) for name, strategy in _built_in(discovery.strategies())),
    )
    yield "## Structure rules\n"
    yield (
        "They look for what no single operator tells: a pattern, a constant, a chain. What they find stays FP32 unless "
        "the policy leaves their findings out, or a rule about a name or a region says otherwise.\n"
    )
    yield (
        "With data some of it is lifted: *by ranges* where every value of a node was measured and fits with headroom, "
        "*by outputs* where the answers are right without it. *never* stands whatever data shows, but a finding about "
        "an operator that only follows may still be lifted by ranges.\n"
    )
    ordered = sorted(structure_rules(), key=lambda rule: rule.name)
    yield from _table(("rule", "finds", "lifted"), ((f"`{r.name}`", r.summary, r.lifting.value) for r in ordered))
    found = dict(_built_in(discovery.policies()))
    for name in (*_PRESETS, *(name for name in sorted(found) if name not in _PRESETS)):
        yield from _spell_policy(found[name])


def _built_in(table: "discovery.Table[T]") -> list[tuple[str, T]]:
    """What comes with mezzo, in the order of names; what packages of this machine add stands apart."""
    return [(name, table[name]) for name in sorted(table) if table.origins[name] is BUILT_IN]


_KEPT_ANYWAY = " What reads a constant that the format cannot hold keeps FP32 under every policy."


def _spell_policy(policy: Policy) -> Iterator[str]:
    yield f"## {policy.name}\n"
    yield f"{_sentence(policy.summary)}\n"
    rows = [
        (f"`{rule.name}`", _gives(rule), _subject(rule), rule.because) for rule in policy.rules
    ]  # in order: the first decides
    rows.append(("otherwise", policy.otherwise.value, "the rest", "no rule above speaks of the operator"))
    yield from _table(("rule", "gives", "about", "why"), rows)
    if policy.findings is None:
        yield "What structure rules find, all of them, keeps FP32 too.\n"
    else:
        names = ", ".join(f"`{rule.name}`" for rule in rules_of(policy))
        yield f"Structure rules whose findings keep FP32 too: {names}.{_KEPT_ANYWAY}\n"


def _gives(rule: Rule) -> str:
    formats = ", ".join(sorted(map(str, rule.formats)))
    lifted = f", lifted {rule.lifting.value}" if rule.lifting is not Lifting.NEVER else ""
    return f"{rule.category.value} ({formats}){lifted}" if formats else f"{rule.category.value}{lifted}"


def _subject(rule: Rule) -> str:
    words = [word.value for word in sorted((*rule.costs, *rule.risks), key=lambda word: word.value)]
    words += [f"`{op}`" for op in sorted(rule.ops)]
    return ", ".join([*words, *map(str, rule.where)]) or "everything"


def spell_targets() -> Iterator[str]:
    """What each runtime cannot run, or what alone it runs."""
    yield "# Targets\n"
    yield _WRITTEN
    yield (
        "A target says what a runtime or device runs in which type. Every row has a source. `mezzo targets NAME` "
        "prints the same; `python tools/probe_runtimes.py TARGET` asks the installed "
        "runtime; [a target of your own](../how-to/targets.md) is a TOML file.\n"
    )
    for _, target in _built_in(discovery.targets()):
        yield from _spell_target(target)


def _spell_target(target: Target) -> Iterator[str]:
    yield f"## {target.name}\n"
    # What the installed runtime decides is another machine's number.
    newest = target.newest.get("onnx")
    is_ours = newest is not None and "installed" not in target.summary
    yield f"{_sentence(target.summary)}{f' Opsets up to {newest}.' if is_ours else ''}\n"
    if target.default_for:
        yield f"The default for {', '.join(f'`{formats}`' for formats in target.default_for)}.\n"
    for note in target.notes:
        yield f"> {note}\n"
    if target.gains:
        rows = (
            (
                format_name(g.dtype),
                "yes" if g.is_faster else "no",
                g.because,
                " or ".join(g.needs),
                _cite(g.source, g.since),
            )
            for g in target.gains
        )
        yield from _table(("format", "faster", "why", "needs", "source"), rows)
    if target.refusals:
        yield "Refused:\n"
        rows = (
            (_op(r.dialect, r.op), ", ".join(sorted(map(str, r.dtypes))) or "all", _place(r), r.because,
             _cite(r.source, r.since))
            for r in target.refusals
        )  # fmt: skip
        yield from _table(("operator", "format", "where", "because", "source"), rows)
    for listing in target.listings:
        yield from _spell_listing(listing)
    if target.quantized:
        yield "Runs on quantized operands:\n"
        rows = ((_quoted(ops), *told) for ops, *told in quantized_rows(target))
        yield from _table(("operator", "reads", "hands on", "takes in", "source"), rows)
    if target.in_blocks:
        yield "Reads weights in blocks:\n"
        rows = ((_quoted(ops), *told) for ops, *told in block_rows(target))
        yield from _table(("operator", "weight", "block sizes", "read as", "source"), rows)
    if sums := sum_rows(target):
        yield "Sums within operators that are not in FP32 or INT32:\n"
        rows = ((_quoted(ops), *told) for ops, *told in sums)
        yield from _table(("operator", "format", "accumulators", "source"), rows)


def _spell_listing(listing: KernelListing) -> Iterator[str]:
    yield f"Runs in {listing.dtype} ({_cite(listing.source, listing.since)}):\n"
    names = sorted(f"{_op(kernel.dialect, kernel.op)}{_versions(kernel.versions)}" for kernel in listing.kernels)
    yield f"{', '.join(names) or 'nothing'}.\n"


def _place(row: Refusal) -> str:
    parts = [f"version{_versions(row.versions)}"] if row.versions != EVERY_VERSION else []
    for name, wanted in row.attributes.items():
        values = sorted(map(str, wanted)) if isinstance(wanted, frozenset) else [str(wanted)]
        parts.append(f"{name} {' or '.join(values)}")
    if row.needs:
        parts.append(f"with {' or '.join(row.needs)}")
    return ", ".join(parts)


def _versions(versions: tuple[int, int]) -> str:
    first, last = versions
    if versions == EVERY_VERSION:
        return ""
    return f" from {first}" if last == EVERY_VERSION[1] else f" {first}" if first == last else f" {first}-{last}"


def _op(dialect: str, op: str) -> str:
    return f"`{op}`" if dialect == "onnx" else f"`{dialect}:{op}`"


def _quoted(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))


def _cite(source: str, since: str) -> str:
    return source if not since or since in source else f"{source}; {since}"


def spell_operators() -> Iterator[str]:
    """What is true of each operator in any model."""
    yield "# Operators\n"
    yield _WRITTEN
    yield (
        "What is true of an operator in any model, on any device, under any policy: what its time goes into, and why "
        "it may be wrong in fewer bits. A row names no format; [policies](policies.md) say which risk matters in "
        "which. `mezzo ops '*Norm*'` prints the rows of a few operators, with what each policy makes of them. An "
        "operator without a row stays FP32.\n"
    )
    yield "## The words\n"
    source = inspect.getsource(facts)
    for title, words in (("cost", facts.Cost), ("risk", facts.Risk), ("transfer", facts.Transfer)):
        rows = ((f"`{word.value}`", _comment(source, word.name, word.value)) for word in words)
        yield from _table((title, "meaning"), rows)
    yield (
        "*Keeps values*: hands on numbers it reads. *Bounded*: its result stays within a range that does not depend on "
        "what it reads. *Transfer*: by which law sizes go forward through it and tolerances back, for [what is known "
        "without data](../explanation/without-data.md); *not followed* means that nothing is suspected of what it "
        "makes. *Like*: the operator of ONNX that does the same, or whose backward this is; what a policy says of that "
        "one by name it says of this one too.\n"
    )
    for dialect in sorted(dialects(), key=lambda name: (name != "onnx", name)):
        yield f"## {_DIALECTS.get(dialect, dialect)}\n"
        yield from (f"{line}\n" for line in _spell_names(dialect))
        table = op_facts(dialect).values()
        likes = ("like",) if any(row.like for row in table) else ()
        rows = (
            (f"`{row.op}`", *(f"`{row.like}`" if row.like else "" for _ in likes), row.cost.value,
             ", ".join(sorted(risk.value for risk in row.risks)),
             "yes" if row.keeps_values else "", "yes" if row.is_bounded else "",
             "not followed" if row.transfer is None else row.transfer.value)
            for row in table
        )  # fmt: skip
        yield from _table(("operator", *likes, "cost", "risks", "keeps values", "bounded", "transfer"), rows)


def _spell_names(dialect: str) -> Iterator[str]:
    """How a dialect's rows are named, where that needs a word."""
    if dialect == "aten":
        yield (
            "PyTorch 2.13. A row is an operator's name without its overload, and holds of all its overloads but those "
            "with a row of their own, as `max.dim` beside `max`. `original_aten` names composites by the same rows. "
            "Operators that write into their operands have none."
        )


def _comment(source: str, name: str, value: str) -> str:
    """What the comment beside a word says; without one the word says all."""
    found = re.search(rf'^    {name} = "{re.escape(value)}"  # (.*)$', source, re.MULTILINE)
    return found.group(1) if found else ""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    names = list(titles)
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    yield "\n".join(line.replace("  |", " |") for line in lines) + "\n"


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "policies.md": spell_policies,
    "targets.md": spell_targets,
    "operators.md": spell_operators,
}


if __name__ == "__main__":
    check_entry_points()
    sys.exit(keep({FOLDER / name: "\n".join(spell()) for name, spell in PAGES.items()}, "the tables", __doc__))
