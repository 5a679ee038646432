"""The probe's script: what it prints, its exit codes, and that targets' tables agree with the installed runtimes."""

import importlib.metadata
import json
import operator
import re
from dataclasses import replace

import probe_runtimes
import pytest
from command_lines import Ran, Run
from probe import runtimes

from mezzo.common.packages import find_version
from mezzo.formats.dtypes import DType
from mezzo.plugins import discovery
from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Refusal, Target

CPU = discovery.targets()["onnxruntime-cpu"]
FALSE_ROW = Refusal(
    dialect="onnx", op="ScatterND", because="not so", source="a guess", dtypes=frozenset({DType.FLOAT16}), since="0.1"
)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the script in this process."""

    def call(*words: str) -> Ran:
        capsys.readouterr()
        code = probe_runtimes.main(words)
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return call


@pytest.fixture
def table(monkeypatch):
    """Put another table in the place of onnxruntime-cpu's."""

    def put(target: Target) -> None:
        monkeypatch.setattr(discovery, "target", {**discovery.targets(), target.name: target}.__getitem__)

    return put


def test_agreement_is_reported(run):
    ran = run("onnxruntime-cpu", "--op", "scatternd")
    assert (ran.code, ran.err) == (0, "")
    version = importlib.metadata.version("onnxruntime")
    assert ran.out.startswith(f"onnxruntime-cpu: asked onnxruntime {version}\non ")
    assert re.search(r"^in f16 +\d+ +\d+ +4 +0$", ran.out, re.MULTILINE)
    assert "f16: ONNX Runtime's CPU computes FP16 graphs in FP32" in ran.out
    assert "\nthe table agrees with the runtime\n" in ran.out


def test_table_that_says_runs_where_the_runtime_refuses_is_out_of_date(run, table):
    table(replace(CPU, refusals=()))
    ran = run("onnxruntime-cpu", "--op", "ScatterND")
    assert (ran.code, ran.err) == (1, "")
    assert "\nthe table is out of date\noperator" in ran.out
    line = r"^ScatterND +18 +f16 +runs +refuses: .*not supported with ScatterND.*\(with reduction=add\)$"
    assert re.search(line, ran.out, re.MULTILINE)


def test_table_that_refuses_what_the_runtime_runs_is_out_of_date(run, table):
    table(replace(CPU, refusals=(*CPU.refusals, FALSE_ROW)))
    ran = run("onnxruntime-cpu", "--op", "ScatterND")
    assert ran.code == 1
    assert re.search(r"^ScatterND +13 +f16 +refuses: not so +runs", ran.out, re.MULTILINE)


def test_differences_as_data(run, table):
    table(replace(CPU, refusals=(*CPU.refusals, FALSE_ROW)))
    ran = run("onnxruntime-cpu", "--op", "ScatterND", "--json")
    found = json.loads(ran.out)
    assert ran.code == 1 and found["format"] == "mezzo-probe/1" and not found["agrees"]
    assert {"op": "ScatterND", "dtype": "f16", "table_refuses": "not so", "runtime_refuses": None}.items() <= next(
        row for row in found["disagreements"] if row["version"] == 13
    ).items()
    assert found["machine"]["architecture"] and found["runtime"].startswith("onnxruntime ")


def test_operators_that_do_not_run_in_fp32_are_not_judged(run):
    ran = run("onnxruntime-cpu", "--op", "BiasAdd", "--json")
    found = json.loads(ran.out)
    assert ran.code == 0 and found["answers"]["f16"] == {"runs": 0, "refused": 0}
    assert [row["op"] for row in found["not_asked"]] == ["com.microsoft BiasAdd"]
    assert "Could not find an implementation for BiasAdd" in found["not_asked"][0]["reason"]


def test_one_operator_that_was_not_asked_about_is_no_agreement(run):
    ran = run("onnxruntime-cpu", "--op", "BiasAdd")
    assert ran.code == 0 and "\nnothing was asked\n" in ran.out and "agrees" not in ran.out


def test_a_runtime_that_runs_nothing_here_is_an_error(run, monkeypatch):
    """As onnxruntime-gpu does without a GPU: nothing asked would pass for agreement."""
    # An attempt that no model survives, by name in a module, as the child needs it.
    rows = {"onnxruntime-cpu": replace(runtimes.RUNTIMES["onnxruntime-cpu"], run=operator.truediv)}
    monkeypatch.setattr(probe_runtimes, "RUNTIMES", rows)
    ran = run("onnxruntime-cpu", "--op", "Scatter*")
    assert (ran.code, ran.out) == (2, "")
    assert re.search(
        r"onnxruntime \S+ runs none of \d+ operators here, not even in f32, .*: unsupported operand", ran.err
    )
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("tensorrt",),
            "target 'tensorrt' has no runtime to ask; choose one of onnxruntime-cpu, onnxruntime-cuda, openvino-cpu",
        ),
        (("nothing",), "target 'nothing' is unknown; choose one of "),
        (
            ("onnxruntime-cpu", "--op", "nothing"),
            "no operator to ask about matches 'nothing'; 'mezzo ops' lists every operator",
        ),
    ],
)
def test_errors_are_one_line(run, words, message):
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"probe_runtimes: {message}") and ran.err.count("\n") == 1


def test_runtime_that_is_not_installed_is_named(run, table):
    table(replace(discovery.target("openvino-cpu"), runtime=Runtime(package="mezzo-has-no-such-runtime")))
    ran = run("openvino-cpu")
    expected = (
        "probe_runtimes: target 'openvino-cpu': mezzo-has-no-such-runtime is not installed; "
        "pip install mezzo-has-no-such-runtime\n"
    )
    assert (ran.code, ran.out, ran.err) == (2, "", expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(runtimes.RUNTIMES))
def test_shipped_table_agrees_with_the_installed_runtime(run, name):
    table = discovery.target(name)
    package = runtimes.package_of(table)
    version = find_version(package)
    if version is None:
        pytest.skip(f"{package} is not installed")
    since = {row.since for row in table.refusals} | {listing.since for listing in table.listings}
    if not any(known.endswith(f" {version}") for known in since):
        pytest.skip(f"the table is of {' and '.join(since)}; installed is {version}")
    ran = run(name)
    if "not even in f32" in ran.err:
        pytest.skip(f"{name} has no device here")
    assert (ran.code, ran.err) == (0, ""), ran.out
