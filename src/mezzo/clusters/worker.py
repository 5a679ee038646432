"""Worker process: opens models, prepares jobs on them and runs items. Independent of Ray."""

import os
import platform
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mezzo.clusters.model_transfer import Bundle, TransferredModel, open_bundle, open_by_path
from mezzo.clusters.scratch_dirs import ScratchDir, remove_scratch_dirs
from mezzo.common.errors import ContractError, InputError, MezzoError, ModelError
from mezzo.common.machine import Machine, find_machine
from mezzo.common.message_style import MessageStyle, using_message_style
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
class JobMessage:
    """A job with its models' sources, for a worker; `key` is unique."""

    key: int
    job: Job[Any, Any]
    sources: tuple[TransferredModel, ...]
    style: MessageStyle


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


class Worker:
    """One worker process."""

    def __init__(self) -> None:
        self._models: OrderedDict[str, Model] = OrderedDict()
        self._ready: OrderedDict[int, tuple[Callable[[Any], Any], MessageStyle]] = OrderedDict()
        self._scratch: ScratchDir | None = None

    def greet(self) -> Handshake:
        remove_scratch_dirs()
        return Handshake(
            version=VERSION, machine=find_machine(), host=platform.node(), pid=os.getpid()
        )

    def prepare(self, message: JobMessage, numbers: Sequence[int], *sent: Bundle) -> Reply:
        """Prepare a job. `sent`: models as files; `numbers`: their indices in the job."""
        bundles = dict(zip(numbers, sent, strict=True))

        def work() -> Reply:
            models = []
            for number, source in enumerate(message.sources):
                model = self._open(source, bundles.get(number))
                if model is None:
                    return Reply(lacks=number)
                models.append(model)
            self._ready[message.key] = message.job.open(models), message.style
            return Reply()

        reply = _answer(work, message.style)
        while len(self._ready) > _JOBS:
            self._ready.popitem(last=False)
        return reply

    def run(self, key: int, item: Any) -> Reply:
        """Run one item of a ready job."""
        if key not in self._ready:
            return Reply(is_unknown=True)
        self._ready.move_to_end(key)
        run, style = self._ready[key]
        return _answer(lambda: Reply(outcome=run(item)), style)

    def _open(self, source: TransferredModel, bundle: Bundle | None) -> Model | None:
        model = self._models.get(source.key)
        if model is None:
            if bundle is not None:
                model = open_bundle(bundle, self._make_folder(source.key))
            elif source.path is not None:
                model = open_by_path(source)
            if model is None:
                return None
            self._models[source.key] = model
        self._models.move_to_end(source.key)
        while len(self._models) > _MODELS:
            self._models.popitem(last=False)
        return model

    def _make_folder(self, key: str) -> Path:
        """A folder of this worker for a model's files."""
        self._scratch = self._scratch or ScratchDir()
        folder = self._scratch.path / key
        folder.mkdir(exist_ok=True)
        return folder

    def leave(self) -> None:
        """Close all models, and remove temporary files."""
        self._ready.clear()
        self._models.clear()
        if self._scratch is not None:
            self._scratch.close()


def _answer(work: Callable[[], Reply], style: MessageStyle) -> Reply:
    """The reply of some work, with its time; an error is a reply too."""
    begin = time.monotonic()
    try:
        with using_message_style(style):
            reply = work()
    except Exception as error:  # noqa: BLE001  raised again by the driver
        return Reply(fault=_spell(error))
    return replace(reply, time_s=time.monotonic() - begin)


def _spell(error: Exception) -> tuple[str, str]:
    """The nearest type that the driver can raise, with the message; other errors as a traceback."""
    for error_type in type(error).__mro__:
        if error_type.__name__ in KINDS:
            return error_type.__name__, str(error)
    return "", "".join(traceback.format_exception(error))
