"""Entry point of `python -m mezzo`: runs the command line."""

import sys

from mezzo.cli import main

if __name__ == "__main__":
    sys.exit(main())
