"""Pages that are made from something else: written, or with --check compared with what they should be."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path


def keep(pages: Mapping[Path, str], source: str, usage: str | None) -> int:
    """Write each page, or with --check say which differ from their `source`, in words; returns the exit code."""
    parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page is out of date")
    if not parser.parse_args().check:
        for path, page in pages.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page, encoding="utf-8")
        return 0
    stale = [p.name for p, page in pages.items() if not p.exists() or p.read_text(encoding="utf-8") != page]
    if stale:
        script = Path(sys.argv[0]).name
        verb = "differs" if len(stale) == 1 else "differ"
        print(f"{', '.join(stale)} {verb} from {source}; run python tools/{script}", file=sys.stderr)
    return int(bool(stale))
