"""Check of the installed PyTorch version."""

from mezzo.common.errors import InputError
from mezzo.common.packages import find_version, is_within

_WANTED = "torch>=2.11,<2.14"
_REMEDY = "pip install torch==2.13.0"


def check_torch() -> None:
    """Raises InputError: PyTorch is missing or its version is unsupported."""
    version = find_version("torch")
    if version is None:
        raise InputError(
            f"mezzo.torch needs PyTorch, which is not installed; install it: {_REMEDY}"
        )
    if not is_within(version.partition("+")[0], _WANTED):
        raise InputError(
            f"PyTorch {version} is installed, and mezzo.torch works with 2.11 to 2.13; install one:"
            f" {_REMEDY}"
        )


def unsupported_torch(missing: ImportError | AttributeError) -> InputError:
    """The error for a version of PyTorch without a name that mezzo uses."""
    return InputError(
        f"PyTorch {find_version('torch')} lacks a part that mezzo uses: {missing}; mezzo works"
        f" with 2.11 to 2.13, install one: {_REMEDY}"
    )
