"""Runs every block of README.md and docs/ and puts into the pages what the commands print.

    python tools/pages                          # every page
    python tools/pages --check                  # writes nothing; shows what differs, and ends with 1
    python tools/pages docs/how-to/tune.md      # one page

What a block is, and what a comment above it says, stands in page_blocks.py; when outputs are alike, in page_outputs.py.
An output that is alike is left as it is, so a second run changes nothing.
"""

import argparse
import sys
from pathlib import Path

from page_blocks import LISTS, PAGES, name_of
from page_outputs import put
from page_reader import difference, outdated_of


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, default=[p for p in PAGES if p.stem not in LISTS])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page is out of date")
    words = parser.parse_args()
    code = 0
    for page in map(Path.resolve, words.pages):
        outdated = outdated_of(page)
        for block, text in outdated.items():
            print(difference(block, text))
        if outdated and not words.check:
            put(page, outdated)
            print(f"{name_of(page)}: {len(outdated)} blocks written")
        code |= bool(outdated) and words.check
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
