"""mezzo: automatic mixed precision as a graph compiler pass."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mezzo.common.errors import ContractError, InputError, ListError, MezzoError, ModelError
from mezzo.common.packages import VERSION as __version__

if TYPE_CHECKING:
    from mezzo.api.bench import bench
    from mezzo.api.blame import blame
    from mezzo.api.compare import compare
    from mezzo.api.convert import convert, plan, show
    from mezzo.api.emulate import emulate
    from mezzo.api.explain import explain
    from mezzo.api.export_plan import export_plan
    from mezzo.api.folders.converting import ConvertedFolder, convert_folder
    from mezzo.api.language_models.generation import bench_folders
    from mezzo.api.language_models.llm import llm
    from mezzo.api.lists import convert_lists
    from mezzo.api.partition import extract, partition
    from mezzo.api.quantize_report import quantize_report
    from mezzo.api.ranges import ranges
    from mezzo.api.sensitivity import sensitivity
    from mezzo.api.strategies import compare_strategies
    from mezzo.api.tune import tune
    from mezzo.clusters.opening import cluster
    from mezzo.common.memory import memory
    from mezzo.contracts.options.data_files import DataFiles
    from mezzo.contracts.plans import Plan
    from mezzo.conversion.results import Converted
    from mezzo.io.planfile import load_plan, save_plan
    from mezzo.numerics.blames import Blame
    from mezzo.numerics.calibrations import Calibrations
    from mezzo.numerics.measures import Comparison, Measured, Ranges, Ruling, Sensitivity
    from mezzo.numerics.timings import FileTimes, Timings
    from mezzo.numerics.token_times import TokenTimes, TokenTimings
    from mezzo.report.records.fused_units import Extracted, FusedUnit, Split
    from mezzo.report.records.summary import Summary

__all__ = [
    "Blame",
    "Calibrations",
    "Comparison",
    "ContractError",
    "Converted",
    "ConvertedFolder",
    "DataFiles",
    "Extracted",
    "FileTimes",
    "FusedUnit",
    "InputError",
    "ListError",
    "Measured",
    "MezzoError",
    "ModelError",
    "Plan",
    "Ranges",
    "Ruling",
    "Sensitivity",
    "Split",
    "Summary",
    "Timings",
    "TokenTimes",
    "TokenTimings",
    "__version__",
    "bench",
    "bench_folders",
    "blame",
    "cluster",
    "compare",
    "compare_strategies",
    "convert",
    "convert_folder",
    "convert_lists",
    "emulate",
    "explain",
    "export_plan",
    "extract",
    "llm",
    "load_plan",
    "memory",
    "partition",
    "plan",
    "quantize_report",
    "ranges",
    "save_plan",
    "sensitivity",
    "show",
    "tune",
]

_HOMES = {
    "Blame": "mezzo.numerics.blames",
    "Calibrations": "mezzo.numerics.calibrations",
    "Comparison": "mezzo.numerics.measures",
    "Converted": "mezzo.conversion.results",
    "ConvertedFolder": "mezzo.api.folders.converting",
    "DataFiles": "mezzo.contracts.options.data_files",
    "Extracted": "mezzo.report.records.fused_units",
    "FileTimes": "mezzo.numerics.timings",
    "FusedUnit": "mezzo.report.records.fused_units",
    "Measured": "mezzo.numerics.measures",
    "Plan": "mezzo.contracts.plans",
    "Ranges": "mezzo.numerics.measures",
    "Ruling": "mezzo.numerics.measures",
    "Sensitivity": "mezzo.numerics.measures",
    "Split": "mezzo.report.records.fused_units",
    "Summary": "mezzo.report.records.summary",
    "Timings": "mezzo.numerics.timings",
    "TokenTimes": "mezzo.numerics.token_times",
    "TokenTimings": "mezzo.numerics.token_times",
    "bench": "mezzo.api.bench",
    "blame": "mezzo.api.blame",
    "bench_folders": "mezzo.api.language_models.generation",
    "cluster": "mezzo.clusters.opening",
    "compare": "mezzo.api.compare",
    "compare_strategies": "mezzo.api.strategies",
    "convert": "mezzo.api.convert",
    "convert_folder": "mezzo.api.folders.converting",
    "convert_lists": "mezzo.api.lists",
    "emulate": "mezzo.api.emulate",
    "explain": "mezzo.api.explain",
    "export_plan": "mezzo.api.export_plan",
    "extract": "mezzo.api.partition",
    "llm": "mezzo.api.language_models.llm",
    "load_plan": "mezzo.io.planfile",
    "memory": "mezzo.common.memory",
    "partition": "mezzo.api.partition",
    "plan": "mezzo.api.convert",
    "quantize_report": "mezzo.api.quantize_report",
    "ranges": "mezzo.api.ranges",
    "save_plan": "mezzo.io.planfile",
    "sensitivity": "mezzo.api.sensitivity",
    "show": "mezzo.api.convert",
    "tune": "mezzo.api.tune",
}


def __dir__() -> list[str]:
    """The public names, without loading them."""
    return sorted({*__all__, "__doc__", "__file__", "__name__", "__path__"})


def __getattr__(name: str) -> Any:
    # Loaded on first use, which keeps `import mezzo` fast for the command line.
    if name in _HOMES:
        member = getattr(import_module(_HOMES[name]), name)
        globals()[name] = member
        return member
    raise AttributeError(f"module 'mezzo' has no attribute {name!r}")
