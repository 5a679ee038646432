"""Checks the types of the tests, folder by folder, as each finds the modules beside it: python tools/check_tests.py"""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
_SHARED = (TESTS, TESTS / "support", TESTS.parent / "tools")
# Tests of the tools that write pages import these from their folder.
_TOOLS = {"docs": (TESTS.parent / "tools" / "pages",)}
# Folders whose modules name each other as parts of a package.
_PACKAGES = frozenset({"plugins", "spellings"})


def check() -> int:
    """Print what mypy finds; 1 if anything."""
    code = 0
    for folder in sorted({path.parent for path in TESTS.rglob("*.py")}):
        files = [str(path) for path in sorted(folder.glob("*.py"))]
        shared = _SHARED if folder.name in _PACKAGES else (*_SHARED, folder)
        environment = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, (*shared, *_TOOLS.get(folder.name, ()))))}
        words = [
            sys.executable,
            "-m",
            "mypy",
            "--no-error-summary",
            "--explicit-package-bases",
            "--config-file",
            str(TESTS / "mypy.ini"),
            *files,
        ]
        code |= subprocess.run(words, env=environment).returncode
    return int(bool(code))


if __name__ == "__main__":
    sys.exit(check())
