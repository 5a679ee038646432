"""Options and commands of other tools, and mezzo's words for them, as rows.

Sources, read 2026-11: trtexec and its migration guide to TensorRT 11, Polygraphy,
onnxconverter-common's float16 and auto_mixed_precision, onnxruntime.quantization and its
transformers optimizer, Olive, optimum-cli, OpenVINO's ovc and NNCF, ModelOpt's autocast and
quantization.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class Values(enum.Enum):
    """How many values follow an option."""

    NONE = "a flag"
    ONE = "one"
    MANY = "all words up to the next option"


class Part(enum.Enum):
    """What an option's value is, where the value is no option of mezzo."""

    MODEL = "the first word"
    RESULT = "the second word"
    FORMATS = "formats, for --to"
    TARGET = "a runtime or a device, for --target"
    PRECISIONS = "pairs of layer and precision, as --layerPrecisions has them"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherOption:
    """An option of other tools. `names`: without dashes; case, "-" and "_" do not matter.

    `words`: mezzo's words for it, repeated for each value, which replaces "{}"; targets by alias.
    `part`: what the value is, if no option has it. `verb`: the command that does it. `note`: what
    else to know.
    """

    names: tuple[str, ...]
    values: Values = Values.NONE
    words: tuple[str, ...] = ()
    part: Part | None = None
    verb: str | None = None
    note: str = ""


def _flag(*names: str, words: str = "", verb: str | None = None, note: str = "") -> OtherOption:
    return OtherOption(names=names, words=tuple(words.split()), verb=verb, note=note)


def _one(
    *names: str, words: str = "", part: Part | None = None, verb: str | None = None, note: str = ""
) -> OtherOption:
    return OtherOption(
        names=names, values=Values.ONE, words=tuple(words.split()), part=part, verb=verb, note=note
    )


def _many(*names: str, words: str) -> OtherOption:
    return OtherOption(names=names, values=Values.MANY, words=tuple(words.split()))


_SHAPES = "leave it out: shapes come from the model and the data"
_ENGINE = "trtexec --onnx=OUT builds the engine, in the precisions that the file states"

OPTIONS: tuple[OtherOption, ...] = (
    # Model and result.
    _one("i", "in", "input", "m", "model", "src", "source", "onnx", "input-model", "model-input",
         "model-path", "onnx-path", "onnx-model", "model-name-or-path", part=Part.MODEL),
    _one("o", "out", "output", "dst", "dest", "result", "save", "save-as", "output-model",
         "model-output", "output-path", "output-dir", "output-file", part=Part.RESULT),
    _one("saveEngine", words="--target trt", note=_ENGINE),
    # Formats.
    _flag("fp16", "float16", "half", "use-fp16", "fp16-mode", "fp-to-fp16", words="--to fp16"),
    _flag("compress-to-fp16", "fp16-weights", "store-fp16", words="--to fp16w"),
    _one("store", "storage", "store-as", words="--to {}w"),
    _flag("bf16", "bfloat16", "use-bf16", words="--to bf16"),
    _flag("fp32", "float32", "fp16-to-fp32", "upcast", words="--to fp32"),
    _flag("fp8", "float8", words="--to fp8"),
    _flag("int8", "quantize", "quantise", "quantization", "ptq", "static", "static-quantization",
          "qdq", "w8a8", words="--to int8"),
    _flag("dynamic", "dynamic-quantization", "quantize-dynamic",
          words="--to int8 --calibrator none"),
    _flag("int4", "uint4", "w4a16", "4bit", "load-in-4bit", "weight-only", "weights-only", "woq",
          "matmul-nbits", "gptq", "awq", words="--to int4"),
    _flag("int8w", "w8a16", "8bit", "load-in-8bit", "int8-weights", "int8-weight-only",
          words="--to int8w"),
    _one("bits", "n-bits", "num-bits", "w-bits", "weight-bits",
         words="--to {}bit"),
    _one("block-size", "group-size", "qblock-size",
         note="leave it out: a weight's kernel has a size of blocks, and mezzo tune tries others"),
    _flag("sym", "asym", "no-sym", "is-symmetric",
          note="leave it out: a weight's kernel says whether its blocks have zero points"),
    _one("max-bytes", "max-size", "target-size", "size-limit", words="--max-bytes {}", verb="tune"),
    _flag("best", words="--to int8,fp16 --target trt"),
    _flag("stronglyTyped", words="--target trt", note=_ENGINE),
    _one("dtype", "precision", "p", "type", "format", "data-type", "target-dtype", "torch-dtype",
         "low-precision-type", "high-precision-dtype", "weight-format", "weight-type",
         "activation-type", "act-precision", part=Part.FORMATS),
    # Targets.
    _one("device", "provider", "providers", "backend", "runtime", "ep", "execution-provider",
         "hardware", "target-device", part=Part.TARGET),
    _flag("trt", "use-trt", "use-tensorrt", words="--target trt"),
    _flag("cuda", "use-cuda", "gpu", "use-gpu", words="--target cuda"),
    _flag("cpu", words="--target cpu"),
    _flag("optimize", "optimise", "simplify", "fold-constants", "onnxsim", "opt",
          words="--fuse simplify"),
    _flag("O1", "O2", "O3", "O4", "O99", words="--fuse simplify"),
    _one("opt-level", "optimization-level", "fusion", words="--fuse simplify"),
    # Single nodes.
    _many("op-block-list", "op-types-to-exclude", "op-types-to-exclude-fp16", "exclude-ops",
          "ignored-types", "block-ops", words="--exclude op:{}"),
    _many("node-block-list", "nodes-to-exclude", "exclude-nodes", "ignored-scope", "ignored-names",
          "block-list", "blacklist", "keep-fp32", "skip", words="--exclude {}"),
    _many("op-types-to-quantize", "op-types-to-include", "op-allow-list", words="--include op:{}"),
    _many("nodes-to-quantize", "nodes-to-include", "allow-list", "whitelist", "allow",
          words="--include {}"),
    _one("layerPrecisions", "layerOutputTypes", part=Part.PRECISIONS),
    _one("precisionConstraints",
         note="leave it out: the file itself states the precisions"),
    _flag("keep-io-types", "keep-io", "io-types", words="--io keep"),
    # Data, calibration and error.
    _one("data-path", "calib", "calib-data", "calibration", "calibration-data",
         "calibration-data-path", "calibration-dataset", "calibration-data-reader", "dataset",
         "data-name", "test-data", "samples", "inputs", "input-data", "load-inputs", "feeds",
         words="--data {}"),
    _one("preprocessing", "transforms", words="--preprocess {}"),
    _one("mean-values", words="--preprocess mean={}"),
    _one("scale-values", words="--preprocess std={}"),
    _one("calib-mode", "calib-method", "calibration-method", "calibrate-method", "algorithm",
         words="--calibrator {}"),
    _one("max-error", "tolerance", "tol", "rtol", "atol", "threshold", "max-err", "budget",
         words="--max-error {}", verb="tune"),
    _one("max-drop", "max-accuracy-drop", "accuracy-drop", words="--max-drop {}", verb="tune"),
    _one("metric", "validate-fn", words="--metric {}", verb="tune"),
    _one("time-limit", "timeout", words="--time-limit {}", verb="tune"),
    _one("b", "batch-size", words="--batch {}"),
    _one("label", "targets", "y", words="--labels {}"),
    _one("min-positive-val", "max-finite-val", words="--out-of-range clamp"),
    _flag("per-channel", "per-channel-weights",
          note="weights have a scale per channel where the target runs that"),
    _flag("reduce-range", "symmetric", note="leave it out: the target's kernels set the ranges"),
    _one("quant-format", note="leave it out: INT8 is written as QDQ"),
    _flag("disable-shape-infer", "skip-symbolic-shape", "auto-merge", "infer-shapes",
          note="leave it out: mezzo always infers shapes"),
    _flag("use-external-data-format", "save-as-external-data", "external-data",
          note="leave it out: large weights go to a file of their own, next to the result"),
    _one("shapes", "minShapes", "optShapes", "maxShapes", "input-shape", "input-shapes",
         "calibration-shapes", "override-shapes", "trt-min-shapes", "trt-opt-shapes",
         "trt-max-shapes", note=_SHAPES),
    _one("workspace", "memPoolSize", "builderOptimizationLevel", "timingCacheFile",
         "calibration-cache", "calibration-cache-path", note=_ENGINE),
    _flag("noTF32", "buildOnly", "skipInference", "useCudaGraph", note=_ENGINE),
    # Looking before writing, output and timing.
    _flag("dry-run", "simulate", "preview", "plan-only", "no-write", verb="plan"),
    _one("verbosity", "log-level", words="--verbose"),
    _flag("force", "f", "yes", "replace", "in-place", words="--overwrite"),
    _flag("q", "silent", "s", words="--quiet"),
    _one("html", words="--report {}"),
    _one("iterations", "repeat", "repeats", "avgRuns", "n", words="--runs {}"),
    _one("num-threads", "intra-op-num-threads", "nthreads", "t", words="--threads {}"),
    _one("duration", "time", words="--seconds {}"),
    _one("reference", words="--baseline {}"),
    _one("warmUp", "warmup-runs",
         note="leave it out: every file runs before it is timed"),
)  # fmt: skip

# Commands, and mezzo's words for them.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "convert": ("cast", "optimize", "run", "export", "amp", "transform", "autocast", "mixed"),
    "convert --to fp16": ("fp16", "float16", "half"),
    "convert --to bf16": ("bf16", "bfloat16"),
    "convert --to int8": ("quantize", "quantise", "int8", "ptq", "quantize-static"),
    "convert --to int8 --calibrator none": ("quantize-dynamic",),
    "convert --to int4": ("int4", "quantize-weights", "matmul-nbits", "weight-only", "gptq", "awq"),
    "convert --target trt": ("trtexec", "trt"),
    "compare": ("validate", "verify", "check", "evaluate", "eval", "test", "accuracy", "judge"),
    "tune": ("autotune", "search", "optimise", "auto-mixed-precision", "auto-opt",
             "auto-convert-mixed-precision", "calibrate-and-convert"),
    "bench": ("benchmark", "time", "perf", "speed", "profile", "measure", "latency", "throughput"),
    "ranges": ("calibrate", "calibration", "stats", "statistics"),
    "explain": ("why", "describe", "reason"),
    "show": ("inspect", "info", "print", "dump", "view", "cat", "list", "summary"),
    "doctor": ("env", "environment", "diagnose", "status"),
    "--help": ("usage", "man", "-?", "/?"),
    "--version": ("version", "-v", "-V"),
}  # fmt: skip
# Words that ask for PyTorch, which has no command.
PYTORCH = ("compile", "torch", "pytorch", "torch-compile", "train")
# Names of a calibrator in other tools.
CALIBRATORS: Mapping[str, str] = {"max": "minmax", "min-max": "minmax", "kl": "entropy"}
