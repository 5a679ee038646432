"""The record that `benchmarks/torch_learning.py` keeps: whole after every training, gone on with, or refused."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
_HERE = {"cpu": "a", "threads": 1}


@pytest.fixture(scope="module")
def rows() -> ModuleType:
    sys.path.insert(0, str(_BENCHMARKS))
    try:
        return import_module("learning_rows")
    finally:
        sys.path.pop(0)


def _row(rows: ModuleType, way: str, seed: int, losses: tuple[float, ...] = (3.0, 2.0)) -> Any:
    return rows.Row(
        network="n", way=way, seed=seed, held_out=seed / 10, accuracy=0.5, time_s=1.0, losses=list(losses)
    )  # fmt: skip


def test_the_file_is_whole_after_every_row_and_gone_on_with(rows: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "record.json"
    for count, seed in enumerate((1, 2, 3), 1):
        record = rows.Record(path, _HERE)
        assert not record.has("n", "FP32", seed, 2)
        record.add(_row(rows, "FP32", seed))
        assert len(rows.Record(path, _HERE).rows) == count
    taken_up = rows.Record(path, _HERE)
    assert taken_up.rows == record.rows
    assert [taken_up.has("n", "FP32", seed, 2) for seed in (1, 4)] == [True, False]
    assert not taken_up.has("n", "mezzo", 1, 2) and not taken_up.has("other", "FP32", 1, 7)
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_rows_of_other_steps_and_of_another_machine_are_not_gone_on_with(rows: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    record = rows.Record(path, _HERE)
    record.add(_row(rows, "FP32", 1))
    with pytest.raises(rows.RecordError, match=r"record\.json has n with 2 steps, not 3; name another file"):
        record.has("n", "mezzo", 1, 3)
    before = path.read_bytes()
    with pytest.raises(rows.RecordError, match=r"record\.json was written with other threads; name another file"):
        rows.Record(path, {**_HERE, "threads": 2})
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"rows": 1}', '{"rows": [{"way": "w"}]}', '{"rows": [], "environment": 1}']
)
def test_a_file_that_is_no_record_is_one_line(rows: ModuleType, tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(rows.RecordError) as caught:
        rows.Record(path, _HERE)
    said = str(caught.value)
    assert said.startswith(f"{path} is no record of trainings (") and "\n" not in said
    assert path.read_text() == text


def test_the_table_says_how_each_way_ends(rows: ModuleType) -> None:
    trained = [_row(rows, way, seed) for way in ("FP32", "mezzo") for seed in (1, 2, 3)]
    assert [cells[-1] for cells in rows._cells(trained)] == ["the baseline", "equal within noise"]
    assert [cells[-2] for cells in rows._cells(trained)] == ["50.00%", "50.00%"]
