"""The command line. Only this package prints."""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 refused by a contract, 2 bad input."""
    try:
        from mezzo.cli.run import main as run
    except ModuleNotFoundError as error:
        # Without these there is no command line that could say it better.
        if (error.name or "").partition(".")[0] not in ("rich", "typer"):
            raise
        from mezzo.packages import spell_install

        print(f"mezzo: {error.name} is not installed; {spell_install(error.name or '')}", file=sys.stderr)
        return 1
    return run(arguments)
