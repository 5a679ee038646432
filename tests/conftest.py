"""Fixtures of all tests. Results are run on the runtime of their target by tests that say so, as that takes seconds."""

import os

import pytest

# Tests start mezzo some thousand times, each half a second slower where Python may keep no bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(autouse=True)
def _no_runtime_check(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("on_runtime") is None:
        monkeypatch.setattr("mezzo.tuning.repair.runtime_check.find_runtime", lambda profiler, target: None)
        # What gains depends on the machine.
        monkeypatch.setattr("mezzo.tuning.fastest_format.find_candidates", lambda machine: [])
        usual = ("fp16", None, "to fp16, for the size alone; --to overrides")
        monkeypatch.setattr("mezzo.planner.options.choose_by_tables", lambda machine: usual)
