"""Cache of low-precision weights, invalidated when a weight changes.

One weak table, keyed by Parameter and layout, serves all graphs: a shared weight is cast once.
"""

import ctypes
import operator
import threading
import weakref
from collections.abc import Iterable, Sequence
from math import gcd
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from mezzo.torch.torch_internals import storage_address
from mezzo.torch.weights.weight_layouts import LowCopy, WeightLayout

# Approximate number of elements in a weight's sample.
_SAMPLED = 64
_WIDTH = 4  # bytes of an element


class _Sample(NamedTuple):
    """Sampled elements: every `step`-th in memory, among them the one of largest magnitude.

    Detects writes that do not change the version (`weight.data.mul_`, NumPy) if they scale, add,
    average or clip.
    """

    size: tuple[int]
    step: tuple[int]
    start: int
    address: int  # of the first
    values: torch.Tensor

    @property
    def bits(self) -> list[int]:
        """The elements' bits as numbers."""
        bits: list[int] = self.values.view(torch.int32).tolist()
        return bits

    def places(self) -> torch.Tensor:
        """The elements' addresses, counted in elements."""
        return self.address // _WIDTH + torch.arange(self.size[0]) * self.step[0]

    def now(self, weight: torch.Tensor) -> torch.Tensor:
        """The current values of the sampled elements."""
        return torch.as_strided(weight, self.size, self.step, self.start).clone()


class _State(NamedTuple):
    """A low-precision copy and the weight's state when it was made. Weights on other devices have
    no sample, since every call would synchronize; nor have those with gaps in memory.
    """

    version: int
    address: int
    storage: StorageWeakRef  # guards against reuse of the address by another storage
    low: torch.Tensor
    sample: _Sample | None = None


class Shadow:
    """The cached low-precision copy of a weight. Thread-safe: the state is replaced as a whole."""

    __slots__ = ("__weakref__", "layout", "state", "weight")

    def __init__(self, weight: torch.Tensor, layout: WeightLayout) -> None:
        self.weight = weakref.ref(weight, lambda _: self.forget())
        self.layout = layout
        self.state: _State | None = None

    def forget(self) -> None:
        """Drop the copy; it is made again when next used."""
        self.state = None

    def of(self, weight: torch.Tensor) -> torch.Tensor:
        """The low-precision copy of the weight's current values."""
        try:
            version, address = weight._version, weight.data_ptr()
        except RuntimeError:  # an inference tensor or a fake: changes cannot be detected
            return self._make(weight)
        state = self.state
        if (
            state is not None
            and state.version == version
            and state.address == address
            and not state.storage.expired()
        ):
            return state.low
        storage = StorageWeakRef(weight.untyped_storage())
        # Training may use a copy made in inference_mode.
        with (
            torch.inference_mode(False),
            torch.no_grad(),
        ):
            low = self._make(weight)
        self.state = _State(version, address, storage, low, _sample_of(weight))
        return low

    def _make(self, weight: torch.Tensor) -> torch.Tensor:
        source = self.layout.source
        return self.layout.make(weight if source is None else SHADOWS.of(weight, source).of(weight))

    def keep(self, weight: torch.Tensor, low: torch.Tensor) -> None:
        """Store a copy that an optimizer step wrote, without a sample, as each step replaces it."""
        self.state = _State(
            weight._version, weight.data_ptr(), StorageWeakRef(weight.untyped_storage()), low
        )

    @property
    def size_bytes(self) -> int:
        """The size of the copy in bytes; 0 if there is none."""
        state = self.state
        return 0 if state is None else state.low.nbytes


class Shadows:
    """The low-precision copies of all weights, which live as long as the weights."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, WeightLayout], Shadow] = {}
        self._lock = threading.Lock()

    def of(self, weight: torch.Tensor, layout: WeightLayout) -> Shadow:
        """The shadow of a weight, shared by all users."""
        key = id(weight), layout
        shadow = self._held.get(key)
        if shadow is not None and shadow.weight() is weight:
            return shadow
        with self._lock:
            shadow = self._held.get(key)
            # The id of a deleted weight was reused.
            if shadow is None or shadow.weight() is not weight:
                shadow = self._held[key] = Shadow(weight, layout)
                weakref.finalize(weight, self._drop, key, weakref.ref(shadow)).atexit = False
            return shadow

    def _drop(self, key: tuple[int, WeightLayout], shadow: "weakref.ref[Shadow]") -> None:
        if self._held.get(key) is shadow():
            self._held.pop(key, None)

    def refresh(self, weights: Iterable[torch.Tensor] | None = None) -> None:
        """Drop copies of the given weights, or of all."""
        numbers = None if weights is None else {id(weight) for weight in weights}
        for (number, _), shadow in list(self._held.items()):
            if numbers is None or number in numbers:
                shadow.forget()

    def low_copies(
        self, weights: Sequence[torch.Tensor]
    ) -> list[list[tuple[Shadow, torch.Tensor]]]:
        """The unpacked copies of weights, current or not; packed copies are dropped."""
        copies: dict[int, list[tuple[Shadow, torch.Tensor]]] = {
            id(weight): [] for weight in weights
        }
        for (number, layout), shadow in list(self._held.items()):
            state = shadow.state
            if number in copies and state is not None and isinstance(layout, LowCopy):
                copies[number].append((shadow, state.low))
            elif number in copies:
                shadow.forget()
        return [copies[id(weight)] for weight in weights]

    def __len__(self) -> int:
        return len(self._held)

    @property
    def size_bytes(self) -> int:
        """The size of all copies in bytes."""
        return sum(shadow.size_bytes for shadow in list(self._held.values()))


SHADOWS = Shadows()


class Feed:
    """Appends copies of weights to a graph's arguments, and empty tensors for unused inputs."""

    def __init__(
        self, copies: Sequence[tuple[int, int, WeightLayout]], added: int, dtype: torch.dtype
    ) -> None:
        """`copies`: positions of a weight and its copy, and the layout; `added`: position count."""
        self._copies = tuple((number, *copy) for number, copy in enumerate(copies))
        self._nothing = [torch.empty(0, dtype=dtype)] * added
        self._shadows: list[Shadow | None] = [None] * len(copies)
        self._watched: _Watched | None = None

    def behind(self, given: Sequence[Any]) -> list[Any]:
        """The arguments followed by the copies. Inlined because it runs at every call: an unchanged
        weight costs a microsecond.
        """
        all_args = [*given, *self._nothing]
        shadows = self._shadows
        unchanged: list[tuple[int, _Sample, torch.Tensor]] = []
        storages = []  # kept while their memory is read
        for number, source, place, layout in self._copies:
            weight, shadow = given[source], shadows[number]
            if shadow is None or shadow.weight() is not weight:
                shadow = shadows[number] = SHADOWS.of(weight, layout)
            state = shadow.state
            if state is not None:
                version, address, storage_ref, low, sample = state
                storage = weight.untyped_storage()
                if (
                    weight._version == version
                    and weight.data_ptr() == address
                    and storage_address(storage) == storage_ref.cdata
                ):
                    all_args[place] = low
                    if sample is not None:
                        unchanged.append((number, sample, weight))
                        storages.append(storage)
                    continue
            all_args[place] = shadow.of(weight)
        if unchanged:
            self._find_unseen_writes(unchanged, all_args)
        return all_args

    def _find_unseen_writes(
        self, unchanged: Sequence[tuple[int, _Sample, torch.Tensor]], all_args: list[Any]
    ) -> None:
        """Remake the copies of weights whose sample changed though their version did not."""
        samples = [sample for _, sample, _ in unchanged]
        watched = self._watched
        if watched is None or not watched.is_of(samples):
            watched = self._watched = _Watched(samples)
        if watched.is_unchanged():
            return
        written = [
            (number, weight)
            for (number, sample, weight) in unchanged
            if not _same_bits(sample.now(weight), sample.values)
        ]
        SHADOWS.refresh(weight for _, weight in written)  # sources of copies too
        for number, weight in written:
            _, _, place, layout = self._copies[number]
            all_args[place] = SHADOWS.of(weight, layout).of(weight)


class _Watched:
    """The samples of all weights of a graph, read by one call: a call for each weight would take
    as long as a small matmul. The weights must be alive and where they were.
    """

    def __init__(self, samples: Sequence[_Sample]) -> None:
        self._samples = samples
        # Copies in several forms share a sample.
        distinct = {(sample.address, *sample.bits): sample for sample in samples}.values()
        self._expected = torch.cat([sample.values.view(torch.int32) for sample in distinct])
        places = torch.cat([sample.places() for sample in distinct])
        first = int(places.min())
        self._places = places - first
        length = int(self._places.max()) + 1
        memory = (ctypes.c_int32 * length).from_address(first * _WIDTH)
        self._memory = torch.frombuffer(memory, dtype=torch.int32)

    def is_of(self, samples: Sequence[_Sample]) -> bool:
        return len(samples) == len(self._samples) and all(map(operator.is_, samples, self._samples))

    def is_unchanged(self) -> bool:
        """Whether the elements have the bits that they had."""
        return torch.equal(torch.index_select(self._memory, 0, self._places), self._expected)


def _sample_of(weight: torch.Tensor) -> _Sample | None:
    """A sample of a dense FP32 weight on the CPU; None for other weights."""
    if weight.device.type != "cpu" or not fills_memory(weight):
        return None
    if weight.dtype is not torch.float32 or weight.data_ptr() % _WIDTH:
        return None
    with torch.no_grad():
        flat = torch.as_strided(weight, (weight.numel(),), (1,))
        largest = max(
            (int(flat.argmax()), int(flat.argmin())), key=lambda place: abs(float(flat[place]))
        )
        step = max(1, flat.numel() // _SAMPLED)
        # Coprime to the size, so that samples spread over rows and columns.
        while gcd(step, flat.numel()) > 1:
            step += 1
        size = 1 + (flat.numel() - 1 - largest % step) // step
        start = weight.storage_offset() + largest % step
        address = weight.data_ptr() + largest % step * _WIDTH
        sample = _Sample((size,), (step,), start, address, torch.empty(0))
        return sample._replace(values=sample.now(weight))


def fills_memory(weight: torch.Tensor) -> bool:
    """Whether a tensor is nonempty and dense in memory."""
    return (
        weight.numel() > 0 and torch.empty_like(weight, device="meta").stride() == weight.stride()
    )


def _same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Bitwise equality, under which NaN equals itself."""
    return torch.equal(left.view(torch.uint8), right.view(torch.uint8))
