"""Checks the types of the tests: python tools/check_tests.py"""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
_TOOLS = (TESTS.parent / "tools", TESTS.parent / "tools" / "pages")
# Folders whose modules name each other as parts of a package.
_PACKAGES = frozenset({"plugins", "spellings"})


def _files_by_run() -> list[list[str]]:
    """Files by run of mypy, which takes no two modules of one name: several folders have a conftest.py."""
    files_by_run: list[list[str]] = []
    run_by_name: dict[str, int] = {}
    for path in sorted(TESTS.rglob("*.py")):
        run = run_by_name.get(path.name, 0)
        run_by_name[path.name] = run + 1
        if run == len(files_by_run):
            files_by_run.append([])
        files_by_run[run].append(str(path))
    return files_by_run


def check() -> int:
    """Print what mypy finds; 1 if anything."""
    folders = sorted({path.parent for path in TESTS.rglob("*.py")})
    roots = [TESTS, *_TOOLS, *(folder for folder in folders if folder.name not in _PACKAGES)]
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, dict.fromkeys(roots)))}
    words = [sys.executable, "-m", "mypy", "--no-error-summary", "--explicit-package-bases"]
    # Options differ from those of the package, so a cache in common would never be of use to either.
    words += ["--cache-dir", str(TESTS.parent / ".mypy_cache" / "tests"), "--config-file", str(TESTS / "mypy.ini")]
    codes = [subprocess.run([*words, *files], env=environment).returncode for files in _files_by_run()]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(check())
