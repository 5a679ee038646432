"""What other packages add: found by their metadata, imported when asked for, named where they are broken."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import SMALL
from plugins.distributions import install

import mezzo
from mezzo.cli import main
from mezzo.plugins import discovery

NPU = """
    summary = "our NPU"

    [[run]]
    format = "fp16"
    ops = "MatMul"
    because = "no kernel"
"""
TABLE = """
    from mezzo.tables.target import Target

    TARGET = Target(name="{}", summary="made in Python")
"""
_KINDS = {"policy": discovery.policies, "target": discovery.targets, "strategy": discovery.strategies}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder where packages are installed."""
    before = set(sys.modules)
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def small() -> onnx.ModelProto:
    return onnx.parser.parse_model(SMALL)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


def test_target_that_a_package_ships_as_toml_decides_and_is_told(site: Path) -> None:
    install(site, "acme-npu", {"mezzo.targets": {"acme": "acme_npu:npu.toml"}}, {"__init__.py": "", "npu.toml": NPU})
    plan = mezzo.plan(small(), target="acme", policy="aggressive")
    assert {node.name: (str(node.precision.compute), node.rule) for node in plan.nodes if node.kind == "op"} == {
        "mm": ("f16", "otherwise"), "sm": ("f32", "target"),
    }  # fmt: skip
    assert "acme: no kernel" in plan.by_name["sm"].because


def test_policy_and_strategy_of_a_package_are_used(site: Path) -> None:
    policy = 'base = "off"\n[[rule]]\nop = "Softmax"\ngives = "allow"\n'
    strategy = """
        from mezzo.planner.strategies.mincut import MinCut

        class Ours(MinCut):
            name = "ours"
            summary = "min-cut by another name"
    """
    points = {"mezzo.policies": {"soft": "acme:soft.toml"}, "mezzo.strategies": {"ours": "acme.strategy:Ours"}}
    install(site, "acme", points, {"__init__.py": "", "soft.toml": policy, "strategy.py": strategy})
    plan = mezzo.plan(small(), policy="soft", strategy="ours")
    assert [str(node.precision.compute) for node in plan.nodes if node.kind == "op"] == ["f32", "f16"]
    assert {"ours"} <= {row.strategy for row in mezzo.compare_strategies(small())}


def test_policy_of_a_package_may_be_a_function_of_a_node(site: Path) -> None:
    code = "def colour(site):\n    return 'allow' if site.op == 'Softmax' else 'deny'\n"
    points = {"mezzo.policies": {"soft": "acme:colour", "odd": "acme:nothing"}}
    install(site, "acme", points, {"__init__.py": code + "def nothing(): pass\n"})
    nodes = [node for node in mezzo.plan(small(), policy="soft").nodes if node.kind == "op"]
    assert [(str(node.precision.compute), node.rule) for node in nodes] == [("f32", "colour"), ("f16", "colour")]
    with pytest.raises(
        mezzo.InputError, match=r"policy 'odd' of acme 1.0 .* cannot be used: InputError: policy function"
    ):
        mezzo.plan(small(), policy="odd")


def test_metric_of_a_package_is_found_by_its_name(site: Path) -> None:
    from mezzo.numerics.metrics.user_metric import load_metric

    install(site, "acme", {"mezzo.metrics": {"flat": "acme:flat"}}, {"__init__.py": "def flat(o, l): return 1.0\n"})
    assert load_metric("flat")({}, {}) == 1.0  # type: ignore[operator]
    with pytest.raises(mezzo.InputError, match=r"metric is 'sharp'; write module:function.*or choose one of flat$"):
        load_metric("sharp")


def test_metric_that_is_no_function_or_stands_twice_is_named(site: Path) -> None:
    from mezzo.numerics.metrics.user_metric import load_metric

    points = {"mezzo.metrics": {"odd": "acme:odd", "twice": "acme:odd"}}
    install(site, "acme", points, {"__init__.py": "odd = 3\n"})
    install(site, "other", {"mezzo.metrics": {"twice": "other:f"}}, {"__init__.py": ""})
    with pytest.raises(mezzo.InputError, match=r"metric 'odd' of acme 1.0 \(acme:odd\) cannot be used: it is a int"):
        load_metric("odd")
    with pytest.raises(mezzo.InputError, match=r"'twice' is taken twice, by acme 1.0 .* and by other 1.0"):
        load_metric("twice")


@pytest.mark.parametrize("command", ["targets", "policies", "strategies"])
def test_listing_says_where_each_comes_from(command: str, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "__init__.py": "", "npu.toml": NPU, "soft.toml": 'deny = ["Softmax"]',
        "strategy.py": "from mezzo.planner.strategies.mincut import MinCut\n\nclass Ours(MinCut):\n    name = 'acme'\n",
    }  # fmt: skip
    places = {"targets": "npu.toml", "policies": "soft.toml", "strategies": "strategy:Ours"}
    place = f"acme.{places[command]}" if command == "strategies" else f"acme:{places[command]}"
    install(site, "acme", {f"mezzo.{command}": {"acme": place}}, files, version="2.1")
    code, out, err = run(capsys, command)
    assert (code, err) == (0, "")
    assert f"acme 2.1 ({place})" in out and "built in" in out
    listed = json.loads(run(capsys, command, "--json")[1])
    origins = {row["name"]: row["origin"] for row in listed[command]}
    assert origins.pop("acme") == f"acme 2.1 ({place})" and set(origins.values()) == {"built in"}
    assert listed["broken"] == []


BROKEN = {
    "raises when imported": (
        "acme:TARGET",
        {"__init__.py": "raise OSError('no driver\\nhere')"},
        "OSError: no driver here",
    ),
    "leaves the process": ("acme:TARGET", {"__init__.py": "import sys; sys.exit(3)"}, "SystemExit: 3"),
    "no module": ("nowhere_at_all:TARGET", {}, "No module named 'nowhere_at_all'"),
    "no object": ("acme:TARGET", {"__init__.py": ""}, "has no attribute 'TARGET'"),
    "no place": ("acme", {"__init__.py": ""}, "'acme' is no place; write module:object"),
    "another type": ("acme:TARGET", {"__init__.py": "TARGET = 3"}, "it is a int, wanted a mezzo.tables.target.Target"),
    "another name": ("acme:TARGET", {"__init__.py": TABLE.format("other")}, "it calls itself 'other'"),
    "wrong inside": (
        "acme:TARGET",
        {"__init__.py": "from mezzo.tables.target import Target\nTARGET = Target(name='npu', summary='s', refusals=3)"},
        "TypeError",
    ),
    "no file": ("acme:npu.toml", {"__init__.py": ""}, "FileNotFoundError"),
    "no TOML": ("acme:npu.toml", {"__init__.py": "", "npu.toml": "= ="}, "target 'npu' is not TOML"),
    "an unknown key": ("acme:npu.toml", {"__init__.py": "", "npu.toml": "speed = 3"}, "'speed' is unknown"),
    "stands on itself": ("acme:npu.toml", {"__init__.py": "", "npu.toml": 'base = "npu"'}, "npu on npu"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_one_is_named_and_left_out(fault: str, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, files, because = BROKEN[fault]
    install(site, "acme", {"mezzo.targets": {"npu": place}}, files)
    install(site, "whole", {"mezzo.targets": {"fine": "whole:t.toml"}}, {"__init__.py": "", "t.toml": NPU})
    code, out, err = run(capsys, "targets")
    assert code == 0 and "whole 1.0 (whole:t.toml)" in out and "acme" not in out
    (line,) = err.splitlines()
    assert line.startswith(f"mezzo: left out: target 'npu' of acme 1.0 ({place}) cannot be used: ")
    assert because in line and line.endswith("; mend or uninstall acme")
    assert json.loads(run(capsys, "targets", "--json")[1])["broken"] == [line.removeprefix("mezzo: ")]
    with pytest.raises(mezzo.InputError) as caught:
        mezzo.plan(small(), target="npu")
    assert because in str(caught.value) and "\n" not in str(caught.value)
    mezzo.plan(small(), target="fine")
    mezzo.plan(small())


@pytest.mark.parametrize("kind", _KINDS)
def test_name_taken_twice_is_an_error_that_names_both(kind: str, site: Path) -> None:
    group = {"policy": "mezzo.policies", "target": "mezzo.targets", "strategy": "mezzo.strategies"}[kind]
    for package in ("acme", "other"):
        install(site, package, {group: {"npu": f"{package}:npu.toml"}}, {"__init__.py": "", "npu.toml": ""})
    with pytest.raises(mezzo.InputError) as caught:
        mezzo.plan(small(), **{kind: "npu"})  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"{kind} 'npu' is taken twice, by acme 1.0 (acme:npu.toml) and by other 1.0 (other:npu.toml); uninstall one"
    )
    with pytest.raises(mezzo.InputError, match="taken twice"):
        _KINDS[kind]()
    mezzo.plan(small())  # what asks for another name is not concerned


def test_name_of_mezzos_own_cannot_be_taken(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "acme", {"mezzo.policies": {"balanced": "acme:b.toml"}}, {"__init__.py": "", "b.toml": ""})
    with pytest.raises(mezzo.InputError, match=r"'balanced' is taken twice, by mezzo itself and by acme 1.0 \(acme:b"):
        mezzo.plan(small())
    code, out, err = run(capsys, "policies")
    assert code == 2 and out == "" and "taken twice, by mezzo itself and by acme 1.0" in err
    mezzo.plan(small(), policy="off")


def test_package_found_twice_is_one(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a package is installed beside its own sources: the first on the path counts, as for imports."""
    files = {"__init__.py": "", "npu.toml": NPU}
    install(site, "acme", {"mezzo.targets": {"npu": "acme:npu.toml"}}, files, version="2")
    (tmp_path / "later").mkdir()
    install(tmp_path / "later", "acme", {"mezzo.targets": {"npu": "acme:npu.toml"}}, files, version="1")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "later")])
    assert str(discovery.targets().origins["npu"]) == "acme 2 (acme:npu.toml)"


def test_line_of_metadata_that_is_none_disturbs_nobody(site: Path) -> None:
    install(site, "acme", {"mezzo.targets": {"npu": "acme:npu.toml"}}, {"__init__.py": "", "npu.toml": NPU})
    with (site / "acme-1.0.dist-info" / "entry_points.txt").open("a") as file:
        file.write("\nnonsense without a sign\n")
    table = discovery.targets()
    assert "npu" in table and len(table.broken) == 1 and "'nonsense without a sign' of acme 1.0" in table.broken[0]


def test_file_of_the_user_may_stand_on_a_target_of_a_package(site: Path, tmp_path: Path) -> None:
    install(site, "acme", {"mezzo.targets": {"npu": "acme:npu.toml"}}, {"__init__.py": "", "npu.toml": NPU})
    mine = tmp_path / "mine.toml"
    mine.write_text('base = "npu"\n')
    assert "mine: no kernel" in mezzo.plan(small(), target=mine, policy="aggressive").by_name["sm"].because


def test_nothing_is_imported_that_is_not_asked_for(site: Path) -> None:
    loud = {"__init__.py": "raise SystemExit('imported')"}
    points = {group: {"loud": "loud:THING"} for group in ("mezzo.targets", "mezzo.policies", "mezzo.strategies")}
    install(site, "loud", points, loud)
    mezzo.plan(small(), target="onnx", policy="balanced", strategy="mincut")
    assert "loud" in discovery.names("target") and "loud" not in sys.modules
    with pytest.raises(mezzo.InputError, match=r"choose one of .*loud"):
        mezzo.plan(small(), target="nobody")


def test_replaying_a_plan_of_a_strategy_that_is_gone_works(site: Path, tmp_path: Path) -> None:
    plan = mezzo.plan(small())
    mezzo.save_plan(plan, tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(text.replace('"mincut"', '"gone"'))
    assert mezzo.convert(small(), plan=tmp_path / "plan.json").summary.low_nodes == 1


def test_what_a_package_says_is_told_in_the_result_by_its_content(site: Path) -> None:
    install(site, "acme", {"mezzo.targets": {"npu": "acme:npu.toml"}}, {"__init__.py": "", "npu.toml": NPU})
    result = mezzo.convert(small(), target="npu").model
    (text,) = [entry.value for entry in result.metadata_props if "npu (" in entry.value]
    (site / "acme" / "npu.toml").write_text(NPU.replace("    ", "") + 'source = "another"\n')
    again = mezzo.convert(small(), target="npu").model
    assert text not in [entry.value for entry in again.metadata_props]


def test_import_of_the_package_reads_no_metadata_and_runs_nothing(site: Path) -> None:
    install(site, "loud", {"mezzo.targets": {"loud": "loud:T"}}, {"__init__.py": "raise SystemExit('imported')"})
    code = "import sys, mezzo; print('importlib.metadata' in sys.modules, 'mezzo.plugins.entries' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": f"{site}:{_source()}"},
    )
    assert ran.stdout.split() == ["False", "False"]


def _source() -> Path:
    return Path(mezzo.__file__).parents[1]


CALIBRATORS = """
    from mezzo.contracts.calibrator import Calibrator, Range

    class Half(Calibrator):
        name = "half"
        summary = "half of what was seen"

        def choose(self, seen, grid):
            return Range(seen.extremes.low / 2, seen.extremes.high / 2)

    class Nameless(Half):
        name = "other"

    class Unmade(Half):
        name = "unmade"

        def __init__(self, share):
            self.share = share
"""


def test_calibrator_of_a_package_chooses_ranges(site: Path) -> None:
    from mezzo.contracts.calibrator import Grid, Range
    from mezzo.formats.dtypes import DType
    from mezzo.quantize.arithmetic.choosing import choose_range
    from mezzo.quantize.calibrator_names import calibrator_of
    from mezzo.quantize.observers.collector import Collector

    points = {"half": "acme:Half", "odd": "acme:Nameless", "unmade": "acme:Unmade", "number": "acme:CALIBRATORS"}
    install(site, "acme", {"mezzo.calibrators": points}, {"__init__.py": CALIBRATORS})
    collector = Collector()
    collector.add("x", np.float32([-2.0, 4.0]))
    grid = Grid(dtype=DType.UINT8)
    assert choose_range(calibrator_of("half"), collector.summary("x"), grid) == Range(-1.0, 2.0)
    for name, message in {
        "odd": r"'odd' of acme 1\.0 .* it calls itself 'other'",
        "unmade": r"'unmade' of acme 1\.0 \(acme:Unmade\) cannot be used: TypeError",
        "number": r"'number' of acme 1\.0 .* has no attribute 'CALIBRATORS'",
        "half=3": r"^calibrator 'half' takes no setting, and '3' was given; write half$",
    }.items():
        with pytest.raises(mezzo.InputError, match=message):
            calibrator_of(name)
    table = discovery.calibrators()
    assert str(table.origins["half"]) == "acme 1.0 (acme:Half)" and len(table.broken) == 3


ROUNDINGS = """
import numpy as np
from mezzo.contracts.rounding import RoundedBlocks, Rounding

class Zeros(Rounding):
    name, summary = "zeros", "everything becomes zero"
    def round(self, blocks, storage):
        ones, zeros = np.ones(len(blocks), np.float32), np.zeros(len(blocks), np.int32)
        return RoundedBlocks(np.zeros(blocks.shape, np.int32), ones, zeros)

class Far(Zeros):
    name = "far"
    def round(self, blocks, storage):
        return super().round(blocks, storage)._replace(integers=np.full(blocks.shape, 99))
"""


def test_rounding_of_a_package_is_used_and_its_results_are_checked(site: Path) -> None:
    from mezzo.formats.block_storage import BlockStorage
    from mezzo.onnx.files.block_payloads import BlockPart, block_payload_of

    points = {"zeros": "acme:Zeros", "far": "acme:Far"}
    install(site, "acme", {"mezzo.roundings": points}, {"__init__.py": ROUNDINGS})
    weight = np.float32([1.0, 2.0])

    def dequantized(name: str) -> np.ndarray:
        storage = BlockStorage(bits=4, block=2, axis=0, rounding=name)
        return block_payload_of(storage, (2,), BlockPart.FLOATS, "w").convert(weight)

    assert dequantized("zeros").tolist() == [0.0, 0.0]
    with pytest.raises(mezzo.ContractError, match=r"^rounding 'far' returned integers outside 0 to 15; mend it$"):
        dequantized("far")


EXPORTERS = """
from mezzo.io.plan_export import PlanExporter, kept, operators

class Acme(PlanExporter):
    name, tool, summary = "acme-npu", "Acme", "names"
    written_for = tried_with = "Acme 1.0"
    usage = "acme FILE"
    def render(self, plan):
        return " ".join(kept(operators(plan), frozenset(plan.lows)))
"""


def test_exporter_of_a_package_takes_a_plan(site: Path) -> None:
    install(site, "acme", {"mezzo.exporters": {"acme-npu": "acme:Acme"}}, {"__init__.py": EXPORTERS})
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2,2] x) => (float[2,2] y)'
        "{ [mm] h = MatMul(x, x)  [sm] y = Softmax(h) }"
    )
    assert mezzo.export_plan(mezzo.plan(model, to="fp16"), "acme-npu") == "sm"


@pytest.mark.parametrize(("kind", "group"), [("targets", "mezzo.targets"), ("policies", "mezzo.policies")])
def test_table_of_one_broken_plug_in_is_its_error(site: Path, kind: str, group: str) -> None:
    from mezzo.cli.commands import tables

    install(site, "acme", {group: {"acme-bad": "acme:MISSING"}}, {"__init__.py": ""})
    with pytest.raises(mezzo.InputError, match=r"'acme-bad' of acme 1\.0 .* has no attribute 'MISSING'"):
        getattr(tables, kind)("acme-bad")


def test_gain_of_a_storage_type_is_refused() -> None:
    from mezzo.formats.dtypes import DType
    from mezzo.tables.target import Gain

    with pytest.raises(AssertionError, match=r"a gain is of a format, and u8 is none"):
        Gain(dtype=DType.UINT8, is_faster=True, because="", source="", since="")
