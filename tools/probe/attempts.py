"""The protocol of an attempt: code that a probe runs in a child process."""

from collections.abc import Mapping
from typing import Any, Protocol

Feeds = Mapping[str, Any]


class Attempt(Protocol):
    """Loads a model and, given feeds, runs it once. Raises whatever the runtime raises."""

    def __call__(self, model: bytes, feeds: Feeds | None) -> None: ...
