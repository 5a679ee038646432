"""mezzo: automatic mixed precision as a graph compiler pass."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mezzo.errors import ContractError, InputError, ListError, MezzoError, ModelError

if TYPE_CHECKING:
    from mezzo.amp_lists import convert_lists
    from mezzo.comparison import compare_strategies
    from mezzo.pipeline import Converted, Summary, convert, explain, plan, show
    from mezzo.planfile import load_plan, save_plan
    from mezzo.plans import Plan

__version__ = "0.1.0"

__all__ = [
    "ContractError",
    "Converted",
    "InputError",
    "ListError",
    "MezzoError",
    "ModelError",
    "Plan",
    "Summary",
    "__version__",
    "compare_strategies",
    "convert",
    "convert_lists",
    "explain",
    "load_plan",
    "plan",
    "save_plan",
    "show",
]

_HOMES = {
    "Converted": "mezzo.pipeline",
    "Plan": "mezzo.plans",
    "Summary": "mezzo.pipeline",
    "compare_strategies": "mezzo.comparison",
    "convert": "mezzo.pipeline",
    "convert_lists": "mezzo.amp_lists",
    "explain": "mezzo.pipeline",
    "load_plan": "mezzo.planfile",
    "plan": "mezzo.pipeline",
    "save_plan": "mezzo.planfile",
    "show": "mezzo.pipeline",
}


def __getattr__(name: str) -> Any:
    # Loaded when first used: `import mezzo` stays quick for the command line and for those who only want the errors.
    if name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'mezzo' has no attribute {name!r}")
