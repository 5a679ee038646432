"""mezzo explain: the chain of causes of a node's precision."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli.hints.completion import complete_node
from mezzo.cli.options import options as shared
from mezzo.cli.output import print_result

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mezzo.api.explain import Meant
    from mezzo.contracts.plans import Plan
    from mezzo.report.layout.layout import Layout

_Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="A model, or a plan saved as .json.", show_default=False),
]
_Node = Annotated[
    str,
    typer.Argument(
        metavar="NODE",
        help=(
            "The name of a node or of a value, an operator such as Softmax, a module or a path"
            " of scopes such as "
            "encoder.layer.0, or a glob; 'mezzo plan MODEL --nodes' lists all nodes."
        ),
        show_default=False,
        autocompletion=complete_node,
    ),
]


@shared.with_options
def explain(
    *,
    model: _Model,
    node: _Node,
    options: shared.CommandOptions,
    as_json: shared.AsJson = False,
) -> None:
    """Answer why a node runs in what it runs in: a sentence, how it came about, and what would
    change it.

    Give the options of the conversion: they are part of the answer. A saved plan has its own and
    needs none.
    """
    is_saved = model.suffix.lower() == ".json"
    chosen = options.to_library()

    from mezzo.api import convert as pipeline
    from mezzo.api.explain import find_meant, weights_of
    from mezzo.cli.progress import Patience
    from mezzo.contracts.options.keywords import named_settings
    from mezzo.io.planfile import load_plan
    from mezzo.planner.options import replay_options
    from mezzo.report.records.account import describe_meant

    with Patience() as progress:
        plan = load_plan(model) if is_saved else pipeline.plan(model, **chosen, progress=progress)
    if is_saved and (settings := named_settings(chosen)):  # options must equal those of the plan
        replay_options(settings, plan)
    match = find_meant(plan, node)
    if len(match.nodes) == 1:
        _print_chain(model, plan, match, options, as_json=as_json)
        return
    meant = match.word, match.known.value, match.nodes
    weights = weights_of(plan, match)
    own_options = shared.CommandOptions() if is_saved else options
    print_result(
        lambda: describe_meant(os.fspath(model), *meant, weights),
        lambda layout: _report_meant(layout, model, plan, match, own_options),
        as_json=as_json,
    )


def _report_meant(
    layout: "Layout", model: Path, plan: "Plan", match: "Meant", options: shared.CommandOptions
) -> "list[RenderableType]":
    """The report on several nodes: their precisions, and commands that explain single ones."""
    from mezzo.api.explain import weights_of
    from mezzo.cli.hints.next_commands import steps_to_single_nodes
    from mezzo.report.text.conversion import report_next_steps
    from mezzo.report.text.meant import report_meant
    from mezzo.report.text.measured.comparison import report_notes
    from mezzo.report.text.weights import report_weights

    parts = report_meant(layout, match.word, match.known.value, match.nodes)
    parts += [*report_weights(weights_of(plan, match)), *report_notes(plan.origin)]
    return parts + report_next_steps(steps_to_single_nodes(model, match.nodes, options))


def _print_chain(
    model: Path, plan: "Plan", match: "Meant", options: shared.CommandOptions, *, as_json: bool
) -> None:
    """Print the chain of causes of one node. Options are those of a model; a plan has its own."""
    from mezzo.api.explain import chain_of, weights_of
    from mezzo.api.partition import find_unit
    from mezzo.cli.hints.next_commands import advise_on_plan, steps_after_explanation
    from mezzo.report.records.account import describe_chain
    from mezzo.report.text.chain import CHANGES, report_chain
    from mezzo.report.text.conversion import report_aside, report_next_steps
    from mezzo.report.text.meant import report_origin
    from mezzo.report.text.measured.comparison import report_notes
    from mezzo.report.text.weights import report_weights

    is_saved = model.suffix.lower() == ".json"
    chain = chain_of(plan, match.nodes[0])
    weights = weights_of(plan, match)
    # A kernel that reads the integers fuses nothing.
    has_unit = not is_saved and not any(weight.is_fused for weight in weights)
    unit = find_unit(model, chain[0].name, options.to_library()) if has_unit else None

    def report(layout: "Layout") -> "list[RenderableType]":
        target = dict(plan.settings).get("target", "")
        precisions = {entry.name: entry.precision.compute for entry in plan.nodes}
        parts = report_origin(match.word, match.known.value, chain[0])
        parts += report_chain(chain, plan.lows, unit, target, precisions)
        parts += [*report_weights(weights), *report_notes(plan.origin)]
        if is_saved:
            return parts + report_aside(advise_on_plan(model, chain[0]), CHANGES)
        steps = steps_after_explanation(model, chain, plan, options)
        return parts + (report_next_steps(steps, CHANGES) if steps else [])

    print_result(
        lambda: describe_chain(os.fspath(model), chain, unit, weights), report, as_json=as_json
    )
