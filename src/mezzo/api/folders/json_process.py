"""Child process that answers requests, each a line of JSON on its stdin, on its stdout."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mezzo.common.telemetry import OPT_OUTS

_ENDS_WITHIN_S = 5.0


class JsonProcess:
    """A process that runs a program with this one's import path."""

    def __init__(self, program: str, *, is_silent: bool = False) -> None:
        """`program`: Python source; `is_silent`: drop what it writes to stderr."""
        path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if is_silent else None,
            env={**os.environ, **OPT_OUTS, "PYTHONPATH": path},
        )

    def send(self, request: Mapping[str, Any]) -> None:
        """Write a request. If the process is over, reading its answer tells."""
        assert self._process.stdin is not None, "it is a pipe"
        with suppress(OSError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self) -> dict[str, Any] | None:
        """Wait for the next answer; None if the process is over."""
        assert self._process.stdout is not None, "it is a pipe"
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer

    def wait(self) -> int:
        """Exit code of a process that is over, or is soon."""
        try:
            return self._process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def kill(self) -> None:
        """End the process at once; what it wrote before can still be received."""
        self._process.kill()

    def end(self) -> None:
        """End the process, whatever it does, and close its pipes."""
        self.kill()
        self.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what was not sent
                assert pipe is not None, "both are pipes"
                pipe.close()
