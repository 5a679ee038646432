"""The verbs take a model of another kind than ONNX: found, planned, converted, repaired, judged and tuned."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from plugins.distributions import install
from toy_frontend import ToyProgram, read_program

import mezzo
from mezzo.cli import main
from mezzo.formats.dtypes import DType
from mezzo.numerics.measures import Ruling
from mezzo.plugins.discovery import targets

# A product whose result is moved, joined with itself and put out; the checker refuses that join in anything but FP32.
TEXT = """
in x 4
const w 16
h = product x w
m = move h
s = plus m h
out s
"""
# Enough products that they are worth two casts.
DEEP = """
in x 64
const u 4096
const v 4096
const w 4096
a = product x u
b = blur a
c = product b v
d = product c w
out d
"""
JOINED = """
in x 4
const w 16
h = product x w
s = join h h
out s
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy front end, installed as a package is."""
    install(tmp_path / "site", "toys", {"mezzo.frontends": {"toy": "toy_frontend:FRONTEND"}}, {})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def program(text: str = TEXT, scale: float = 1.0, version: int = 2) -> ToyProgram:
    rng = np.random.default_rng(5)
    sizes = {words[1]: int(words[2]) for line in text.splitlines() if (words := line.split())[:1] == ["const"]}
    weights = {
        name: (rng.standard_normal((math.isqrt(size),) * 2) * scale).astype(np.float32) for name, size in sizes.items()
    }
    return ToyProgram(text, weights, version)


def saved(folder: Path, made: ToyProgram, name: str = "a.toy") -> Path:
    path = folder / name
    path.write_text(made.to_json(), encoding="utf-8")
    return path


def feeds(samples: int = 32, scale: float = 1.0, width: int = 4) -> dict[str, Any]:
    return {"x": (np.random.default_rng(7).standard_normal((samples, width)) * scale).astype(np.float32)}


def lines_of(path: Path) -> list[str]:
    return read_program(path.read_text(encoding="utf-8")).text.strip().splitlines()


def precisions(plan: mezzo.Plan) -> Mapping[str, str]:
    return {node.name: str(node.precision.compute) for node in plan.nodes if node.kind == "op"}


def convert(source: Path, result: Path | None = None, **options: Any) -> mezzo.Converted:
    return mezzo.convert(source, result, target="any", **options)


def test_program_becomes_a_typed_program(tmp_path: Path) -> None:
    source = saved(tmp_path, program())
    before = source.read_text(encoding="utf-8")
    converted = convert(source, tmp_path / "b.toy", policy="aggressive")
    assert lines_of(tmp_path / "b.toy") == [
        "in x 4",
        "x_f16 = cast.f16 x",
        "const w 16",
        "h = product x_f16 w",
        "m = move h",
        "s = plus m h",
        "s_f32 = cast.f32 s",
        "out s s_f32",
    ]
    made = read_program((tmp_path / "b.toy").read_text(encoding="utf-8"))
    assert made.weights["w"].dtype == np.float16
    assert made.text == converted.model.text
    assert (converted.summary.low_nodes, converted.summary.casts) == (3, 2)
    assert source.read_text(encoding="utf-8") == before
    assert converted.summary.size_after_bytes == (tmp_path / "b.toy").stat().st_size


def test_program_in_memory_is_opened_by_its_type() -> None:
    opened: Any = program()
    plan = mezzo.plan(opened, target="any", policy="aggressive")
    assert precisions(plan) == {"h": "f16", "m": "f16", "s": "f16"}


def test_explain_walks_from_a_node_to_what_led_to_it(tmp_path: Path) -> None:
    plan = mezzo.plan(saved(tmp_path, program()), target="any", exclude=["h"])
    assert [(entry.name, entry.rule) for entry in mezzo.explain(plan, "h")] == [("h", "exclude")]
    assert set(precisions(plan).values()) == {"f32"}


def test_what_the_checker_refuses_goes_back_to_fp32_with_its_words(tmp_path: Path) -> None:
    converted = convert(saved(tmp_path, program(JOINED)), tmp_path / "b.toy", policy="aggressive")
    assert precisions(converted.plan) == {"h": "f16", "s": "f32"}
    line = converted.plan.by_name["s"]
    assert (line.rule, line.because) == (
        "contract", "the toy checker refused it low: s: join of one value with itself must be f32",
    )  # fmt: skip
    assert "s = join h_f32 h_f32" in lines_of(tmp_path / "b.toy")


def test_plan_that_the_checker_refuses_is_an_error_in_the_words_of_the_front_end(tmp_path: Path) -> None:
    source = saved(tmp_path, program(JOINED))
    plan = mezzo.plan(source, target="any", policy="aggressive")
    low = [node._replace(precision=plan.by_name["h"].precision) if node.name == "s" else node for node in plan.nodes]
    expected = "the plan's result would not be valid toy: s: join of one value with itself must be f32; change the plan"
    with pytest.raises(mezzo.ContractError, match=re.escape(expected)):
        mezzo.convert(source, plan=plan.with_nodes(low))


def test_program_that_is_wrong_as_it_came_is_told_so(tmp_path: Path) -> None:
    made = program("in x 4\nconst w 16\nx_f16 = cast.f16 x\nh = product x_f16 w\nout h")
    source = saved(tmp_path, made)
    with pytest.raises(mezzo.ModelError, match="is low already; convert what it was made of"):
        convert(source)


def test_plan_is_written_read_and_replayed(tmp_path: Path) -> None:
    source = saved(tmp_path, program())
    plan = mezzo.plan(source, target="any", to="bf16")
    mezzo.save_plan(plan, tmp_path / "plan.json")
    first = convert(source, tmp_path / "b.toy", to="bf16")
    second = mezzo.convert(source, tmp_path / "c.toy", plan=tmp_path / "plan.json")
    assert lines_of(tmp_path / "b.toy") == lines_of(tmp_path / "c.toy")
    assert first.plan.nodes == second.plan.nodes


@pytest.mark.parametrize(("opset", "version", "low"), [("auto", 2, {"m", "s"}), ("keep", 1, set[str]())])
def test_version_rises_where_that_lets_a_node_run_low(tmp_path: Path, opset: str, version: int, low: set[str]) -> None:
    source = saved(tmp_path, program(version=1))
    converted = convert(source, tmp_path / "b.toy", policy="aggressive", opset=opset)
    made = read_program((tmp_path / "b.toy").read_text(encoding="utf-8"))
    assert made.version == version
    assert {name for name, dtype in precisions(converted.plan).items() if dtype == "f16"} == {"h"} | low
    notes = [note for note in converted.summary.notes if "version went" in note]
    assert notes == (["the version went from 1 to 2: only there the schema allows f16"] if low else [])


def test_version_rises_no_further_than_the_target_loads(tmp_path: Path) -> None:
    target = replace(targets()["any"], newest={"onnx": 26, "toy": 1})
    plan = mezzo.plan(saved(tmp_path, program(version=1)), target=target, policy="aggressive")
    assert (plan.dialect, plan.version) == ("toy", None)
    assert mezzo.plan(saved(tmp_path, program(version=1)), target="any", policy="aggressive").version == 2


def test_plan_of_onnx_is_no_plan_of_a_program(tmp_path: Path) -> None:
    source = saved(tmp_path, program())
    plan = replace(mezzo.plan(source, target="any"), dialect="onnx")
    with pytest.raises(mezzo.InputError, match=r"the plan is of a model in dialect 'onnx', and .*a\.toy' is in 'toy'"):
        mezzo.convert(source, plan=plan)


def test_version_stays_where_nothing_that_needs_it_runs_low(tmp_path: Path) -> None:
    source = saved(tmp_path, program(version=1))
    convert(source, tmp_path / "b.toy", policy="aggressive", exclude=["s"])
    assert read_program((tmp_path / "b.toy").read_text(encoding="utf-8")).version == 1


def test_comparison_tells_same_from_different(tmp_path: Path) -> None:
    source, result = saved(tmp_path, program()), tmp_path / "b.toy"
    convert(source, result, policy="aggressive")
    same = mezzo.compare(source, result, [feeds()])
    assert same.verdict.ruling is Ruling.SAME
    assert 0.0 < same.verdict.error.estimate < same.verdict.budget
    assert {layer.name for layer in same.layers} == {"h", "m"}
    other = saved(tmp_path, program(scale=1.5), "other.toy")
    assert mezzo.compare(source, other, [feeds()]).verdict.ruling is Ruling.DIFFERENT


def test_random_inputs_fit_a_program(tmp_path: Path) -> None:
    """It says what its inputs take, and nothing else is asked of it."""
    source, result = saved(tmp_path, program()), tmp_path / "b.toy"
    convert(source, result)
    comparison = mezzo.compare(source, result, "random")
    assert comparison.data.seed == 0 and comparison.data.samples >= 16
    assert "not refuted" in repr(comparison) and mezzo.ranges(source, "random:2").data.seed == 2


def test_comparison_cannot_tell_on_data_that_shows_nothing(tmp_path: Path) -> None:
    source, result = saved(tmp_path, program()), tmp_path / "b.toy"
    convert(source, result, policy="aggressive")
    silent = {"x": np.full((8, 4), np.nan, np.float32)}
    assert mezzo.compare(source, result, [silent]).verdict.ruling is Ruling.UNKNOWN


def test_programs_are_not_compared_with_onnx(tmp_path: Path) -> None:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> g (float[N,4] x) => (float[N,4] y) '
                                    "{ y = Relu(x) }")  # fmt: skip
    onnx.save(model, tmp_path / "b.onnx")
    with pytest.raises(mezzo.InputError, match=r"a\.toy' is toy and .*b\.onnx' is ONNX; compare models of one kind"):
        mezzo.compare(saved(tmp_path, program()), tmp_path / "b.onnx", [feeds()])


def test_ranges_are_measured(tmp_path: Path) -> None:
    source = saved(tmp_path, program(scale=1e5))
    measured = {value.value: value for value in mezzo.ranges(source, [feeds(), feeds(8)]).values}
    assert measured.keys() == {"x", "h", "m", "s"}
    x = np.concatenate([feeds()["x"], feeds(8)["x"]])
    assert (measured["x"].count, measured["x"].minimum) == (x.size, float(x.min()))
    assert measured["h"].formats[DType.FLOAT16].beyond > 0.5


def test_value_that_overflows_on_data_is_protected(tmp_path: Path) -> None:
    source = saved(tmp_path, program(scale=1e5 / 65504))  # its weights fit FP16
    data = feeds(scale=1e6)
    unprotected = convert(source, policy="aggressive")
    assert "f16" in precisions(unprotected.plan).values()
    converted = convert(source, tmp_path / "b.toy", policy="aggressive", data=[data])
    assert set(precisions(converted.plan).values()) == {"f32"}
    assert converted.plan.by_name["h"].rule == "data-overflow"
    assert converted.measured is not None and converted.measured.comparison is not None
    assert converted.measured.comparison.verdict.ruling is Ruling.SAME


def test_sensitivity_and_tuning_run_assignments_of_a_program(tmp_path: Path) -> None:
    source = saved(tmp_path, program(DEEP, scale=0.125))
    data, unseen = [feeds(width=64), feeds(8, width=64)], [feeds(4, width=64)]
    found = mezzo.sensitivity(source, data, target="any")
    assert {name for unit in found.units for name in unit.nodes} == {"a", "b", "c", "d"}
    assert all(unit.error > 0.0 for unit in found.units)
    tight = mezzo.tune(source, data=data, held_out=unseen, max_error=1e-7, target="any")
    assert set(precisions(tight.plan).values()) == {"f32"}
    loose = mezzo.tune(source, data=data, held_out=unseen, max_error=1e-1, target="any")
    assert set(precisions(loose.plan).values()) == {"f16"}


def test_what_nothing_times_is_not_put_beside_others(tmp_path: Path) -> None:
    source = saved(tmp_path, program())
    with pytest.raises(mezzo.InputError, match="cannot be timed: front end 'toy' does not; leave it out"):
        mezzo.bench([source])


def test_what_nothing_times_is_not_measured(tmp_path: Path) -> None:
    with pytest.raises(mezzo.InputError, match="cannot be timed: front end 'toy' does not; leave out measure"):
        mezzo.tune(saved(tmp_path, program()), data=[feeds()], max_error=1e-2, measure=True, target="any")


def test_emulation_rounds_as_the_typed_program_does(tmp_path: Path) -> None:
    source, result = saved(tmp_path, program()), tmp_path / "b.toy"
    converted = convert(source, result, policy="aggressive")
    planned = mezzo.emulate(source, feeds(), plan=converted.plan)
    typed = mezzo.emulate(result, feeds())
    np.testing.assert_array_equal(planned["s"], typed["s"])
    assert not np.array_equal(typed["s"], mezzo.emulate(source, feeds())["s"])


def test_commands_take_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, result = str(saved(tmp_path, program())), str(tmp_path / "b.toy")
    options = ["--target", "any", "--policy", "aggressive", "--no-provenance", "--quiet"]
    assert main(["convert", source, result, *options]) == 0
    assert main(["show", result]) == 0
    assert "h = product x_f16 w" in capsys.readouterr().out
    assert main(["explain", source, "s", "--target", "any"]) == 0
    assert "plus" in capsys.readouterr().out


# -- discovery ------------------------------------------------------------------------------------------------------


def refusal_of(source: Any) -> str:
    with pytest.raises(mezzo.InputError) as caught:
        mezzo.plan(source)
    return str(caught.value)


def test_source_that_nobody_opens_names_all_that_are_opened() -> None:
    assert refusal_of(3) == (
        "source is a int, wanted a path, an onnx.ModelProto, an onnx_ir.Model, a torch.export.ExportedProgram or a "
        "ToyProgram"
    )  # fmt: skip


def test_broken_front_end_is_named_where_nothing_else_opens_the_source(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path / "site", "odd", {"mezzo.frontends": {"odd": "toy_frontend:NUMPY"}}, {})
    said = (
        "left out: front end 'odd' of odd 1.0 (toy_frontend:NUMPY) cannot be used: it is a dict, wanted a "
        "mezzo.contracts.frontend.Frontend; mend or uninstall odd"
    )
    assert refusal_of(3).endswith(said)
    assert precisions(mezzo.plan(saved(tmp_path, program()), target="any"))
    assert not caplog.messages
    assert "No such file" in refusal_of(tmp_path / "a.odd")
    assert caplog.messages == [said]


def test_two_front_ends_of_one_suffix_are_refused(tmp_path: Path) -> None:
    twin = """
        from toy_frontend import ToyFrontend

        class Twin(ToyFrontend):
            name = "twin"

        FRONTEND = Twin()
    """
    install(tmp_path / "site", "twins", {"mezzo.frontends": {"twin": "twins:FRONTEND"}}, {"__init__.py": twin})
    source = saved(tmp_path, program())
    found = f"source {str(source)!r} is opened by front ends 'toy' and 'twin'"
    assert refusal_of(source) == f"{found}; uninstall all but one"


def test_file_that_is_no_program_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "b.toy"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(mezzo.ModelError, match=r"b\.toy' is no toy program \('weights'\); write it anew"):
        mezzo.plan(path)
    assert refusal_of(tmp_path / "c.toy").startswith(f"cannot read {str(tmp_path / 'c.toy')!r}: No such file")
