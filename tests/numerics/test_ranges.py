"""What ranges tell of numbers equals what numpy tells of them, in any split; half-finished ranges go on as if whole."""

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from sweeps import swept

from mezzo.api.ranges import ranges
from mezzo.common.errors import InputError
from mezzo.contracts.lab import Records
from mezzo.evaluate import resume_file
from mezzo.formats.dtypes import DType
from mezzo.formats.rounding import beyond_from, smallest_normal, vanishing_up_to
from mezzo.numerics.measures import ValueRange
from mezzo.numerics.ranges.ranges import Accumulator, ValueName

_TYPES = {
    DType.FLOAT16: np.float16,
    DType.BFLOAT16: ml_dtypes.bfloat16,
    DType.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    DType.FLOAT8E5M2: ml_dtypes.float8_e5m2,
}


@dataclass
class Shown:
    """Records of whole arrays, each of one value."""

    arrays: list[np.ndarray]
    values: np.ndarray
    scale: int = 1  # a sampled number stands for so many

    def __post_init__(self) -> None:
        finite = [a[np.isfinite(a)] for a in self.arrays]
        self.lowest = np.float32([f.min(initial=np.inf) for f in finite])
        self.highest = np.float32([f.max(initial=-np.inf) for f in finite])
        self.has_nan = np.array([np.isnan(a).any() for a in self.arrays])
        self.has_infinity = np.array([np.isinf(a).any() for a in self.arrays])
        self.counts = np.array([a.size * self.scale for a in self.arrays])
        self.lengths = np.array([a.size for a in self.arrays])
        self.samples = np.concatenate(self.arrays).astype(np.float32)


def told(*batches: np.ndarray) -> ValueRange:
    accumulator = Accumulator(1)
    for number, array in enumerate(batches):
        accumulator.add(Shown([array], np.array([0])), number)
    return accumulator.ranges([ValueName(0, "v", "n", "Op")], {n: f"b{n}" for n in range(len(batches))})[0]


def cases() -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [
        rng.standard_normal(1000).astype(np.float32),
        (rng.standard_normal(1000) * 1e5).astype(np.float32),
        (10.0 ** rng.uniform(-44, 38, 1000)).astype(np.float32),
        np.concatenate([np.zeros(500), 10.0 ** rng.uniform(-12, 6, 500)]).astype(np.float32),
        np.float32([65519.0, 65520.0, 2.0**-25, np.nextafter(np.float32(2.0**-25), np.float32(1)), 2.0**-14, 3e-5]),
        np.float32([464, 465, 61439, 61440, 2.0**-10, 2.0**-17, 2.0**-126, 1e-45, 3.39e38, 3.4e38, 0]),
    ]


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("position", range(6))
def test_shares_are_those_of_rounding_every_number(dtype: DType, position: int) -> None:
    numbers = cases()[position]
    with np.errstate(all="ignore"):
        rounded = numbers.astype(_TYPES[dtype]).astype(np.float64)
    nonzero = numbers != 0
    tiny = nonzero & (np.abs(numbers) < float(ml_dtypes.finfo(_TYPES[dtype]).smallest_normal))
    found = told(numbers).formats[dtype]
    # Sums of 1,000 weights of 1 are exact.
    assert found.beyond == (~np.isfinite(rounded)).mean()
    assert found.vanishing == (nonzero & (rounded == 0)).sum() / nonzero.sum()
    assert found.below_normal == tiny.sum() / nonzero.sum()


@pytest.mark.parametrize("dtype", _TYPES)
def test_the_rounding_error_is_that_of_the_numbers_in_range(dtype: DType) -> None:
    numbers = np.random.default_rng(3).standard_normal(32).astype(np.float32)  # as many as are rounded of a tensor
    wide = numbers.astype(np.float64)
    error = np.linalg.norm(numbers.astype(_TYPES[dtype]).astype(np.float64) - wide) / np.linalg.norm(wide)
    # Two ways to sum 32 squares: 32 eps of FP64.
    assert told(numbers).formats[dtype].rounding == pytest.approx(error, rel=32 * 2.0**-52)
    assert told(np.float32([1, 2, 4, -8])).formats[dtype].rounding == 0.0


@pytest.mark.parametrize("position", range(4))
def test_quantiles_lie_within_a_bin_of_the_numbers(position: int) -> None:
    numbers = np.abs(cases()[position])
    for share, magnitude in told(numbers).quantiles:
        exact = float(np.quantile(numbers, share, method="inverted_cdf"))
        # A bin is an eighth of an octave wide: 9/8 from its lowest number on. Below the normal numbers it is absolute.
        assert exact / 1.125 - 2.0**-126 <= magnitude <= exact * 1.125 + 2.0**-126


def test_quantiles_of_few_numbers_end_at_the_largest() -> None:
    assert told(np.float32([3.0])).quantiles[-1] == (1.0, 3.0)
    assert dict(told(np.zeros(7, np.float32)).quantiles) == dict.fromkeys((0.5, 0.9, 0.99, 0.999, 0.9999, 1.0), 0.0)


def test_any_split_into_batches_tells_the_same() -> None:
    numbers = cases()[2]
    whole = told(numbers)
    for cuts in ([500], [1, 2, 3], [0, 999], [250, 500, 750]):
        parts = told(*np.split(numbers, cuts))
        assert (parts.minimum, parts.maximum, parts.count) == (whole.minimum, whole.maximum, whole.count)
        assert {d: f.beyond for d, f in parts.formats.items()} == {d: f.beyond for d, f in whole.formats.items()}
        assert parts.quantiles == whole.quantiles


def test_the_mean_is_of_finite_magnitudes() -> None:
    held = told(np.float32([1, -3, np.inf, np.nan]), np.float32([2, -np.inf]))
    assert (held.mean_absolute, held.sampled, held.count) == (2.0, 3, 6)
    assert (held.has_nan, held.has_infinity) == (True, True)


def test_a_sampled_number_stands_for_many() -> None:
    accumulator = Accumulator(1)
    accumulator.add(Shown([np.float32([1e6])], np.array([0]), scale=99), 0)
    accumulator.add(Shown([np.float32([1.0])], np.array([0])), 1)
    held = accumulator.ranges([ValueName(0, "v", "n", "Op")], {})[0]
    assert held.formats[DType.FLOAT16].beyond == 0.99


def test_extremes_that_the_sample_missed_count_as_one() -> None:
    records = Shown([np.ones(10, np.float32)], np.array([0]), scale=10)
    records.highest = np.float32([70000])
    accumulator = Accumulator(1)
    accumulator.add(records, 0)
    held = accumulator.ranges([ValueName(0, "v", "n", "Op")], {0: "here"})[0]
    assert held.formats[DType.FLOAT16].beyond == 0.01
    assert held.formats[DType.BFLOAT16].beyond == 0.0
    assert (held.maximum, held.largest_at) == (70000.0, "here")


def test_the_largest_is_named_by_the_first_batch_that_holds_it() -> None:
    assert told(np.float32([1]), np.float32([-5]), np.float32([5]), np.float32([2])).largest_at == "b1"


def test_limits_are_where_rounding_says() -> None:
    assert (beyond_from(DType.FLOAT16), vanishing_up_to(DType.FLOAT16)) == (65520.0, 2.0**-25)
    assert (smallest_normal(DType.FLOAT16), smallest_normal(DType.BFLOAT16)) == (2.0**-14, 2.0**-126)
    for dtype, kind in _TYPES.items():
        at = np.float32([beyond_from(dtype), vanishing_up_to(dtype)])
        before = np.nextafter(at, np.float32([0, 0]))
        after = np.nextafter(at, np.float32([np.inf, np.inf]))
        with np.errstate(all="ignore"):
            assert not np.isfinite(at.astype(kind).astype(np.float32)[0])
            assert np.isfinite(before.astype(kind).astype(np.float32)[0])
            assert at.astype(kind).astype(np.float32)[1] == 0 != after.astype(kind).astype(np.float32)[1]


# -- half-finished ranges -------------------------------------------------------------------------------------------


def model(scale: float = 2.0) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> g (float[N, 50] x) => (float[N, 50] y)
        <float s = {{{scale}}}> {{ a = Mul(x, s)  b = Exp(a)  y = Relu(b) }}""")


def feeds(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    return [{"x": rng.standard_normal((40 + 30 * n, 50)).astype(np.float32)} for n in range(count)]


@pytest.mark.parametrize("done", [1, 3, 5])
def test_resuming_equals_one_run(done: int, tmp_path: Path) -> None:
    state, data = tmp_path / "state.npz", feeds(5)

    def stop(stage: str, number: int, total: int) -> None:
        if stage == "measuring" and number == done:
            raise KeyboardInterrupt

    if done < 5:
        with pytest.raises(KeyboardInterrupt):
            ranges(model(), data, resume=state, progress=stop)
    else:
        ranges(model(), data, resume=state)
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.npz"]
    assert ranges(model(), data, resume=state) == ranges(model(), data)
    assert ranges(model(), data, resume=state).data.batches == 5


def test_an_interrupt_while_adding_up_keeps_the_last_whole_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, data = tmp_path / "state.npz", feeds(3)
    plain = Accumulator._add_samples

    def stop(self: Accumulator, records: object) -> None:
        plain(self, records)  # type: ignore[arg-type]
        if int(self.state["count"].max()) > 5000:
            raise KeyboardInterrupt

    monkeypatch.setattr(resume_file, "_SAVE_EVERY_S", -1.0)  # after every batch
    monkeypatch.setattr(Accumulator, "_add_samples", stop)
    with pytest.raises(KeyboardInterrupt):
        ranges(model(), data, resume=state)
    monkeypatch.undo()
    assert ranges(model(), data, resume=state) == ranges(model(), data)


def test_a_state_of_another_model_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state.npz"
    ranges(model(), feeds(2), resume=state)
    with pytest.raises(InputError, match="the state is of another model; delete it"):
        ranges(model(3.0), feeds(2), resume=state)


def test_a_state_goes_on_with_more_data_and_not_with_less(tmp_path: Path) -> None:
    state = tmp_path / "state.npz"
    ranges(model(), feeds(2), resume=state)
    assert ranges(model(), lambda: iter(feeds(4)), resume=state) == ranges(model(), feeds(4))
    with pytest.raises(InputError, match="the state has 4 batches and the data 3"):
        ranges(model(), feeds(3), resume=state)


def test_a_state_of_other_batches_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.ones((40, 50), np.float32))
    state = tmp_path / "state.npz"
    ranges(model(), tmp_path / "data.npz", batch_size=10, resume=state)
    with pytest.raises(InputError, match=r"batch 0 was 'data.npz\[0:10\]' and is 'data.npz\[0:8\]' now"):
        ranges(model(), tmp_path / "data.npz", batch_size=8, resume=state)
    np.savez(tmp_path / "other.npz", x=np.ones((40, 50), np.float32))
    with pytest.raises(InputError, match=r"the state is of other data.*data.npz.*other.npz.*start anew"):
        ranges(model(), tmp_path / "other.npz", resume=state)


def rewritten(path: Path, **arrays: object) -> bytes:
    """The state with other arrays; None leaves one out."""
    with np.load(path) as held:
        kept = {name: held[name] for name in held.files} | arrays
    content = io.BytesIO()
    np.savez(content, **{name: array for name, array in kept.items() if array is not None})  # type: ignore[arg-type]
    return content.getvalue()


def about(**changes: object) -> Callable[[Path], bytes]:
    def change(path: Path) -> bytes:
        with np.load(path) as held:
            text = json.loads(held["about"].tobytes())
        return rewritten(path, about=np.frombuffer(json.dumps(text | changes).encode(), np.uint8))

    return change


def bomb(path: Path) -> bytes:
    content = io.BytesIO()
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(content, "w") as made:
        made.writestr("about.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    return content.getvalue()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: b"",
        lambda path: path.read_bytes()[:200],
        lambda path: b"no zip at all",
        bomb,
        lambda path: rewritten(path, about=None),
        lambda path: rewritten(path, about=np.array([{"a": 1}], object)),
        lambda path: rewritten(path, about=np.frombuffer(b"[[[[", np.uint8)),
        lambda path: rewritten(path, about=np.frombuffer(b"[" * 100_000, np.uint8)),
        lambda path: rewritten(path, about=np.frombuffer(b"17", np.uint8)),
        about(version="mezzo-ranges/99"),
        about(batches=-1),
        about(batches="many"),
        about(batches=True),
        about(origins=7),
        about(origins=[[1]]),
        about(values=10**12),
        about(strange=1),
        lambda path: rewritten(path, count=None),
        lambda path: rewritten(path, count=np.zeros(1, np.int64)),
        lambda path: rewritten(path, count=np.array([-1, 1, 1, 1])),
        lambda path: rewritten(path, zero=np.array([np.nan, 1, 1, 1])),
        lambda path: rewritten(path, lowest=np.zeros(4, np.int64)),
        lambda path: rewritten(path, bin_places=np.array([1 << 40])),
        lambda path: rewritten(path, bin_places=np.array([-1]), bin_weights=np.array([1.0])),
        lambda path: rewritten(path, bin_places=np.array([1 << 40]), bin_weights=np.array([1.0])),
        lambda path: rewritten(path, bin_weights=np.zeros((2, 2))),
    ],
)
def test_a_damaged_state_is_refused_in_one_line(damage: Callable[[Path], bytes], tmp_path: Path) -> None:
    state = tmp_path / "state.npz"
    ranges(model(), feeds(2), resume=state)
    content = damage(state)
    state.write_bytes(content)
    with pytest.raises(InputError) as raised:
        ranges(model(), feeds(2), resume=state)
    assert str(state) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert state.read_bytes() == content


@pytest.mark.parametrize("seed", range(swept(20)))
def test_the_order_of_records_changes_no_byte(seed: int) -> None:
    """Those of one value stay in theirs: a loop's turns."""
    rng = np.random.default_rng(seed)
    values = np.sort(rng.integers(0, 30, 40)).astype(np.int64)
    samples = [10 ** rng.uniform(-5, 5) * rng.standard_normal(rng.integers(1, 1024)) for _ in values]
    held: list[dict[str, bytes]] = []
    for key in (np.arange(30), rng.permutation(30)):
        order = np.argsort(key[values], kind="stable").tolist()
        drawn = [samples[at].astype(np.float32) for at in order]
        accumulator = Accumulator(30)
        accumulator.add(
            Records(
                values=values[order],
                lowest=np.array([s.min() for s in drawn]),
                highest=np.array([s.max() for s in drawn]),
                has_nan=np.zeros(40, bool),
                has_infinity=np.zeros(40, bool),
                counts=np.array([7 * len(s) for s in drawn]),
                lengths=np.array([len(s) for s in drawn]),
                samples=np.concatenate(drawn),
            ),
            0,
        )
        held.append({name: array.tobytes() for name, array in accumulator.state.items()})
    assert held[0] == held[1], f"seed {seed}"
