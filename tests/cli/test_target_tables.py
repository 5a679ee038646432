"""mezzo targets: every row with its source and version, what a dtype gains, what it needs."""

import json
import re
import subprocess
import sys

from mezzo.plugins import discovery


def test_targets_are_one_line_each_with_what_every_format_gains(run):
    lines = run("targets").out.splitlines()
    assert lines[2].split() == ["target", "fp16", "bf16", "int8", "fp8", "fp8-e5m2", "int4", "int8w"]
    rows = {line.split()[0]: re.split(r"  +", line)[1:] for line in lines[3 : 3 + len(discovery.targets())]}
    assert list(rows) == sorted(discovery.targets())
    assert rows["any"] == ["runs", "runs", "-", "-", "-", "-", "-"] and rows["torch-cuda"][0] == "gains*"
    assert rows["onnxruntime-cpu"] == ["no gain", "no gain", "gains*", "-", "-", "gains", "gains"]
    assert rows["tensorrt"][2] == "gains" and rows["onnxruntime-web"][:2] == ["gains*", "no gain"]
    assert rows["directml"][:3] == ["gains", "no gain", "runs"] and rows["openvino-npu"][0] == "no gain"
    assert "  * int8 on onnxruntime-cpu, openvino-cpu: amx_int8 or avx512_vnni or avx_vnni or avx2" in lines
    assert "  * fp16 on torch-cuda: compute capability 7.0 (Volta)" in lines
    assert (
        "  default for bf16 and fp8-e5m2: onnx; default for fp16 and int8 and int4 and int8w: onnxruntime-cpu; default"
        " for fp8: tensorrt" in lines
    )


def test_rows_tell_where_they_hold_why_and_who_says_so(run):
    part = run("targets", "onnxruntime-cpu").out
    assert re.search(
        r"^ScatterND +bf16, f16 +reduction add or max or min or mul +scatters FP16 and BF16 without reduction only +"
        r"probe of ONNX Runtime \S+$",
        part,
        re.MULTILINE,
    )


def test_gains_tell_the_reason_or_what_they_need(run):
    out = run("targets", "onnxruntime-cpu").out + run("targets", "openvino-cpu").out
    assert re.search(r"^f16 +no +ONNX Runtime's CPU computes FP16 graphs in FP32", out, re.MULTILINE)
    needed = r"^bf16 +yes +OpenVINO's CPU computes BF16 graphs in BF16 +amx_bf16 or avx512_bf16 +eight MatMul"
    assert re.search(needed, out, re.MULTILINE)


def test_rows_tell_the_versions_and_machines_they_hold_on(run):
    part = run("targets", "openvino-cpu").out
    assert re.search(r"^BatchNormalization +every low dtype +version from 14 ", part, re.MULTILINE)
    assert re.search(r"^MaxPool +bf16 +storage_order 1, with amx_bf16 or avx512_bf16 ", part, re.MULTILINE)


def test_listings_are_shown_whole_with_versions(run):
    out = run("targets", "onnxruntime-cuda").out + run("targets", "onnxruntime-web").out
    shown = re.search(r"^  runs in bf16 \(docs/OperatorKernels.md, .*?\) (onnx: .*)$", out, re.MULTILINE).group(1)
    listing = discovery.target("onnxruntime-cuda").listings[1]
    assert "Add 1-14, " in shown and "Conv 22, " in shown and "; com.microsoft: Attention, " in shown
    assert len(re.split(", |; ", shown)) == len(listing.kernels)
    assert re.search(r"^  runs in bf16 \(W3C, .*\) nothing$", out, re.MULTILINE)


def test_tables_as_data_keep_every_field(run):
    found = {row["name"]: row for row in json.loads(run("targets", "--json").out)["targets"]}
    row = next(row for row in found["openvino-cpu"]["refusals"] if row["op"] == "MaxPool")
    assert row["needs"] == ["amx_bf16", "avx512_bf16"] and row["since"] and row["attributes"] == {"storage_order": 1}
    listing = found["onnxruntime-cuda"]["listings"][1]
    assert listing["dtype"] == "bf16" and {"dialect": "onnx", "op": "Conv", "versions": [22, 22]} in listing["kernels"]


def test_tables_start_light():
    script = "import sys; from mezzo.cli import main; main(['targets']); print(sorted(sys.modules), file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0
    assert re.findall(r"'(onnx|onnx_ir|onnxruntime|openvino|scipy|numpy)'", ran.stderr) == []
