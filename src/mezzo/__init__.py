"""mezzo: automatic mixed precision as a graph compiler pass."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mezzo.errors import ContractError, InputError, ListError, MezzoError, ModelError
from mezzo.packages import VERSION as __version__

if TYPE_CHECKING:
    from mezzo.amp_lists import convert_lists
    from mezzo.comparing import compare
    from mezzo.comparison import compare_strategies
    from mezzo.emulating import emulate
    from mezzo.folders.converting import ConvertedFolder, convert_folder
    from mezzo.numerics.measures import Comparison, Measured, Ranges, Ruling, Sensitivity
    from mezzo.partitioning import Extracted, FusedUnit, Split, extract, partition
    from mezzo.pipeline import Converted, Summary, convert, explain, plan, show
    from mezzo.planfile import load_plan, save_plan
    from mezzo.plans import Plan
    from mezzo.ranging import ranges
    from mezzo.sensing import sensitivity
    from mezzo.tuning import tune

__all__ = [
    "Comparison",
    "ContractError",
    "Converted",
    "ConvertedFolder",
    "Extracted",
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
    "__version__",
    "compare",
    "compare_strategies",
    "convert",
    "convert_folder",
    "convert_lists",
    "emulate",
    "explain",
    "extract",
    "load_plan",
    "partition",
    "plan",
    "ranges",
    "save_plan",
    "sensitivity",
    "show",
    "tune",
]

_HOMES = {
    "Comparison": "mezzo.numerics.measures",
    "Converted": "mezzo.pipeline",
    "ConvertedFolder": "mezzo.folders.converting",
    "Extracted": "mezzo.partitioning",
    "FusedUnit": "mezzo.partitioning",
    "Measured": "mezzo.numerics.measures",
    "Plan": "mezzo.plans",
    "Ranges": "mezzo.numerics.measures",
    "Ruling": "mezzo.numerics.measures",
    "Sensitivity": "mezzo.numerics.measures",
    "Split": "mezzo.partitioning",
    "Summary": "mezzo.pipeline",
    "compare": "mezzo.comparing",
    "compare_strategies": "mezzo.comparison",
    "convert": "mezzo.pipeline",
    "convert_folder": "mezzo.folders.converting",
    "convert_lists": "mezzo.amp_lists",
    "emulate": "mezzo.emulating",
    "explain": "mezzo.pipeline",
    "extract": "mezzo.partitioning",
    "load_plan": "mezzo.planfile",
    "partition": "mezzo.partitioning",
    "plan": "mezzo.pipeline",
    "ranges": "mezzo.ranging",
    "save_plan": "mezzo.planfile",
    "sensitivity": "mezzo.sensing",
    "show": "mezzo.pipeline",
    "tune": "mezzo.tuning",
}


def __getattr__(name: str) -> Any:
    # Loaded when first used: `import mezzo` stays quick for the command line and for those who only want the errors.
    if name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'mezzo' has no attribute {name!r}")
