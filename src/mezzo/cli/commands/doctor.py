"""mezzo doctor: installed packages, whether they work, and possible checks on this machine."""

import os
from pathlib import Path

import typer

from mezzo import __version__
from mezzo.cli.console import print_text
from mezzo.cli.options.options import AsJson
from mezzo.cli.output import print_result
from mezzo.cli.project_file import find_file

_BROKEN = 1


def doctor(as_json: AsJson = False) -> None:
    """Look at what is installed and at this machine: which runtimes work, what can be checked, how
    to get the rest.

    Each package is tried in a process of its own, so a broken one cannot break the report. Exit
    code 0: mezzo has all it needs; 1: something that it needs is broken, and the report says what
    to do.
    """
    from mezzo.cli.progress import Patience
    from mezzo.onnx.doctor.examine import examine
    from mezzo.planner.choices.gains import list_formats
    from mezzo.plugins import discovery
    from mezzo.report.text.doctor import describe_diagnosis, report_diagnosis

    targets = discovery.built_in_targets()
    with Patience() as progress:
        diagnosis = examine(targets, progress)
    formats = list_formats(diagnosis.machine, diagnosis.gpus)
    print_result(
        lambda: describe_diagnosis(__version__, diagnosis, formats),
        lambda layout: report_diagnosis(layout, __version__, diagnosis, formats),
        as_json=as_json,
    )
    config = find_file(Path.cwd())
    if config is not None and not as_json:
        print_text(f"\noptions that are not given come from {os.fspath(config)}")
    if not diagnosis.is_sound:
        raise typer.Exit(_BROKEN)
