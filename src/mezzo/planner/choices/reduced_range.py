"""Whether scales of INT8 weights keep the sums of two products within INT16."""

from collections.abc import Sequence

from mezzo.common.errors import InputError
from mezzo.common.machine import find_machine
from mezzo.common.message_style import option
from mezzo.contracts.options.request import Request
from mezzo.tables.target import Target


def reduces_range(
    request: Request, words: Sequence[str], target: Target
) -> tuple[bool, tuple[str, ...]]:
    """Whether scales of weights keep the sums of two products within INT16, and a note where this
    machine's CPU adds them so. Raises InputError: asked of a target that sums in INT32.
    """
    asked, sums = request.reduce_range, target.pair_sum
    if "int8" not in words or (asked != "yes" and sums is None):
        return False, ()
    if sums is None:
        raise InputError(
            f"{option('reduce_range')} is 'yes', and the INT8 kernels of target {target.name!r} sum"
            " in INT32; leave it out"
        )
    is_needed = sums.saturates_on(find_machine())
    if asked == "no" and is_needed:
        return False, (
            f"without {' or '.join(sums.unless)} INT8 products are added in pairs in INT16, which"
            f" may saturate: results on this machine may be wrong; {option('reduce_range')} keeps"
            " them right",
        )
    if asked == "auto" and is_needed:
        return True, (
            f"without {' or '.join(sums.unless)}, as on this machine, INT8 products are added in"
            " pairs in INT16: weights have scales with which no pair saturates;"
            f" {option('reduce_range')} decides otherwise",
        )
    return asked == "yes", ()
