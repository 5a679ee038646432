"""Calibrators by the words that people write, and functions of their own."""

from pathlib import Path

import numpy as np
import pytest

from mezzo.common.errors import InputError
from mezzo.contracts.calibrator import Grid, Range, Summary
from mezzo.formats.dtypes import DType
from mezzo.quantize.arithmetic.choosing import choose_range
from mezzo.quantize.calibrator_names import calibrator_of
from mezzo.quantize.observers.collector import Collector

U8 = Grid(dtype=DType.UINT8)
OURS = """
def half(seen):
    return seen.extremes.low / 2, seen.extremes.high / 2

def wide(seen):
    return -1e9, 1e9

def broken(seen):
    return 1 / 0

def nothing(seen):
    return None

def three(seen):
    return 1, 2, 3

def endless(seen):
    return 0, float("inf")

def turned(seen):
    return 2, -2

A_NUMBER = 3

class Quarters:
    def __init__(self):
        self.largest = {}
    def collect(self, name, array):
        self.largest[name] = max(self.largest.get(name, 0), float(abs(array).max()))
    def choose(self, name):
        return -self.largest[name] / 4, self.largest[name] / 4

class Blind:
    def choose(self, name):
        return 0, 1

class Mute:
    def collect(self, name, array):
        pass

class Unborn(Quarters):
    def __init__(self):
        raise RuntimeError("no\\nmemory")

class Broken(Quarters):
    def collect(self, name, array):
        return self.missing

class Meddler(Quarters):
    def collect(self, name, array):
        array[:] = 0

class Forgetful(Quarters):
    def collect(self, name, array):
        pass

class Nonsense(Quarters):
    def choose(self, name):
        return "wide"
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "our_ranges.py").write_text(OURS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "our_ranges", raising=False)


def seen() -> Summary:
    collector = Collector()
    collector.add("x", np.float32([-2.0, 1.0, 6.0]))
    return collector.summary("x")


@pytest.mark.parametrize(
    ("word", "held"),
    [
        ("minmax", Range(-2.0, 6.0)),
        ("MinMax", Range(-2.0, 6.0)),
        ("naive", Range(-2.0, 6.0)),
        ("percentile=100", Range(-2.0, 6.0)),
        ("our_ranges:half", Range(-1.0, 3.0)),
        ("our_ranges:wide", Range(-2.0, 6.0)),
    ],
)
def test_word_stands_for_a_calibrator(word: str, held: Range) -> None:
    assert choose_range(calibrator_of(word), seen(), U8) == held


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("mims", r"^calibrator 'mims' is unknown.*; choose one of entropy, minmax, mse, none, percentile"),
        ("minmax=3", r"^calibrator 'minmax' takes no setting, and '3' was given; write minmax$"),
        ("percentile=", r"^calibrator 'percentile': '' is no share to cover; write a percentage from 50 to 100"),
        (
            "nowhere_at_all:f",
            r"^calibrator 'nowhere_at_all:f' cannot be imported: ModuleNotFoundError.*; write module:f",
        ),
        ("our_ranges:gone", r"'our_ranges:gone' cannot be imported: AttributeError.*; write module:function$"),
        (":f", r"^calibrator ':f' cannot be imported: ValueError"),
        (
            "our_ranges:A_NUMBER",
            r"is a int, wanted a function of what was seen of a tensor$",
        ),
    ],
)
def test_word_for_nothing_is_named(word: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        calibrator_of(word)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", r"^calibrator 'our_ranges:broken' failed: ZeroDivisionError: division by zero; mend it$"),
        ("nothing", r"gave None, wanted the smallest and the largest number to cover; mend it$"),
        ("three", r"gave \(1, 2, 3\), wanted the smallest"),
        ("endless", r"gave \(0, inf\), wanted the smallest"),
        ("turned", r"gave \(2, -2\), wanted the smallest"),
    ],
)
def test_function_that_gives_no_range_is_named(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_range(calibrator_of(f"our_ranges:{name}"), seen(), U8)


def calibrate_by(word: str, numbers: np.ndarray) -> None:
    ours = calibrator_of(word)
    ours.collect("x", numbers)
    choose_range(ours.of("x"), seen(), U8)


def test_class_sees_every_batch_of_every_value_and_chooses_by_name() -> None:
    ours = calibrator_of("our_ranges:Quarters")
    for name, numbers in (("x", [-2.0, 1.0]), ("y", [100.0]), ("x", [8.0])):
        ours.collect(name, np.float32(numbers))
    assert choose_range(ours.of("x"), seen(), U8) == Range(-2.0, 2.0)
    assert choose_range(ours.of("y"), seen(), U8) == Range(-2.0, 6.0)  # cut to what was seen


def test_class_starts_anew_for_each_calibration() -> None:
    first, second = calibrator_of("our_ranges:Quarters"), calibrator_of("our_ranges:Quarters")
    for numbers, ours in ((400.0, first), (8.0, second)):
        ours.collect("x", np.float32([numbers]))
    assert choose_range(second.of("x"), seen(), U8) == Range(-2.0, 2.0)


@pytest.mark.parametrize("name", ["minmax", "our_ranges:half"])
def test_what_chooses_by_summaries_sees_nothing_else(name: str) -> None:
    plain = calibrator_of(name)
    plain.collect("x", np.float32([1e9]))
    assert choose_range(plain.of("x"), seen(), U8) == choose_range(calibrator_of(name), seen(), U8)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "Blind",
            r"^calibrator 'our_ranges:Blind' is a class without the method 'collect'; it takes collect\(name, arr",
        ),
        (
            "Mute",
            r"^calibrator 'our_ranges:Mute' is a class without the method 'choose'; it takes collect\(name, array",
        ),
        ("Unborn", r"^calibrator 'our_ranges:Unborn' cannot be made: RuntimeError: no memory; mend it$"),
        ("Broken", r"^calibrator 'our_ranges:Broken' failed at value 'x': AttributeError: .*; mend it$"),
        ("Meddler", r"^calibrator 'our_ranges:Meddler' failed at value 'x': ValueError: .*read-only; mend it$"),
        ("Forgetful", r"^calibrator 'our_ranges:Forgetful' failed: KeyError: 'x'; mend it$"),
        ("Nonsense", r"^calibrator 'our_ranges:Nonsense' failed: ValueError: could not convert string.*; mend it$"),
    ],
)
def test_class_that_fails_is_named(name: str, message: str) -> None:
    numbers = np.float32([1.0, -3.0])
    with pytest.raises(InputError, match=message):
        calibrate_by(f"our_ranges:{name}", numbers)
    assert numbers.tolist() == [1.0, -3.0]
