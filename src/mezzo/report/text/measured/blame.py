"""Report of what is at fault where a low-precision model answers wrong on a device."""

import math
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from mezzo.numerics.blames import Blame, Finding, KernelFault
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, join_some
from mezzo.report.layout.numbers import spell_count, spell_data, spell_error
from mezzo.report.layout.parts import blank, heading, indented, make_table, section
from mezzo.report.records.documents import Document, document, encode, encode_fields
from mezzo.report.text.measured.comparison import RULINGS, report_notes

if TYPE_CHECKING:
    from mezzo.contracts.lab import NamedOperator
    from mezzo.numerics.measures import Comparison

_NODES_SHOWN = 8
_STYLES = {Finding.NEITHER: "bold green", Finding.UNKNOWN: "bold yellow"}
_WIDEST_TIMES = 1e6


def report_blame(layout: Layout, blame: Blame) -> list[RenderableType]:
    """The finding in a sentence, the three comparisons behind it, and the part at fault."""
    reference, model = map(clean, blame.names)
    parts: list[RenderableType] = [
        heading(f"{reference} <-> {model} on {clean(blame.device)}"),
        Text(clean(spell_data(blame.plan.data)), style="dim"),
        blank(),
    ]
    style = _STYLES.get(blame.finding, "bold red")
    sentences = spell_finding(blame)
    parts.append(Text.assemble((blame.finding.value, style), f": {sentences[0]}"))
    parts += [indented(sentence) for sentence in sentences[1:]]
    parts += [blank(), _comparisons(layout, blame)]
    kernel = blame.kernel
    if kernel is not None and len(kernel.nodes) > 1:
        table = make_table(layout, "node", "operator")
        for node in kernel.nodes[:_NODES_SHOWN]:
            table.add_row(Text(layout.spell_name(node.name), style="cyan"), clean(node.op))
        title = f"the part's {len(kernel.nodes)} nodes"
        if len(kernel.nodes) > _NODES_SHOWN:
            title += f", the first {_NODES_SHOWN}"
        parts += section(title, table)
    if kernel is not None:
        ports = f"reads {join_some(kernel.inputs, _NODES_SHOWN) or 'nothing'}; gives"
        runs = f"found in {spell_count(kernel.runs, 'run')} of parts on the device"
        parts += [blank(), indented(f"{ports} {join_some(kernel.outputs, _NODES_SHOWN)}"),
                  indented(runs, style="dim")]  # fmt: skip
    if blame.reproduction:
        paths = " and ".join(clean(str(path)) for path in blame.reproduction)
        parts.append(indented(f"written: {paths}, the part, its inputs and its right outputs"))
    return [*parts, *report_notes(blame.notes)]


def spell_finding(blame: Blame) -> list[str]:
    """What is at fault, in a sentence each for kernel and plan."""
    sentences = []
    finding = blame.finding
    if finding in (Finding.KERNEL, Finding.BOTH):
        sentences.append(_spell_kernel(blame))
    if finding in (Finding.PLAN, Finding.BOTH):
        where = "" if blame.plan_node is None else f"; it begins at {_name(blame.plan_node)}"
        sentences.append(
            f"the model is wrong as its own types say: {clean(blame.plan.verdict.because)}{where}"
        )
        if blame.hides_plan:
            sentences.append("this device hides it, as it computes in a wider type than the file's")
    if finding is Finding.NEITHER:
        sentences.append(
            "the device answers as the model's types say, and these answers are within the bound"
        )
    if finding is Finding.UNKNOWN:
        sentences.append(
            "the device answers as the model's types say, and whether these answers are right is"
            f" open: {clean(blame.plan.verdict.because)}"
        )
    return sentences


def _spell_kernel(blame: Blame) -> str:
    device, kernel = clean(blame.device), blame.kernel
    if kernel is None:
        if blame.kernels is None:
            return f"{device} does not run the model: {clean(blame.fault or '')}"
        because = clean(blame.kernels.verdict.because)
        return f"{device} does not compute what the model's types say: {because}"
    what = _spell_part(kernel)
    if math.isnan(kernel.error):
        return f"{device} does not run {what}: {clean(kernel.fault or '')}"
    times = kernel.error / kernel.noise if kernel.noise else math.inf
    share = f"{times:.3g} times its noise" if times < _WIDEST_TIMES else "past all noise"
    fault = "" if kernel.fault is None else f"; {clean(kernel.fault)}"
    error = spell_error(kernel.error)
    return f"{what} on {device} differs from its own types by {error}, {share}{fault}"


def _spell_part(kernel: KernelFault) -> str:
    first, last = kernel.nodes[0], kernel.nodes[-1]
    if len(kernel.nodes) == 1:
        return f"the kernel of {_name(first)}"
    return (
        f"a part of {len(kernel.nodes)} nodes, {_name(first)} to {_name(last)}, and no smaller one,"
    )


def _name(node: "NamedOperator") -> str:
    return f"{clean(node.name)!r} ({clean(node.op)})"


def _comparisons(layout: Layout, blame: Blame) -> RenderableType:
    numbers = ("error", "bound")
    table = make_table(layout, "compared", *numbers, "verdict", right=numbers)
    rows: tuple[tuple[str, Comparison | None], ...] = (
        ("emulation of the model <-> FP32", blame.plan),
        ("device <-> emulation", blame.kernels),
        ("device <-> FP32", blame.outcome),
    )
    for what, comparison in rows:
        if comparison is None:
            table.add_row(what, "-", "-", Text("does not run", style="bold red"))
            continue
        verdict = comparison.verdict
        word, style = RULINGS[verdict.ruling.value]
        table.add_row(
            what,
            spell_error(verdict.error.estimate),
            spell_error(verdict.budget),
            Text(word, style=style),
        )
    return table


def describe_blame(blame: Blame) -> Document:
    """The record as JSON data: of the comparisons, verdicts and outputs."""

    def shortened(comparison: "Comparison | None") -> object:
        if comparison is None:
            return None
        return {"verdict": encode(comparison.verdict), "outputs": encode(comparison.outputs)}

    fields = encode_fields(blame)
    compared = {name: shortened(getattr(blame, name)) for name in ("plan", "kernels", "outcome")}
    content = {
        "finding": blame.finding.value,
        **fields,
        **compared,
        "data": encode(blame.plan.data),
    }
    return document("blame", content)
