"""What a case is, and how idioms become cases: each idiom in many spellings, drawn from seeds."""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx

from spellings.phrases import Writer
from spellings.placing import finish

SAMPLES = 2
# A careful implementation rounds a dozen values on the way, each by half an eps, and the errors of a unit-scale
# computation add up at worst linearly: within 8 eps. mezzo's own check of a conversion has the same budget.
ROUNDINGS = 8.0
EPS = {"fp16": 2.0**-10, "bf16": 2.0**-7}

Feeds = Mapping[str, np.ndarray]
Write = Callable[..., Sequence[str]]


@dataclass(frozen=True, slots=True)
class Idiom:
    """One function that a low format gets wrong, or that only looks so. `variants` are parameters of `write`.

    `k`: an answer is right within `k` eps of the format; `because` says why where k is not the common one.
    """

    klass: str
    name: str
    write: Write
    variants: tuple[Mapping[str, float], ...] = ({},)
    opset: int = 11
    count: int = 6
    k: float = ROUNDINGS
    because: str = ""


class Case:
    """One spelling of one idiom. The model and its data follow from the seed."""

    def __init__(self, idiom: Idiom, number: int) -> None:
        self.idiom = idiom
        self.number = number
        self.variant = idiom.variants[number % len(idiom.variants)]
        said = " ".join(f"{key}={value:g}" for key, value in self.variant.items())
        self.name = f"{idiom.klass}/{idiom.name}{' ' + said if said else ''} #{number}"
        self.seed = zlib.crc32(self.name.encode())

    def __repr__(self) -> str:
        return self.name

    @cached_property
    def _written(self) -> tuple[onnx.ModelProto, Writer]:
        draft = Writer(self.seed, opset=self.idiom.opset, is_plain=self.number < len(self.idiom.variants))
        results = self.idiom.write(draft, **self.variant)
        return finish(draft, results, "spelling"), draft

    @property
    def model(self) -> onnx.ModelProto:
        return self._written[0]

    @property
    def spelling(self) -> str:
        """The choices that were not the first ones."""
        return ", ".join(self._written[1].notes)

    def feeds(self, sample: int) -> Feeds:
        """One sample of what an engineer would take for granted: unit normal, or what the model's prologue expects."""
        random = np.random.default_rng([self.seed, sample])
        return {port.info.name: np.asarray(port.sample(random)) for port in self._written[1].ports}

    def tolerance(self, to: str) -> float:
        """Relative L2 error of an output that is still right."""
        return self.idiom.k * EPS[to]


def cases_of(idioms: Iterable[Idiom]) -> list[Case]:
    """Every idiom: each variant plainly, then in as many drawn spellings as it asks for."""
    return [Case(idiom, n) for idiom in idioms for n in range(len(idiom.variants) * (1 + idiom.count))]
