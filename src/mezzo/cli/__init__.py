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
# So many new objects, and Python looks for cycles among them. Imports make more than half of them, none in vain: at its
# usual 700 the looks take a tenth of a short command.
_OBJECTS_BETWEEN_LOOKS = 200_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 refused by a contract, 2 bad input, 130 interrupted."""
    try:
        _open_closed_streams()
        if arguments is None:  # the process is the command's own
            gc.set_threshold(_OBJECTS_BETWEEN_LOOKS, *gc.get_threshold()[1:])
        from mezzo.cli.interrupts import Interrupts

        # Before the imports that take time.
        with Interrupts(ends_process=arguments is None) as interrupts:
            return _run(arguments, interrupts)
    except KeyboardInterrupt:
        if arguments is None:  # a second one finds the command ending
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return _tell_interrupt()


def _run(arguments: Sequence[str] | None, interrupts: "Interrupts") -> int:
    try:
        code = _start(arguments, interrupts)
    except Exception:
        # What an interrupted import or call makes of itself is no error of its own.
        if not interrupts.was_raised:
            raise
        code = INTERRUPTED
    return _tell_interrupt(interrupts.number) if code == INTERRUPTED else code


def _tell_interrupt(number: int = signal.SIGINT) -> int:
    """Say that a signal ended the command, and give the exit code that shells give it."""
    line = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    with suppress(OSError, ValueError):  # nobody may be there to read it
        print(f"mezzo: {line}", file=sys.stderr, flush=True)
    return _SIGNALLED + number


def _open_closed_streams() -> None:
    """Let standard streams that were closed lead nowhere. Else a result's file would take the number of one of them,
    and what libraries print would be written into it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            place = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(place, place == number)
            setattr(sys, name, os.fdopen(place, mode, encoding="utf-8", closefd=place != number))


def _start(arguments: Sequence[str] | None, interrupts: "Interrupts") -> int:
    try:
        from mezzo.cli.run import main as run
    except ModuleNotFoundError as error:
        # Without these there is no command line that could say it better.
        if (error.name or "").partition(".")[0] not in ("rich", "typer"):
            raise
        from mezzo.common.packages import spell_install

        print(f"mezzo: {error.name} is not installed; {spell_install(error.name or '')}", file=sys.stderr)
        return 1
    return run(arguments, interrupts)
