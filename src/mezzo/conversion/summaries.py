"""Headlines of plans, conversions and folders, for this machine and its installed runtimes."""

from typing import TYPE_CHECKING

from mezzo.common.machine import find_machine
from mezzo.contracts.plans import Plan
from mezzo.planner.choices.gains import find_better
from mezzo.report.records.headline import Headline
from mezzo.report.records.headlines import find_worst_file as find_worst_file
from mezzo.report.records.headlines import head_conversion, head_folder, head_plan, head_tuning

if TYPE_CHECKING:
    from mezzo.report.text.folder import ConvertedLike, Folder


def summarise_plan(source: str, plan: Plan) -> Headline:
    """The headline of a plan."""
    machine = find_machine()
    return head_plan(source, plan, machine, find_better(plan.gain, machine))


def summarise_result(source: str, result: str, converted: "ConvertedLike") -> Headline:
    """The headline of a conversion, or of a search if the result comes from one."""
    machine, plan, measured = find_machine(), converted.plan, converted.measured
    has_tried = measured is not None and bool(measured.tried)
    better = None if has_tried else find_better(plan.gain, machine)
    if measured is not None and measured.search is not None:
        return head_tuning(source, result, plan, converted.summary, measured, machine, better)
    return head_conversion(source, result, plan, converted.summary, measured, machine, better)


def summarise_folder(source: str, result: str, folder: "Folder") -> Headline:
    """The headline of a folder of conversions."""
    machine, first = find_machine(), next(iter(folder.files))
    return head_folder(
        source, result, folder, machine, find_better(first.converted.plan.gain, machine)
    )
