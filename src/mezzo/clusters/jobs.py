"""Registry of jobs on a cluster; sends their models by path, or once via the object store."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mezzo.clusters.model_transfer import TransferredModel, bundle_of, source_of
from mezzo.clusters.tasks import ExecutorCounters
from mezzo.clusters.worker import JobMessage
from mezzo.clusters.worker_pool import Tell
from mezzo.common.message_style import MessageStyle, either
from mezzo.contracts.executor import Job
from mezzo.contracts.frontend import Model


@dataclass(kw_only=True)
class RegisteredJob:
    """A job and its models. `message` and `files` (by model number) are Ray object references."""

    title: str
    message: Any
    models: Callable[[], Sequence[Model]]
    files: dict[int, Any]


class Jobs:
    """Jobs by key, until dropped. `ray`: the module, after `ray.init` has
    connected it to a cluster."""

    def __init__(self, ray: Any, counts: ExecutorCounters, tell: Tell) -> None:
        self._ray, self._counts, self._tell = ray, counts, tell
        self._keys, self._jobs = itertools.count(), dict[int, RegisteredJob]()

    def __getitem__(self, key: int) -> RegisteredJob:
        return self._jobs[key]

    def __contains__(self, key: object) -> bool:
        return key in self._jobs

    def register(self, job: Job[Any, Any], models: Callable[[], Sequence[Model]]) -> int | None:
        """Register a job and return its key; None if one of its models cannot be sent."""
        sources, files = [], dict[int, Any]()
        for number, model in enumerate(models()):
            source = source_of(model)
            if source is None:
                if model.store is None:
                    self._tell(
                        f"{model.name} is no file and cannot be sent: {job.title} stays in this"
                        " process"
                    )
                    return None
                source, files[number] = self._send(model)
            sources.append(source)
        key = next(self._keys)
        style = MessageStyle(either(MessageStyle.SHELL.value, MessageStyle.PYTHON.value))
        message = JobMessage(key=key, job=job, sources=tuple(sources), style=style)
        self._jobs[key] = RegisteredJob(
            title=job.title, message=self._ray.put(message), models=models, files=files
        )
        return key

    def drop(self, key: int) -> None:
        """Forget a job that no caller waits for."""
        self._jobs.pop(key, None)

    def send_late(self, key: int, number: int) -> None:
        """Send a model as files, because a worker cannot read its path."""
        registered = self._jobs[key]
        if number not in registered.files:
            model = registered.models()[number]
            self._tell(
                f"{model.name} is not there for all workers under its path: it is sent as files"
            )
            registered.files[number] = self._send(model)[1]

    def _send(self, model: Model) -> tuple[TransferredModel, Any]:
        source, bundle = bundle_of(model)
        self._counts.files_bytes += sum(content.nbytes for content in bundle.files.values())
        return source, self._ray.put(bundle)
