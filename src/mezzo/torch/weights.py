"""Low copies of weights, made once and kept while the weight stays what it is.

One weak table holds them for all graphs, by Parameter and recipe: a weight that several share is cast once.
"""

import threading
import weakref
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from mezzo.torch.recipes import Recipe


class _State(NamedTuple):
    """A low copy with what the weight was when it was made."""

    version: int
    address: int
    storage: StorageWeakRef  # while it is held, no other storage is told from it by its address alone
    low: torch.Tensor


class Shadow:
    """The low copy of one weight. Threads may make it at once: the state is replaced as a whole."""

    __slots__ = ("__weakref__", "_state", "recipe", "weight")

    def __init__(self, weight: torch.Tensor, recipe: Recipe) -> None:
        self.weight = weakref.ref(weight, lambda _: self.forget())
        self.recipe = recipe
        self._state: _State | None = None

    def forget(self) -> None:
        """Let the copy go: it is made again when it is next asked for."""
        self._state = None

    def of(self, weight: torch.Tensor) -> torch.Tensor:
        """The low copy of the weight as it is now."""
        try:
            version, address = weight._version, weight.data_ptr()
        except RuntimeError:  # made under inference_mode, or a fake: nobody can tell when it changes
            return self.recipe.make(weight)
        state = self._state
        if state is not None and state.version == version and state.address == address and not state.storage.expired():
            return state.low
        storage = StorageWeakRef(weight.untyped_storage())
        low = self.recipe.make(weight)
        self._state = _State(version, address, storage, low)
        return low

    @property
    def size_bytes(self) -> int:
        """What the copy takes; 0 where there is none."""
        state = self._state
        return 0 if state is None else state.low.numel() * state.low.element_size()


class Shadows:
    """The low copies of all weights, by weight and recipe. They live as long as their weights."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, Recipe], Shadow] = {}
        self._lock = threading.Lock()

    def of(self, weight: torch.Tensor, recipe: Recipe) -> Shadow:
        """The shadow of a weight, the same for all who ask."""
        key = id(weight), recipe
        found = self._held.get(key)
        if found is not None and found.weight() is weight:
            return found
        with self._lock:
            found = self._held.get(key)
            if found is None or found.weight() is not weight:  # the number of one that died was given again
                found = self._held[key] = Shadow(weight, recipe)
                weakref.finalize(weight, self._drop, key, weakref.ref(found)).atexit = False
            return found

    def _drop(self, key: tuple[int, Recipe], shadow: "weakref.ref[Shadow]") -> None:
        if self._held.get(key) is shadow():
            self._held.pop(key, None)

    def refresh(self, weights: Iterable[torch.Tensor] | None = None) -> None:
        """Let copies be made again: of some weights, or of all."""
        numbers = None if weights is None else {id(weight) for weight in weights}
        for (number, _), shadow in list(self._held.items()):
            if numbers is None or number in numbers:
                shadow.forget()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def size_bytes(self) -> int:
        """What all copies take."""
        return sum(shadow.size_bytes for shadow in list(self._held.values()))


SHADOWS = Shadows()
