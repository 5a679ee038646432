"""The command line. Only this package prints."""

import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mezzo.cli.interrupts import Interrupts

__all__ = ["main"]

INTERRUPTED = 130
_SIGNALLED = 128
# Threshold of the garbage collector's youngest generation. Imports create many objects and no
# garbage: at the default of 700, collections take a tenth of a short command's time.
_OBJECTS_BETWEEN_LOOKS = 200_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; exit code 0 done, 1 refused by a contract, 2 bad input, 130
    interrupted.
    """
    try:
        _open_closed_streams()
        if arguments is None:  # the process is the command's own
            gc.set_threshold(_OBJECTS_BETWEEN_LOOKS, *gc.get_threshold()[1:])
        from mezzo.cli.interrupts import Interrupts

        # Handle signals before the slow imports.
        with Interrupts(ends_process=arguments is None) as interrupts:
            return _run(arguments, interrupts)
    except KeyboardInterrupt:
        if arguments is None:  # ignore a second Ctrl-C while the process ends
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return _print_interrupt()
    finally:
        if arguments is None:
            # The interpreter looks for garbage as it ends, among all objects: a sixth of the time
            # of a short command. The system frees their memory with the process.
            gc.freeze()


def _run(arguments: Sequence[str] | None, interrupts: "Interrupts") -> int:
    try:
        code = _start(arguments, interrupts)
    except Exception:
        # An interrupted import or call may raise any other exception.
        if not interrupts.was_raised:
            raise
        code = INTERRUPTED
    return _print_interrupt(interrupts.number) if code == INTERRUPTED else code


def _print_interrupt(number: int = signal.SIGINT) -> int:
    """Print that a signal ended the command, and return the exit code that shells use for it."""
    line = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    with suppress(OSError, ValueError):  # stderr may be closed
        print(f"mezzo: {line}", file=sys.stderr, flush=True)
    return _SIGNALLED + number


def _open_closed_streams() -> None:
    """Open closed standard streams on the null device.

    Otherwise an output file could get descriptor 0, 1 or 2, and library output would be written
    into it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor
            os.set_inheritable(descriptor, descriptor == number)
            setattr(
                sys,
                name,
                os.fdopen(descriptor, mode, encoding="utf-8", closefd=descriptor != number),
            )


def _start(arguments: Sequence[str] | None, interrupts: "Interrupts") -> int:
    try:
        from mezzo.cli.run import main as run
    except ModuleNotFoundError as error:
        # Without typer and rich there is no command line to print this error.
        if (error.name or "").partition(".")[0] not in ("rich", "typer"):
            raise
        from mezzo.common.packages import spell_install

        print(
            f"mezzo: {error.name} is not installed; {spell_install(error.name or '')}",
            file=sys.stderr,
        )
        return 1
    return run(arguments, interrupts)
