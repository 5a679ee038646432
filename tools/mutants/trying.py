"""Tries mutants on tests. For one inside a function a child is forked, the function's code is swapped there, and the
tests that run its lines are run until one fails. One that runs at import gets a process that has not imported it yet.
"""

import gc
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from coverage import Coverage
from making import Mutant, path_of

FLAGS = ("-q", "-n0", "-p", "no:cacheprovider", "--capture=sys", "--no-header", "-m", "not slow")
# So many tests that noticed other mutants of a module are asked before the quick ones.
_FIRST = 15
# What a process that imports a mutant needs beside mezzo.
_SLOW_IMPORTS = ("hypothesis", "ml_dtypes", "onnx.checker", "onnx.parser", "onnxruntime")


@dataclass(frozen=True)
class Result:
    """Whether tests noticed a mutant, and which was the first; a mutant that never ends is noticed by none."""

    is_killed: bool
    killer: str | None = None


class Trial:
    """A pytest plugin that tries mutants in place of running the tests once. `results` fill as it goes."""

    def __init__(
        self,
        mutants: Sequence[Mutant],
        workers: int,
        test_s: float,
        limit_s: float,
        last: Sequence[str],
        spare: "Spare",
        save: Callable[[Mapping[Mutant, Result]], None],
    ) -> None:
        self.mutants, self.workers, self.test_s, self.limit_s = mutants, workers, test_s, limit_s
        self.last, self.spare, self.save = last, spare, save
        self.results: dict[Mutant, Result] = {}
        self.items: dict[str, pytest.Item] = {}
        self.time_s: dict[str, float] = {}
        self.kills: dict[str, Counter[str]] = defaultdict(Counter)  # by module: which tests notice most
        self.folder = tempfile.TemporaryDirectory()
        self.modules = sorted({mutant.module for mutant in mutants})
        self.coverage = Coverage(data_file=None, include=[str(path_of(m)) for m in self.modules], config_file=False)
        self.coverage.start()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._measure(session.items)
        waiting, running, begin = list(reversed(self.mutants)), dict[int, Mutant](), time.monotonic()
        while waiting or running:
            if time.monotonic() - begin > self.limit_s:
                waiting.clear()
            while waiting and len(running) < self.workers:
                self._begin(waiting.pop(), running)
            if running:
                pid, code = os.wait()
                if pid in running:
                    self._end(pid, running.pop(pid), code)
        return True

    def _measure(self, items: Sequence[pytest.Item]) -> None:
        """Run every test once: which lines it runs, and how long it takes."""
        for item in items:
            self.items[item.nodeid] = item
            self.coverage.switch_context(item.nodeid)
            begin = time.process_time()
            if _fails(item):
                _say(f"{item.nodeid} fails without a mutant, so it is left out")
                del self.items[item.nodeid]
            self.time_s[item.nodeid] = time.process_time() - begin
        self.coverage.stop()
        data = self.coverage.get_data()
        self.contexts = {
            module: {
                line: {test for test in tests if not test or test in self.items}
                for line, tests in data.contexts_by_lineno(str(path_of(module))).items()
            }
            for module in self.modules
        }
        _say(f"{len(items)} tests take {sum(self.time_s.values()):.0f} s with their coverage")

    def _tests_of(self, mutant: Mutant) -> tuple[list[str], bool]:
        """The tests that run a mutant's lines, in the order in which they are asked; whether it runs at import."""
        contexts = self.contexts[mutant.module]
        found = {test for line in range(mutant.line, mutant.last_line + 1) for test in contexts.get(line, ())}
        at_import = not mutant.is_inside or found == {""}
        if at_import:  # what it makes may be used where no line of the module runs
            found = set(self.items)
        return self._in_order(mutant, found - {""}), at_import

    def _in_order(self, mutant: Mutant, tests: Iterable[str]) -> list[str]:
        """Those that notice most, then those of the module, the quick ones first; no more than may run. The last ones
        stand behind all others.
        """
        best = {test: -count for test, count in self.kills[mutant.module].most_common(_FIRST)}
        own = {test for lines in self.contexts[mutant.module].values() for test in lines}
        ordered = sorted(tests, key=lambda test: (best.get(test, 0), test not in own, self.time_s[test], test))
        found: list[str] = []
        for is_last in (False, True):
            total_s = 0.0
            for test in ordered:
                if any(part in test for part in self.last) is is_last and total_s < self.test_s:
                    total_s += self.time_s[test]
                    found.append(test)
        return found

    def _begin(self, mutant: Mutant, running: dict[int, Mutant]) -> None:
        tests, at_import = self._tests_of(mutant)
        if not tests:
            self.results[mutant] = Result(False)
            return
        pid = os.fork()
        if pid:
            running[pid] = mutant
            return
        killer = Path(self.folder.name, str(os.getpid()))
        try:
            _be_silent(10 + 4 * sum(self.time_s[test] for test in tests))
            if at_import or not _swap(mutant):
                os._exit(self.spare.run(mutant, tests, killer))
            _run(self.items, tests, killer)
            # What is kept in a cache was made before the swap: ask a process in which it is made anew.
            if len(tests) <= 2:
                os._exit(self.spare.run(mutant, self._in_order(mutant, self.items), killer))
            os._exit(0)
        except BaseException:  # noqa: BLE001  a child that dies of its mutant has noticed it
            os._exit(1)

    def _end(self, pid: int, mutant: Mutant, code: int) -> None:
        file = Path(self.folder.name, str(pid))
        killer = file.read_text() if file.exists() else None
        if killer is not None:
            self.kills[mutant.module][killer] += 1
        self.results[mutant] = Result(code != 0, killer)
        if len(self.results) % 25 == 0:
            self.save(self.results)
            survived = sum(not result.is_killed for result in self.results.values())
            _say(f"{len(self.results)} of {len(self.mutants)}, {survived} survived")


def _fails(item: pytest.Item) -> bool:
    if hasattr(item, "_initrequest"):
        item._initrequest()  # as plug-ins do that run a test twice
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def _run(items: Mapping[str, pytest.Item], tests: Sequence[str], killer: Path) -> None:
    """Run tests until one fails, and end the process there."""
    for test in tests:
        if test not in items or _fails(items[test]):
            killer.write_text(test)
            os._exit(1)


def _be_silent(limit_s: float) -> None:
    """Print nothing, and end once the processor was used for so long, or a deadlock is likely."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s) + 5))
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    signal.alarm(60 + 20 * int(limit_s))


def _say(text: str) -> None:
    print(f"  {text}", file=sys.__stderr__, flush=True)  # pytest holds the other one


# -- mutants inside functions -----------------------------------------------------------------------------------------


def _swap(mutant: Mutant) -> bool:
    """Give the functions of a loaded module the code of the mutant; False where that cannot be.

    Functions are found wherever they are held: in classes, under decorators, and made by other functions before.
    """
    path = path_of(mutant.module)
    old, new = (_codes(compile(text, str(path), "exec")) for text in (path.read_text(encoding="utf-8"), mutant.code))
    changed = {_place(old[key]): new[key] for key in new.keys() & old.keys() if old[key] != new[key]}
    is_changed = False
    for function in gc.get_objects():
        if type(function) is types.FunctionType and function.__code__.co_filename == str(path):
            code = changed.get(_place(function.__code__))
            if code is not None and function.__code__.co_freevars != code.co_freevars:
                return False
            if code is not None:
                function.__code__ = code
                is_changed = True
    return is_changed


def _place(code: types.CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _codes(module: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """Code of all functions, by qualified name and how many of that name came before."""
    found: dict[tuple[str, int], types.CodeType] = {}
    count: Counter[str] = Counter()

    def walk(code: types.CodeType) -> None:
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                found[constant.co_qualname, count[constant.co_qualname]] = constant
                count[constant.co_qualname] += 1
                walk(constant)

    walk(module)
    return found


# -- mutants that run at import ---------------------------------------------------------------------------------------


class Spare:
    """A process that has imported what is slow to import and nothing of mezzo. Each mutant gets a fork of it."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self._path = str(Path(self.folder.name, "socket"))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self._path)
        listener.listen(64)
        self._parent = os.getpid()
        if not os.fork():
            _serve(listener, self._parent)
        listener.close()

    def run(self, mutant: Mutant, tests: Sequence[str], killer: Path) -> int:
        """Run tests with a mutant, in order. Gives the exit status."""
        limit = resource.getrlimit(resource.RLIMIT_CPU)[0]
        files = sorted({test.partition("::")[0] for test in tests})
        asked = {"module": mutant.module, "code": mutant.code, "tests": tests, "files": files, "limit_s": limit}
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(self._path)
            line.sendall(json.dumps({**asked, "killer": str(killer)}).encode())
            line.shutdown(socket.SHUT_WR)
            return 0 if line.recv(1) == b"0" else 1  # a fork that dies says nothing


def _serve(listener: socket.socket, parent: int) -> None:
    for module in _SLOW_IMPORTS:
        import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener.settimeout(5)
    while os.getppid() == parent:
        try:
            line, _ = listener.accept()
        except TimeoutError:
            continue
        if not os.fork():
            _try_import(line)
        line.close()
    os._exit(0)


def _try_import(line: socket.socket) -> None:
    line.settimeout(None)
    asked = json.loads(b"".join(iter(lambda: line.recv(1 << 16), b"")))
    _be_silent(20 + asked["limit_s"])
    target, original = str(path_of(asked["module"])), SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> types.CodeType | None:
        return compile(asked["code"], target, "exec") if loader.path == target else original(loader, name)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]  # the process ends with it

    class Chosen:
        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            _run({item.nodeid: item for item in session.items}, asked["tests"], Path(asked["killer"]))
            line.sendall(b"0")
            os._exit(0)

    pytest.main([*FLAGS, *asked["files"]], plugins=[Chosen()])
    os._exit(1)  # it could not be imported
