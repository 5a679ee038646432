"""mezzo: automatic mixed precision as a graph compiler pass."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mezzo.errors import ContractError, InputError, ListError, MezzoError, ModelError
from mezzo.packages import VERSION as __version__

if TYPE_CHECKING:
    from mezzo.clusters.opening import cluster
    from mezzo.converting.results import Converted, Summary
    from mezzo.core.memory import memory
    from mezzo.core.plans import Plan
    from mezzo.files.planfile import load_plan, save_plan
    from mezzo.folders.converting import ConvertedFolder, convert_folder
    from mezzo.numerics.calibrations import Calibrations
    from mezzo.numerics.curves import Curves
    from mezzo.numerics.measures import Comparison, Measured, Ranges, Ruling, Sensitivity
    from mezzo.numerics.timings import FileTimes, Timings
    from mezzo.verbs.bench import bench
    from mezzo.verbs.compare import compare
    from mezzo.verbs.convert import convert, plan, show
    from mezzo.verbs.curves import curves
    from mezzo.verbs.emulate import emulate
    from mezzo.verbs.explain import explain
    from mezzo.verbs.lists import convert_lists
    from mezzo.verbs.partition import Extracted, FusedUnit, Split, extract, partition
    from mezzo.verbs.quantize_report import quantize_report
    from mezzo.verbs.ranges import ranges
    from mezzo.verbs.sensitivity import sensitivity
    from mezzo.verbs.strategies import compare_strategies
    from mezzo.verbs.tune import tune

__all__ = [
    "Calibrations",
    "Comparison",
    "ContractError",
    "Converted",
    "ConvertedFolder",
    "Curves",
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
    "__version__",
    "bench",
    "cluster",
    "compare",
    "compare_strategies",
    "convert",
    "convert_folder",
    "convert_lists",
    "curves",
    "emulate",
    "explain",
    "extract",
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
    "Calibrations": "mezzo.numerics.calibrations",
    "Comparison": "mezzo.numerics.measures",
    "Converted": "mezzo.converting.results",
    "ConvertedFolder": "mezzo.folders.converting",
    "Curves": "mezzo.numerics.curves",
    "Extracted": "mezzo.verbs.partition",
    "FileTimes": "mezzo.numerics.timings",
    "FusedUnit": "mezzo.verbs.partition",
    "Measured": "mezzo.numerics.measures",
    "Plan": "mezzo.core.plans",
    "Ranges": "mezzo.numerics.measures",
    "Ruling": "mezzo.numerics.measures",
    "Sensitivity": "mezzo.numerics.measures",
    "Split": "mezzo.verbs.partition",
    "Summary": "mezzo.converting.results",
    "Timings": "mezzo.numerics.timings",
    "bench": "mezzo.verbs.bench",
    "cluster": "mezzo.clusters.opening",
    "compare": "mezzo.verbs.compare",
    "compare_strategies": "mezzo.verbs.strategies",
    "convert": "mezzo.verbs.convert",
    "convert_folder": "mezzo.folders.converting",
    "convert_lists": "mezzo.verbs.lists",
    "curves": "mezzo.verbs.curves",
    "emulate": "mezzo.verbs.emulate",
    "explain": "mezzo.verbs.explain",
    "extract": "mezzo.verbs.partition",
    "load_plan": "mezzo.files.planfile",
    "memory": "mezzo.core.memory",
    "partition": "mezzo.verbs.partition",
    "plan": "mezzo.verbs.convert",
    "quantize_report": "mezzo.verbs.quantize_report",
    "ranges": "mezzo.verbs.ranges",
    "save_plan": "mezzo.files.planfile",
    "sensitivity": "mezzo.verbs.sensitivity",
    "show": "mezzo.verbs.convert",
    "tune": "mezzo.verbs.tune",
}


def __dir__() -> list[str]:
    """The public names; nothing is loaded for them."""
    return sorted({*__all__, "__doc__", "__file__", "__name__", "__path__"})


def __getattr__(name: str) -> Any:
    # Loaded when first used: `import mezzo` stays quick for the command line and for those who only want the errors.
    if name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'mezzo' has no attribute {name!r}")
