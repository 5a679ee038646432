"""Trainings read, judged and drawn: the file's two forms, hostile ones, the verdict over seeds, and the page."""

import json
import math
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mezzo
from mezzo.common.errors import InputError
from mezzo.contracts.training_curves import Training
from mezzo.io import curvefile
from mezzo.io.curvefile import read_curves, read_rows
from mezzo.numerics.statistics.training_curves import TEST, Curves, Ending, judge_curves, judge_ends
from mezzo.report.html import render_curves
from mezzo.report.text.training.curves import describe_curves, rows_of_curves, thinned

HOSTILE = '</svg><script>alert(1)</script><img src=x onerror="alert(2)">\x1b[31m'


def _training(way: str, seed: int, losses: list[float], **others: Any) -> Training:
    return Training(**{"network": "", "way": way, "seed": seed, "losses": tuple(losses), **others})


def _write(folder: Path, text: str, name: str = "losses.json") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_lines_and_steps_are_the_same_trainings(tmp_path: Path) -> None:
    rows = [{"network": "n", "way": w, "seed": s, "losses": [3, 2.5, s]} for w in ("FP32", "mezzo") for s in (1, 2)]
    steps = [
        {"network": "n", "way": row["way"], "seed": row["seed"], "step": step, "loss": loss}
        for row in rows
        for step, loss in enumerate(row["losses"])  # type: ignore[arg-type]  # a list, as written above
    ]
    random.Random(1).shuffle(steps)
    forms = {
        "rows": json.dumps({"environment": {}, "rows": rows}, indent=1),
        "lines": "\n\n".join(map(json.dumps, rows)),
        "steps": "\n".join(map(json.dumps, steps)) + "\n",
    }
    found = {name: read_curves([_write(tmp_path, text)]) for name, text in forms.items()}
    assert found["rows"] == found["lines"]
    assert {(one.way, one.seed): one for one in found["steps"]} == {(one.way, one.seed): one for one in found["rows"]}
    assert found["rows"][0] == Training(network="n", way="FP32", seed=1, losses=(3.0, 2.5, 1.0))


def test_losses_that_went_astray_are_read_as_what_they_are(tmp_path: Path) -> None:
    (one,) = read_curves([_write(tmp_path, '{"way": "w", "losses": [1, NaN, Infinity, 1e999, ' + "9" * 400 + "]}")])
    assert one.seed == 0
    assert math.isnan(one.losses[1])
    assert one.losses[2:] == (math.inf,) * 3


def test_rows_that_a_program_holds_are_as_those_of_a_file(tmp_path: Path) -> None:
    rows = [{"network": "n", "way": "FP32", "seed": seed, "losses": [3, 2.5, seed], "held_out": 2} for seed in (1, 2)]
    held = [
        {**row, "seed": np.int64(at), "losses": tuple(np.float32([3, 2.5, at])), "held_out": np.float64(2)}
        for at, row in enumerate(rows, 1)
    ]
    steps = [{"way": "w", "step": step, "loss": np.float32(step)} for step in (2, 1)]
    assert read_rows(held) == read_rows(rows) == read_curves([_write(tmp_path, json.dumps({"rows": rows}))])
    assert read_rows(iter(steps)) == (_training("w", 0, [1.0, 2.0]),)
    assert [type(one) for one in (read_rows(held)[0].seed, *read_rows(held)[0].losses)] == [int, float, float, float]


HELD_FAULTS: dict[str, tuple[Any, str]] = {
    "nothing": ([], "recorded: no training is there; {row}"),
    "no row": ([7], "recorded, row 1 holds 7; {row}"),
    "not numbers": (
        [{"way": "w", "losses": "12"}],
        "recorded, row 1: losses is '12'; give a list of numbers, one for each step",
    ),
    "a flag": ([{"way": "w", "losses": [np.True_]}], "recorded, row 1: losses holds np.True_; give numbers"),
    "half a seed": (
        [{"way": "w", "seed": 0.5, "losses": [1]}],
        "recorded, row 1: seed is 0.5; give a whole number up to 100000000",
    ),
    "a flag as a seed": (
        [{"way": "w", "seed": True, "losses": [1]}],
        "recorded, row 1: seed is True; give a whole number up to 100000000",
    ),
    "twice": (
        [{"way": "w", "losses": [1]}] * 2,
        "recorded: way 'w' with seed 0 is there twice; give each its own seed",
    ),
    "a document": ({"rows": []}, "recorded, row 1: way is missing; give a text of at most 200 characters"),
    "mixed": (["a.json", {"way": "w", "losses": [1]}], "recorded holds files and rows; give the ones or the others"),
    "no file": ("gone.json", "cannot read 'gone.json': No such file or directory; name a file of recorded losses"),
}


@pytest.mark.parametrize("name", HELD_FAULTS)
def test_what_a_program_holds_and_is_no_training_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded, said = HELD_FAULTS[name]
    with pytest.raises(InputError) as caught:
        mezzo.curves(recorded)
    assert str(caught.value) == said.replace("{row}", ROW)


ROW = 'a row is {"way": ..., "seed": ..., "losses": [...]}, a step {"way", "seed", "step": ..., "loss": ...}'
FAULTS = {
    "": f"no training is there; {ROW}",
    "[1]": f"line 1 holds a list; {ROW}",
    "{": f"line 1 is no JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)); {ROW}",
    "[" * 100_000: f"line 1 is no JSON (nested too deeply); {ROW}",
    '{"way": "w"}': f"line 1 has neither losses nor a loss; {ROW}",
    '{"losses": [1]}': "line 1: way is missing; give a text of at most 200 characters",
    '{"way": "", "losses": [1]}': "line 1: way is ''; give a text of at most 200 characters",
    '{"way": "' + "w" * 201 + '", "losses": [1]}': (
        "line 1: way is a text of 201 characters; give a text of at most 200 characters"
    ),
    '{"way": "w", "losses": []}': "line 1: losses is an empty list; give a list of numbers, one for each step",
    '{"way": "w", "losses": "1"}': "line 1: losses is '1'; give a list of numbers, one for each step",
    '{"way": "w", "losses": [true]}': "line 1: losses holds True; give numbers",
    '{"way": "w", "losses": [{}]}': "line 1: losses holds an object; give numbers",
    '{"way": "w", "seed": 1.5, "losses": [1]}': "line 1: seed is 1.5; give a whole number up to 100000000",
    '{"way": "w", "loss": 1}': "line 1: step is missing; give a whole number up to 100000000",
    '{"way": "w", "step": ' + "1" * 30 + ', "loss": 1}': (
        "line 1: step is a whole number too large; give a whole number up to 100000000"
    ),
    '{"way": "w", "step": 1, "loss": 1}\n' * 2: "line 2: step 1 of way 'w' with seed 0 is there twice; keep one",
    '{"way": "w", "losses": [1]}\n' * 2: "way 'w' with seed 0 is there twice; give each its own seed",
    '{"rows": [{"way": "w", "losses": [null]}]}': "row 1: losses holds missing; give numbers",
}


@pytest.mark.parametrize("text", FAULTS, ids=[str(number) for number in range(len(FAULTS))])
def test_what_is_no_training_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_curves([_write(tmp_path, text)])
    said = str(caught.value)
    assert said.endswith(FAULTS[text])
    assert "losses.json" in said
    assert "\n" not in said


def test_what_is_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(tmp_path, '{"way": "w", "losses": [1, 2, 3]}\n{"way": "w", "seed": 1, "losses": [1, 2, 3]}')
    for name, most, said in (
        ("_MOST_LOSSES", 5, "brings the losses to more than 5; record fewer steps"),
        ("_MOST_TRAININGS", 1, "brings the trainings to 2; give at most 1"),
        ("_MOST_BYTES", 8, "is larger than 0 MiB; record fewer steps"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(curvefile, name, most)
            with pytest.raises(InputError) as caught:
                read_curves([path])
        assert str(caught.value).endswith(said)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"is no text in UTF-8 \(byte 0\)"):
        read_curves([binary])


def test_alike_is_said_only_where_the_seeds_can_tell() -> None:
    baseline = {1: 1.0, 2: 1.1, 3: 1.2}  # a standard deviation of 0.1: a margin of 0.2
    cases: list[tuple[dict[int, float], Ending]] = [
        ({1: 1.01, 2: 1.1, 3: 1.19}, Ending.EQUAL),
        ({1: 1.0, 2: 1.1, 3: 1.2}, Ending.EQUAL),
        ({1: 1.5, 2: 1.61, 3: 1.7}, Ending.HIGHER),
        ({1: 0.5, 2: 0.61, 3: 0.7}, Ending.LOWER),
        ({1: 1.2, 2: 1.1, 3: 1.0}, Ending.UNKNOWN),  # the same mean, but pairs far apart
        ({1: 1.0, 2: 1.1}, Ending.UNKNOWN),
        ({4: 1.0, 5: 1.1, 6: 1.2}, Ending.UNKNOWN),
        ({1: 1.0, 2: math.nan, 3: 1.2}, Ending.ASTRAY),
    ]
    for ends, ending in cases:
        judged = judge_ends(ends, baseline)
        assert judged.ending is ending, ends
        assert bool(judged.because) is (ending is Ending.UNKNOWN)
    assert judge_ends(baseline, {1: math.inf, 2: 1.0, 3: 1.0}).because == "the baseline's ends are not finite"
    # Three differences of 0, 0.01 and 0.02: 2.920 times their standard deviation over the root of three to either side.
    judged = judge_ends({1: 1.0, 2: 1.11, 3: 1.22}, baseline)
    assert judged.low is not None and judged.high is not None and judged.margin is not None
    assert (judged.difference, judged.low, judged.high) == pytest.approx((0.01, -0.006859, 0.026859), abs=1e-6)
    assert judged.margin == pytest.approx(0.2)


def test_noise_alone_is_seldom_called_a_difference() -> None:
    """Each side of the interval misses in 5 % of all draws; so many of 2,000 stray by less than 1.5 %."""
    rng = random.Random(7)
    called = 0
    for _ in range(2000):
        base = {seed: rng.gauss(0, 0.01) for seed in range(5)}
        judged = judge_ends({seed: base[seed] + rng.gauss(0, 1) for seed in base}, base)
        called += judged.ending in (Ending.HIGHER, Ending.LOWER)
    assert 0.085 < called / 2000 < 0.115, "seed 7"


def test_curves_are_running_means_with_the_spread_of_the_seeds() -> None:
    trainings = [
        _training("a", 1, [float(at) for at in range(40)]),
        _training("a", 2, [float(2 * at) for at in range(30)]),
    ]
    (one,) = judge_curves(trainings)
    (curve,) = one.curves
    assert one.window == 3
    assert curve.steps == tuple(range(3, 31))
    assert curve.lowest == tuple(float(at) for at in range(1, 29))
    assert curve.highest == tuple(2.0 * at for at in range(1, 29))
    assert curve.mean == tuple(1.5 * at for at in range(1, 29))
    assert curve.ends == {1: 38.0, 2: 56.0}


WAYS_OF_NETWORKS = [
    _training(way, seed, [end + seed], network=network)
    for network, ends in (("a", {"FP32": 1.0, "BF16": 1.0, "fp16": 4.0}), ("b", {"BF16": 1.0, "FP32": 0.5}))
    for way, end in ends.items()
    for seed in (1, 2, 3)
]


def _endings(networks: tuple[Curves, ...]) -> dict[str, dict[str, Ending]]:
    return {one.network: {curve.way: curve.judged.ending for curve in one.curves} for one in networks}


@pytest.mark.parametrize("word", ["BF16", "bf16", "b-f 16"])
def test_a_baseline_that_is_named_is_that_of_every_network(word: str) -> None:
    assert _endings(judge_curves(WAYS_OF_NETWORKS, word)) == {
        "a": {"FP32": Ending.EQUAL, "BF16": Ending.BASELINE, "fp16": Ending.HIGHER},
        "b": {"BF16": Ending.BASELINE, "FP32": Ending.EQUAL},
    }


BASELINES = {
    "fp16": "baseline 'fp16' is no way of network 'b' (did you mean 'BF16'?); choose one of 'BF16', 'FP32'",
    "": "baseline '' is no way of network 'a'; choose one of 'FP32', 'BF16', 'fp16'",
    "FP23": "baseline 'FP23' is no way of network 'a' (did you mean 'FP32'?); choose one of 'FP32', 'BF16', 'fp16'",
}


@pytest.mark.parametrize("word", BASELINES)
def test_a_baseline_that_a_network_lacks_is_one_line(word: str) -> None:
    with pytest.raises(InputError) as caught:
        judge_curves(WAYS_OF_NETWORKS, word)
    assert str(caught.value) == BASELINES[word]


def test_a_baseline_is_exact_before_it_is_alike_and_names_are_quoted_and_few() -> None:
    alike = [_training(way, 1, [1.0]) for way in ("a b", "a-b", "c")]
    assert _endings(judge_curves(alike, "a-b"))[""]["a-b"] is Ending.BASELINE
    with pytest.raises(InputError) as caught:
        judge_curves(alike, "AB")
    assert str(caught.value) == "baseline 'AB' may be 'a b' or 'a-b'; write which"
    many = [_training(f"{HOSTILE}\n{at:02}", 1, [1.0], network=HOSTILE) for at in range(17)]
    with pytest.raises(InputError) as caught:
        judge_curves(many, "zzz")
    said = str(caught.value)
    assert said.isprintable()
    assert said.count("<script>") == 17 and said.endswith("15', ...")  # the network, and sixteen ways


def test_the_baseline_is_fp32_else_the_first_and_held_out_counts_where_all_have_it() -> None:
    def endings(trainings: list[Training]) -> list[str]:
        curves = [curve for one in judge_curves(trainings) for curve in one.curves]
        return [curve.way for curve in curves if curve.judged.ending is Ending.BASELINE]

    assert endings([_training("x", 1, [1]), _training("fp32", 1, [1])]) == ["fp32"]
    assert endings([_training("x", 1, [1]), _training("FP32", 1, [1])]) == ["FP32"]
    assert endings([_training("x", 1, [1]), _training("y", 1, [1])]) == ["x"]
    assert endings([_training("x", 1, [1], network=name) for name in "ab"]) == ["x", "x"]
    held = [_training("x", 1, [1], held_out=5.0), _training("y", 1, [2], held_out=6.0)]
    assert [curve.ends for curve in judge_curves(held)[0].curves] == [{1: 5.0}, {1: 6.0}]
    assert judge_curves([held[0], _training("y", 1, [2])])[0].curves[0].ends == {1: 1.0}


@pytest.mark.parametrize("count", [1, 2, 399, 400, 401, 1000, 100_003])
def test_points_are_thinned_with_both_ends_kept(count: int) -> None:
    places = list(thinned(count))
    assert places[0] == 0 and places[-1] == count - 1
    assert len(places) <= 400 and places == sorted(set(places))


class _Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _page(networks: tuple[Curves, ...]) -> tuple[str, _Tags]:
    page = render_curves(networks, TEST)
    return page, _Tags(page)


def test_the_page_holds_no_script_and_names_cannot_break_out() -> None:
    trainings = [_training(HOSTILE, seed, [3, 2, 1], network=HOSTILE) for seed in (1, 2)]
    page, tags = _page(judge_curves(trainings))
    assert not {"script", "img", "link", "iframe"} & set(tags.found)
    assert "default-src &#x27;none&#x27;" in page
    assert "\x1b" not in page
    assert "http" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL).replace("http-equiv", "")
    assert any(text.startswith("</svg><script>alert(1)") for text in tags.texts), "it is told all the same"


def test_the_drawing_has_a_band_where_seeds_differ_and_breaks_where_nothing_is_finite() -> None:
    two = [_training("a", 1, [3, 2, 1]), _training("a", 2, [4, 3, 2]), _training("b", 1, [3, math.nan, 1])]
    page, tags = _page(judge_curves(two))
    assert tags.found.count("polygon") == 1
    assert re.findall(r'points="([^"]*)" fill="none"', page)[0].count(",") == 3
    assert tags.found.count("polyline") == 3, "the second way's line is in two parts"
    assert "nan" not in page.partition("<table")[0].partition("<svg")[2]
    for losses in ([math.nan], [0.0], [-1.0, 1.0], [1e308, 1e-308], [5e-324, 1.7e308], [-1.7e308, 1.7e308], [2.0, 2.0]):
        page, _ = _page(judge_curves([_training("w", 1, losses)]))
        assert not re.search(r'"[^"<>]*\b(nan|inf)\b[^"<>]*"', page), losses


def test_many_ways_and_networks_are_bounded_and_counted() -> None:
    trainings = [_training(f"way {at}", 1, [1.0], network=f"net {net}") for net in range(34) for at in range(70)]
    page, tags = _page(judge_curves(trainings))
    assert tags.found.count("svg") == 32
    assert tags.found.count("tr") == 32 * 65, "a head and the most ways of each"
    assert "2 more networks" in page
    assert "and 58 more below" in page


def test_the_document_is_json_whatever_the_losses_are() -> None:
    told = describe_curves(judge_curves([_training("w", 1, [math.nan, math.inf, 1.0])]), TEST)
    read = json.loads(json.dumps(told, allow_nan=False))
    assert read["format"] == "mezzo-curves/1"
    assert read["networks"][0]["ways"][0]["mean"] == ["nan", "inf", 1.0]


def test_curves_print_as_the_table_that_the_command_prints_and_tell_what_its_document_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "220")
    path = _write(tmp_path, json.dumps({"rows": [_row(one) for one in WAYS_OF_NETWORKS]}))
    first, second = mezzo.curves([path], baseline="bf16")
    assert [" ".join(line.split()) for line in str(second).splitlines()] == [
        "b: each end is the last loss",
        "way end of seeds from the baseline 90 % interval equal within",
        "BF16 3 2 to 4 - - - the baseline",
        "FP32 2.5 1.5 to 3.5 -0.5 -0.5 .. -0.5 2 equal within noise",
        f"judged {TEST}",
    ]
    assert repr(first).splitlines() == [
        "Curves of 3 ways over 3 seeds, a: each end is the last loss",
        "  equal within noise: FP32; higher: fp16",
        "  the baseline is BF16; print it for a table",
    ]
    assert first.to_dict() == describe_curves([first], TEST)
    second.save(tmp_path / "second.json")
    assert json.loads((tmp_path / "second.json").read_text()) == describe_curves([second], TEST)


def _row(training: Training) -> dict[str, object]:
    return {"network": training.network, "way": training.way, "seed": training.seed, "losses": list(training.losses)}


def test_curves_say_of_which_ways_nothing_can_be_told() -> None:
    (one,) = judge_curves([_training(way, 1, [1.0]) for way in ("FP32", HOSTILE)])
    assert repr(one).splitlines()[1].startswith("  cannot tell: </svg>")
    assert "\x1b" not in repr(one) + str(one)
    fragment = one._repr_html_()
    assert "<script" not in fragment and "&lt;script&gt;" in fragment
    assert "1 seed in common, and 3 are needed" in fragment
    (alone,) = judge_curves([_training("FP32", 1, [1.0])])
    assert repr(alone).splitlines()[1] == "  nothing stands beside the baseline"


@pytest.mark.filterwarnings("error")
def test_ends_that_are_not_finite_have_no_mean() -> None:
    ends = {1: math.inf, 2: -math.inf, 3: 1.0}
    baseline = [_training("FP32", seed, [1.0]) for seed in ends]
    (one,) = judge_curves([*baseline, *(_training("w", seed, [end]) for seed, end in ends.items())])
    assert [" ".join(row) for row in rows_of_curves(one)] == [
        "FP32 1 1 to 1 - - - the baseline",
        "w nan -inf to inf - - - not finite",
    ]
    assert one._repr_html_().count("<svg") == 2
