"""Worker process: opens models, prepares jobs on them and runs items. Independent of Ray."""

import os
import platform
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mezzo.clusters.model_transfer import Bundle, TransferredModel, open_bundle, open_by_path
from mezzo.clusters.scratch_dirs import Holding, tidy_up
from mezzo.common.errors import ContractError, InputError, MezzoError, ModelError
from mezzo.common.machine import Machine, find_machine
from mezzo.common.message_style import MessageStyle, speaking_to
from mezzo.common.packages import VERSION
from mezzo.contracts.executor import Job
from mezzo.contracts.frontend import Model

# Number of models kept open and jobs kept ready, least recently used dropped first.
_MODELS, _JOBS = 3, 3
# Error types that the driver raises again, by name.
KINDS: Mapping[str, type[MezzoError]] = {
    kind.__name__: kind for kind in (MezzoError, InputError, ModelError, ContractError)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """Identity of a worker. `machine` determines its results to the last bit."""

    version: str
    machine: Machine
    host: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job with its models' sources; `key` is unique."""

    key: int
    job: Job[Any, Any]
    sources: tuple[TransferredModel, ...]
    voice: MessageStyle


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The result of an item or a preparation. `fault`: the error's type and text. `lacks`: number
    of a model that has to be sent as files. `is_unknown`: the job is not ready on this worker.
    """

    outcome: Any = None
    fault: tuple[str, str] | None = None
    lacks: int | None = None
    is_unknown: bool = False
    time_s: float = 0.0
    pid: int = 0


class Worker:
    """One worker process."""

    def __init__(self) -> None:
        self._models: OrderedDict[str, Model] = OrderedDict()
        self._ready: OrderedDict[int, tuple[Callable[[Any], Any], MessageStyle]] = OrderedDict()
        self._folder: Holding | None = None

    def greet(self) -> Handshake:
        tidy_up()
        return Handshake(
            version=VERSION, machine=find_machine(), host=platform.node(), pid=os.getpid()
        )

    def prepare(self, order: Order, numbers: Sequence[int], *sent: Bundle) -> Reply:
        """Prepare a job. `sent`: models as files; `numbers`: their indices in the job."""
        begin, bundles = time.monotonic(), dict(zip(numbers, sent, strict=True))
        with speaking_to(order.voice):
            try:
                models = []
                for number, source in enumerate(order.sources):
                    model = self._open(source, bundles.get(number))
                    if model is None:
                        return Reply(lacks=number, pid=os.getpid())
                    models.append(model)
                self._ready[order.key] = order.job.open(models), order.voice
            except Exception as error:  # noqa: BLE001  raised again by the driver
                return Reply(fault=_spell(error), pid=os.getpid())
        while len(self._ready) > _JOBS:
            self._ready.popitem(last=False)
        return Reply(time_s=time.monotonic() - begin, pid=os.getpid())

    def run(self, key: int, item: Any) -> Reply:
        """Run one item of a ready job."""
        if key not in self._ready:
            return Reply(is_unknown=True, pid=os.getpid())
        self._ready.move_to_end(key)
        run, voice = self._ready[key]
        begin = time.monotonic()
        try:
            with speaking_to(voice):
                outcome = run(item)
        except Exception as error:  # noqa: BLE001  raised again by the driver
            return Reply(fault=_spell(error), pid=os.getpid())
        return Reply(outcome=outcome, time_s=time.monotonic() - begin, pid=os.getpid())

    def _open(self, source: TransferredModel, bundle: Bundle | None) -> Model | None:
        model = self._models.get(source.key)
        if model is None:
            if source.path is not None and bundle is None:
                model = open_by_path(source)
            elif bundle is not None:
                model = open_bundle(bundle, self._place(source.key))
            if model is None:
                return None
            self._models[source.key] = model
        self._models.move_to_end(source.key)
        while len(self._models) > _MODELS:
            self._models.popitem(last=False)
        return model

    def _place(self, key: str) -> Path:
        """A folder of this worker for a model's files."""
        self._folder = self._folder or Holding()
        folder = self._folder.path / key
        folder.mkdir(exist_ok=True)
        return folder

    def leave(self) -> None:
        """Close all models, and remove temporary files."""
        self._ready.clear()
        self._models.clear()
        if self._folder is not None:
            self._folder.close()


def _spell(error: Exception) -> tuple[str, str]:
    kind = next((name for name, error_type in KINDS.items() if type(error) is error_type), None)
    if kind is None and isinstance(error, MezzoError):
        kind = "MezzoError"
    if kind is not None:
        return kind, str(error)
    return "", "".join(traceback.format_exception(error))
