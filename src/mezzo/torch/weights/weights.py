"""Low copies of weights, made once and kept while the weight stays what it is.

One weak table holds them for all graphs, by Parameter and recipe: a weight that several share is cast once.
"""

import operator
import threading
import weakref
from collections.abc import Iterable, Sequence
from math import gcd
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from mezzo.torch.weights.weight_layouts import LowCopy, WeightLayout

# Numbers in the sample of a weight, about.
_SAMPLED = 64
_expired: Any = torch.UntypedStorage._expired


class _Sample(NamedTuple):
    """Some numbers of a weight, `values`: every `step`-th of its memory, the one of the largest magnitude among them.

    A write that changes no version (`weight.data.mul_`, NumPy) shows in them if it scales, adds, averages or clips.
    """

    size: tuple[int]
    step: tuple[int]
    start: int
    values: torch.Tensor

    def now(self, weight: torch.Tensor) -> torch.Tensor:
        """The same places of the weight as it is now, as a view."""
        return torch.as_strided(weight, self.size, self.step, self.start)


class _State(NamedTuple):
    """A low copy with what the weight was when it was made. There is no sample of a weight that is not on the CPU, as
    each call would wait for the device, nor of one whose memory has gaps.
    """

    version: int
    address: int
    storage: StorageWeakRef  # while it is held, no other storage is told from it by its address alone
    low: torch.Tensor
    sample: _Sample | None = None


class Shadow:
    """The low copy of one weight. Threads may make it at once: the state is replaced as a whole."""

    __slots__ = ("__weakref__", "recipe", "state", "weight")

    def __init__(self, weight: torch.Tensor, recipe: WeightLayout) -> None:
        self.weight = weakref.ref(weight, lambda _: self.forget())
        self.recipe = recipe
        self.state: _State | None = None

    def forget(self) -> None:
        """Let the copy go: it is made again when it is next asked for."""
        self.state = None

    def of(self, weight: torch.Tensor) -> torch.Tensor:
        """The low copy of the weight as it is now."""
        try:
            version, address = weight._version, weight.data_ptr()
        except RuntimeError:  # made under inference_mode, or a fake: nobody can tell when it changes
            return self.recipe.make(weight)
        state = self.state
        if state is not None and state.version == version and state.address == address and not state.storage.expired():
            return state.low
        storage = StorageWeakRef(weight.untyped_storage())
        with torch.inference_mode(False), torch.no_grad():  # training, too, reads the copy that an evaluation made
            low = self.recipe.make(weight)
        self.state = _State(version, address, storage, low, _sample_of(weight))
        return low

    def keep(self, weight: torch.Tensor, low: torch.Tensor) -> None:
        """Take a copy that was written from the weight as it is now; at every step, so no sample is taken."""
        self.state = _State(weight._version, weight.data_ptr(), StorageWeakRef(weight.untyped_storage()), low)

    @property
    def size_bytes(self) -> int:
        """What the copy takes; 0 where there is none."""
        state = self.state
        return 0 if state is None else state.low.numel() * state.low.element_size()


class Shadows:
    """The low copies of all weights, by weight and recipe. They live as long as their weights."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, WeightLayout], Shadow] = {}
        self._lock = threading.Lock()

    def of(self, weight: torch.Tensor, recipe: WeightLayout) -> Shadow:
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

    def _drop(self, key: tuple[int, WeightLayout], shadow: "weakref.ref[Shadow]") -> None:
        if self._held.get(key) is shadow():
            self._held.pop(key, None)

    def refresh(self, weights: Iterable[torch.Tensor] | None = None) -> None:
        """Let copies be made again: of some weights, or of all."""
        numbers = None if weights is None else {id(weight) for weight in weights}
        for (number, _), shadow in list(self._held.items()):
            if numbers is None or number in numbers:
                shadow.forget()

    def low_copies(self, weights: Sequence[torch.Tensor]) -> list[list[tuple[Shadow, torch.Tensor]]]:
        """The copies of weights in the layout that they have, whatever the weights were then; others are let go."""
        found: dict[int, list[tuple[Shadow, torch.Tensor]]] = {id(weight): [] for weight in weights}
        for (number, recipe), shadow in list(self._held.items()):
            state = shadow.state
            if number in found and state is not None and isinstance(recipe, LowCopy):
                found[number].append((shadow, state.low))
            elif number in found:
                shadow.forget()
        return [found[id(weight)] for weight in weights]

    def __len__(self) -> int:
        return len(self._held)

    @property
    def size_bytes(self) -> int:
        """What all copies take."""
        return sum(shadow.size_bytes for shadow in list(self._held.values()))


SHADOWS = Shadows()


class Feed:
    """What a graph reads behind its arguments: a copy of a weight or nothing, an empty tensor, at each place."""

    def __init__(self, copies: Sequence[tuple[int, int, WeightLayout]], added: int, dtype: torch.dtype) -> None:
        """`copies` are the places of a weight and of its copy, and how that is made; `added` counts the places."""
        self._copies = tuple((number, *copy) for number, copy in enumerate(copies))
        self._nothing = [torch.empty(0, dtype=dtype)] * added
        self._shadows: list[Shadow | None] = [None] * len(copies)
        self._sampled: list[_Sample] = []
        self._expected = torch.empty(0)

    def behind(self, given: Sequence[Any]) -> list[Any]:
        """The arguments and what comes behind. Written out, as it stands around every call: a weight that did not
        change takes two microseconds, most of them for its sample.
        """
        full = [*given, *self._nothing]
        shadows = self._shadows
        unchanged: list[tuple[int, _Sample, torch.Tensor]] = []
        for number, source, place, recipe in self._copies:
            weight, shadow = given[source], shadows[number]
            if shadow is None or shadow.weight() is not weight:
                shadow = shadows[number] = SHADOWS.of(weight, recipe)
            state = shadow.state
            if state is not None:
                version, address, storage, low, sample = state
                if weight._version == version and weight.data_ptr() == address and not _expired(storage.cdata):
                    full[place] = low
                    if sample is not None:
                        unchanged.append((number, sample, weight))
                    continue
            full[place] = shadow.of(weight)
        if unchanged:
            self._find_unseen_writes(unchanged, full)
        return full

    def _find_unseen_writes(self, unchanged: Sequence[tuple[int, _Sample, torch.Tensor]], full: list[Any]) -> None:
        """Make the copies anew of weights whose version says that they did not change and whose sample did."""
        with torch.no_grad():
            now = torch.cat([sample.now(weight) for _, sample, weight in unchanged])
        samples = [sample for _, sample, _ in unchanged]
        if len(samples) != len(self._sampled) or any(map(operator.is_not, samples, self._sampled)):
            self._expected, self._sampled = torch.cat([sample.values for sample in samples]), samples
        if _same_bits(now, self._expected):
            return
        sizes = [sample.size[0] for sample in samples]
        for (number, sample, weight), part in zip(unchanged, now.split(sizes), strict=True):
            if not _same_bits(part, sample.values):
                _, _, place, recipe = self._copies[number]
                shadow = SHADOWS.of(weight, recipe)
                shadow.forget()
                full[place] = shadow.of(weight)


def _sample_of(weight: torch.Tensor) -> _Sample | None:
    """A sample of a weight that is on the CPU and fills its memory."""
    if weight.device.type != "cpu" or not fills_memory(weight):
        return None
    with torch.no_grad():
        flat = torch.as_strided(weight, (weight.numel(),), (1,))
        largest = max((int(flat.argmax()), int(flat.argmin())), key=lambda place: abs(float(flat[place])))
        step = max(1, flat.numel() // _SAMPLED)
        while gcd(step, flat.numel()) > 1:  # so that it meets all rows and columns by turns
            step += 1
        size = 1 + (flat.numel() - 1 - largest % step) // step
        sample = _Sample((size,), (step,), weight.storage_offset() + largest % step, torch.empty(0))
        return sample._replace(values=sample.now(weight).clone())


def fills_memory(weight: torch.Tensor) -> bool:
    """Whether a tensor has numbers, and its memory no gaps between them."""
    return weight.numel() > 0 and torch.empty_like(weight, device="meta").stride() == weight.stride()


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equality in which a NaN is equal to itself."""
    return torch.equal(one.view(torch.uint8), other.view(torch.uint8))
