"""Explanation of a plan's nodes as `mezzo explain` prints it, with Python's keywords."""

from collections.abc import Sequence

from rich.console import RenderableType

from mezzo.contracts.plans import Explanation
from mezzo.report.layout.layout import Layout
from mezzo.report.records.account import describe_chain, describe_meant
from mezzo.report.records.documents import Document
from mezzo.report.text.chain import CHANGES, report_chain
from mezzo.report.text.conversion import report_next_steps
from mezzo.report.text.meant import report_meant, report_origin
from mezzo.report.text.measured.comparison import report_notes
from mezzo.report.text.weights import report_weights

_MODEL = "the model"


def report_explanation(
    layout: Layout, explanation: Explanation, width: int
) -> Sequence[RenderableType]:
    """The chain of one node and what would change it, or several nodes by reason. A table takes
    the `width` of what prints it.
    """
    plan = explanation.plan
    asked = explanation.word, explanation.known
    if len(explanation.chains) > 1:
        parts = [*report_meant(layout, *asked, explanation.nodes)]
        return [*parts, *report_weights(explanation.weights), *report_notes(plan.origin)]
    chain = explanation.chains[0]
    target = dict(plan.settings).get("target", "")
    parts = [*report_origin(*asked, chain[0]), *report_chain(chain, plan.lows, target=target)]
    parts += [*report_weights(explanation.weights), *report_notes(plan.origin)]
    return parts + (report_next_steps(explanation.changes, CHANGES) if explanation.changes else [])


def describe_explanation(explanation: Explanation) -> Document:
    """The document of `mezzo explain --json`."""
    if len(explanation.chains) == 1:
        return describe_chain(_MODEL, explanation.chains[0], weights=explanation.weights)
    meant = explanation.word, explanation.known, explanation.nodes
    return describe_meant(_MODEL, *meant, weights=explanation.weights)
