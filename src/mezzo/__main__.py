"""Runs the command line: python -m mezzo."""

import sys

from mezzo.cli import main

if __name__ == "__main__":
    sys.exit(main())
