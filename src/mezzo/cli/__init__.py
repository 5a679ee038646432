"""The command line. Only this package prints."""

from mezzo.cli.run import main

__all__ = ["main"]
