"""mezzo for PyTorch: compile modules and functions with Inductor in mixed precision.

This package imports torch; `import mezzo` does not.
"""

from mezzo.torch.compiler.versions import check_torch

check_torch()

# After the check of PyTorch's version.
from mezzo.torch.compiler.backend import register  # noqa: E402
from mezzo.torch.compiler.compiled import account, compile, refresh  # noqa: E402
from mezzo.torch.compiler.exporting import export  # noqa: E402
from mezzo.torch.compiler.regions import Region, keep, precision  # noqa: E402
from mezzo.torch.inspect.comparing import compare  # noqa: E402
from mezzo.torch.inspect.explaining import explain  # noqa: E402
from mezzo.torch.inspect.gradient_ranges import gradient_ranges  # noqa: E402
from mezzo.torch.inspect.gradients import compare_gradients  # noqa: E402
from mezzo.torch.inspect.reporting import report  # noqa: E402
from mezzo.torch.train.optimizer.optimizers import watch_steps  # noqa: E402
from mezzo.torch.train.optimizer.updates import compile_update  # noqa: E402

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
    "refresh",
    "report",
]

register()
watch_steps()
