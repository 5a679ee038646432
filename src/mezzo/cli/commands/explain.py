"""mezzo explain: the chain of causes of a node's precision."""

import os
from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli.console import output_layout, print_document, print_report
from mezzo.cli.hints.completion import complete_node
from mezzo.cli.options import options as given


@given.with_options
def explain(
    *,
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="A model, or a plan saved as .json.", show_default=False
        ),
    ],
    node: Annotated[
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
    ],
    options: given.CommandOptions,
    as_json: given.AsJson = False,
) -> None:
    """Answer why a node runs in what it runs in: a sentence, how it came about, and what would
    change it.

    Give the options of the conversion: they are part of the answer. A saved plan has its own and
    needs none.
    """
    is_saved = model.suffix.lower() == ".json"
    chosen = options.to_library()

    from mezzo.api import convert as pipeline
    from mezzo.api.explain import chain_of, find_meant
    from mezzo.api.partition import find_unit
    from mezzo.cli.hints.next_commands import (
        steps_after_explanation,
        steps_to_single_nodes,
        tell_of_a_plan,
    )
    from mezzo.cli.progress import Patience
    from mezzo.contracts.options.keywords import named_settings
    from mezzo.io.planfile import load_plan
    from mezzo.planner.options import replay_options
    from mezzo.report.records.account import describe_chain, describe_meant
    from mezzo.report.text.chain import report_chain
    from mezzo.report.text.conversion import report_aside, report_next_steps
    from mezzo.report.text.meant import report_meant, report_origin
    from mezzo.report.text.measured.comparison import report_notes

    with Patience() as progress:
        plan = load_plan(model) if is_saved else pipeline.plan(model, **chosen, progress=progress)
    if is_saved and (settings := named_settings(chosen)):  # options must equal those of the plan
        replay_options(settings, plan)
    match = find_meant(plan, node)
    if len(match.nodes) > 1:
        if as_json:
            print_document(
                describe_meant(os.fspath(model), match.word, match.known.value, match.nodes)
            )
            return
        layout = output_layout()
        parts = report_meant(layout, match.word, match.known.value, match.nodes) + report_notes(
            plan.origin
        )
        steps = steps_to_single_nodes(
            model, match.nodes, given.CommandOptions() if is_saved else options
        )
        print_report(parts + report_next_steps(steps), layout)
        return
    chain = chain_of(plan, match.nodes[0])
    unit = None if is_saved else find_unit(model, chain[0].name, chosen)
    if as_json:
        print_document(describe_chain(os.fspath(model), chain, unit))
        return
    steps = [] if is_saved else steps_after_explanation(model, chain, plan.lows, options)
    target = dict(plan.settings).get("target", "")
    precisions = {entry.name: entry.precision.compute for entry in plan.nodes}
    parts = report_chain(chain, plan.lows, unit, target, precisions) + report_notes(plan.origin)
    parts = report_origin(match.word, match.known.value, chain[0]) + parts
    changes = "what would change it"
    parts += report_next_steps(steps, changes) if steps else []
    parts += report_aside(tell_of_a_plan(model, chain[0]), changes) if is_saved else []
    print_report(parts, output_layout())
