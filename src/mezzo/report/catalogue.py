"""The tables of policies, strategies, targets and operators, for people."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from mezzo.dtypes import LOW_DTYPES
from mezzo.facts import OpFacts
from mezzo.policy import Policy
from mezzo.report.layout import Layout, blank, heading, indented
from mezzo.structure import structure_rules
from mezzo.target import Target

Row = tuple[str, OpFacts]  # dialect and facts
_DETAILED = 3


def report_policies(layout: Layout, policies: Iterable[Policy]) -> list[RenderableType]:
    """Lay out each preset with its rules in order."""
    lines: list[RenderableType] = []
    for policy in policies:
        table = layout.make_table("rule", "gives", "why", fixed=("rule", "gives"))
        for rule in policy.rules:
            formats = f" ({', '.join(sorted(map(str, rule.formats)))})" if rule.formats else ""
            table.add_row(Text(rule.name, style="cyan"), f"{rule.category.value}{formats}", rule.because)
        table.add_row(Text("otherwise", style="cyan"), policy.otherwise.value, "no rule above speaks of the operator")
        names = [rule.name for rule in structure_rules()] if policy.findings is None else policy.findings
        found = ", ".join(sorted(names)) or "none"
        lines += [heading(policy.name), indented(policy.summary), blank(), table]
        lines += [blank(), indented(f"and keeps high what these structure rules find: {found}"), blank()]
    return lines[:-1]


def report_strategies(layout: Layout, strategies: Mapping[str, str]) -> list[RenderableType]:
    """Lay out each strategy's name and summary."""
    table = layout.make_table("strategy", "how it decides", fixed=("strategy",))
    for name, summary in strategies.items():
        table.add_row(Text(name, style="cyan"), summary)
    return [table]


def report_targets(layout: Layout, targets: Iterable[Target]) -> list[RenderableType]:
    """Lay out each target with what it refuses and what to know before converting for it."""
    lines: list[RenderableType] = []
    for target in targets:
        newest = "any opset" if target.max_opset is None else f"opsets up to {target.max_opset}"
        lines += [heading(target.name), indented(f"{target.summary}; {newest}")]
        lines += [indented(f"note: {note}", style="dim") for note in target.notes]
        if target.refusals:
            table = layout.make_table("refuses", "in", "because", "source", fixed=("refuses",))
            for refusal in target.refusals:
                dtypes = ", ".join(sorted(map(str, refusal.dtypes))) or "every low dtype"
                table.add_row(Text(refusal.op, style="cyan"), dtypes, refusal.because, refusal.source)
            lines += [blank(), table]
        lines.append(blank())
    return lines[:-1]


def report_operators(layout: Layout, rows: Sequence[Row], policies: Sequence[Policy]) -> list[RenderableType]:
    """Lay out operator facts by dialect; for a few operators also what each policy makes of them, and the source."""
    lines: list[RenderableType] = []
    for dialect in dict.fromkeys(dialect for dialect, _ in rows):
        table = layout.make_table("operator", "cost", "risks", "traits", fixed=("operator", "cost"))
        members = [row for found, row in rows if found == dialect]
        for row in members:
            risks = ", ".join(sorted(risk.value for risk in row.risks))
            table.add_row(Text(row.op, style="cyan"), row.cost.value, risks, ", ".join(_traits(row)))
        count = f"{len(members)} operator{'s' if len(members) != 1 else ''}"
        lines += [heading(f"{dialect} ({count})"), table, blank()]
    if len(rows) <= _DETAILED:
        for dialect, row in rows:
            lines += _report_verdicts(layout, dialect, row, policies)
    return lines[:-1]


def _report_verdicts(layout: Layout, dialect: str, row: OpFacts, policies: Sequence[Policy]) -> list[RenderableType]:
    table = layout.make_table("policy", "to", "gives", "why", fixed=("policy", "to", "gives"))
    for policy in policies:
        for word, dtype in LOW_DTYPES.items():
            verdict = policy.judge((dialect, row.op), row, dtype)
            table.add_row(Text(policy.name, style="cyan"), word, verdict.category.value, verdict.because)
    source = indented(f"source of the facts: {row.source}")
    return [heading(f"what policies make of {dialect} {row.op}"), table, source, blank()]


def _traits(row: OpFacts) -> list[str]:
    return [name for name, has in (("keeps values", row.keeps_values), ("bounded", row.is_bounded)) if has]
