"""Methods of a compiled module that call its compiled forward.

`torch.compile(model).generate(...)` runs eager PyTorch: the method belongs to the original module,
which knows nothing of the compiled one. Here the original module's `forward` is the compiled one
while such a method runs.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch

_LOCK = threading.Lock()
_FORWARD = "forward"


class CompiledForward:
    """The compiled forward of a module, which replaces its own while methods run."""

    def __init__(self, module: torch.nn.Module, optimize: Callable[..., Any]) -> None:
        self.module, self.optimize = module, optimize
        self.running = 0
        self.before: Callable[..., Any] | None = None  # of the module itself, not of its class
        self.compiled: Callable[..., Any] | None = None

    def method(self, method: MethodType) -> Callable[..., Any]:
        """The method, calling the compiled forward where it calls the module."""

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._in_place():
                return method(*args, **kwargs)

        return call

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        attributes = vars(self.module)
        with _LOCK:
            if self.compiled is None:
                self.before = attributes.get(_FORWARD)
                self.compiled = self.optimize(self.module.forward)
            self.running += 1
            attributes[_FORWARD] = self.compiled
        try:
            yield
        finally:
            with _LOCK:
                self.running -= 1
                if not self.running:
                    self._restore(attributes)

    def _restore(self, attributes: dict[str, Any]) -> None:
        """Put the module's own forward back, unless another thread has replaced it since."""
        if attributes.get(_FORWARD) is not self.compiled:
            return
        if self.before is None:
            del attributes[_FORWARD]
        else:
            attributes[_FORWARD] = self.before
