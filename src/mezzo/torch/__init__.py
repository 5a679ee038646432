"""mezzo for PyTorch: compile modules and functions with Inductor in mixed precision.

This package imports torch; `import mezzo` does not.
"""

from mezzo.torch import torch_internals  # noqa: F401  first, as it checks PyTorch's version
from mezzo.torch.compiler.backend import register
from mezzo.torch.compiler.compiled import account, compile, refresh, save_plan
from mezzo.torch.compiler.exporting import export
from mezzo.torch.compiler.regions import Region, keep, precision
from mezzo.torch.inspect.comparing import compare
from mezzo.torch.inspect.explaining import explain
from mezzo.torch.inspect.gradient_ranges import gradient_ranges
from mezzo.torch.inspect.gradients import compare_gradients
from mezzo.torch.inspect.measuring import ranges, sensitivity
from mezzo.torch.inspect.reporting import report
from mezzo.torch.train.optimizer.optimizers import watch_steps
from mezzo.torch.train.optimizer.updates import compile_update

__all__ = [
    "Region",
    "account",
    "compare",
    "compare_gradients",
    "compile",
    "compile_update",
    "explain",
    "export",
    "gradient_ranges",
    "keep",
    "precision",
    "ranges",
    "refresh",
    "report",
    "save_plan",
    "sensitivity",
]

register()
watch_steps()
