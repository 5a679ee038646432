"""mezzo explain: why a node has its precision, back to the node that caused it."""

import os
from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli import options as given
from mezzo.cli.completing import complete_node
from mezzo.cli.console import output_layout, print_document, print_report


@given.with_options
def explain(
    *,
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model, or a plan saved as .json.", show_default=False)
    ],
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE",
            help="The node's name; 'mezzo plan MODEL --nodes' lists them.",
            show_default=False,
            autocompletion=complete_node,
        ),
    ],
    options: given.Options,
    as_json: given.AsJson = False,
) -> None:
    """Answer why a node runs in what it runs in: a sentence, how it came about, and what would change it.

    Give the options of the conversion: they are part of the answer. A saved plan has its own and needs none.
    """
    is_saved = model.suffix.lower() == ".json"
    chosen = options.to_library()

    from mezzo.cli.progress import Patience
    from mezzo.cli.steps import steps_after_asking_a_plan, steps_after_explanation
    from mezzo.core.keywords import named_settings
    from mezzo.deciding.options import replay_options
    from mezzo.files.planfile import load_plan
    from mezzo.report.account import describe_chain
    from mezzo.report.chain import report_chain
    from mezzo.report.comparison import report_notes
    from mezzo.report.text import report_next_steps
    from mezzo.verbs import convert as pipeline
    from mezzo.verbs.partition import find_unit

    with Patience() as progress:
        plan = load_plan(model) if is_saved else pipeline.plan(model, **chosen, progress=progress)
    if is_saved and (settings := named_settings(chosen)):  # they may only say again what the plan was made with
        replay_options(settings, plan)
    chain = pipeline.explain(plan, node)
    unit = None if is_saved else find_unit(model, chain[0].name, chosen)
    if as_json:
        print_document(describe_chain(os.fspath(model), chain, unit))
        return
    if is_saved:
        steps = steps_after_asking_a_plan(model, chain[0])
    else:
        steps = steps_after_explanation(model, chain, plan.lows, options)
    target = dict(plan.settings).get("target", "")
    precisions = {one.name: one.precision.compute for one in plan.nodes}
    parts = report_chain(chain, plan.lows, unit, target, precisions) + report_notes(plan.origin)
    parts += report_next_steps(steps, "what would change it") if steps else []
    print_report(parts, output_layout())
