"""What a child process is asked to carry out."""

from collections.abc import Mapping
from typing import Any, Protocol

Feeds = Mapping[str, Any]


class Attempt(Protocol):
    """Loads a model and, given feeds, runs it once. Raises whatever the runtime raises."""

    def __call__(self, model: bytes, feeds: Feeds | None) -> None: ...
