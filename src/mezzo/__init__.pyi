"""mezzo: automatic mixed precision as a graph compiler pass.

Written by tools/option_keywords.py from the package's signatures and docstrings: change those, then
run it.
"""

import os
from collections.abc import Mapping, Sequence

import onnx
import onnx_ir

from mezzo.api.bench import bench
from mezzo.api.blame import blame
from mezzo.api.compare import compare
from mezzo.api.convert import show
from mezzo.api.emulate import emulate
from mezzo.api.explain import explain
from mezzo.api.export_plan import export_plan
from mezzo.api.folders.data import FolderData
from mezzo.api.folders.records import ConvertedFolder
from mezzo.api.language_models.generation import bench_folders
from mezzo.api.lists import convert_lists
from mezzo.api.partition import extract, partition
from mezzo.api.ranges import ranges
from mezzo.clusters.opening import cluster
from mezzo.common.errors import ContractError, InputError, ListError, MezzoError, ModelError
from mezzo.common.memory import memory
from mezzo.contracts.frontend import Progress
from mezzo.contracts.options.data_files import DataFiles
from mezzo.contracts.options.request import IO, PolicyLike, TargetLike
from mezzo.contracts.plans import Plan
from mezzo.conversion.results import Converted
from mezzo.formats.format_words import FormatLike
from mezzo.io.planfile import load_plan, save_plan
from mezzo.numerics.blames import Blame
from mezzo.numerics.calibrations import Calibrations
from mezzo.numerics.data.datasets import Data
from mezzo.numerics.measures import Comparison, Measured, Ranges, Ruling, Sensitivity
from mezzo.numerics.metrics.user_metric import Metric
from mezzo.numerics.timings import FileTimes, Timings
from mezzo.numerics.token_times import TokenTimes, TokenTimings
from mezzo.report.records.fused_units import Extracted, FusedUnit, Split
from mezzo.report.records.strategies import StrategyRow
from mezzo.report.records.summary import Summary

__all__ = [
    "Blame",
    "Calibrations",
    "Comparison",
    "ContractError",
    "Converted",
    "ConvertedFolder",
    "DataFiles",
    "Extracted",
    "FileTimes",
    "FusedUnit",
    "InputError",
    "ListError",
    "Measured",
    "MezzoError",
    "ModelError",
    "Plan",
    "Ranges",
    "Ruling",
    "Sensitivity",
    "Split",
    "Summary",
    "Timings",
    "TokenTimes",
    "TokenTimings",
    "__version__",
    "bench",
    "bench_folders",
    "blame",
    "cluster",
    "compare",
    "compare_strategies",
    "convert",
    "convert_folder",
    "convert_lists",
    "emulate",
    "explain",
    "export_plan",
    "extract",
    "llm",
    "load_plan",
    "memory",
    "partition",
    "plan",
    "quantize_report",
    "ranges",
    "save_plan",
    "sensitivity",
    "show",
    "tune",
]

__version__: str

def compare_strategies(
    src: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    *,
    to: FormatLike | None = None,
    policy: PolicyLike | None = "balanced",
    strategy: str | None = "mincut",
    target: TargetLike | None = None,
    include: Sequence[str] | None = (),
    exclude: Sequence[str] | None = (),
    keep_region: Sequence[str] | None = (),
    fix_region: Mapping[str, str] | None = {},
    io: IO | None = "keep",
    out_of_range: str | None = "repair",
    opset: str | None = "auto",
    calibrator: str | None = "minmax",
    quantize_mode: str | None = "smart",
    reduce_range: str | None = "auto",
    decode: float | str | None = "1",
    fuse: str | None = "standard",
    correct: str | None = "auto",
    assume: Mapping[str, str] | None = {},
    feedback: Sequence[str] | None = (),
    trust_external_paths: bool | None = False,
    progress: Progress | None = None,
) -> tuple[StrategyRow, ...]:
    """Plan a model with every strategy, the cheapest first. Arguments as of `mezzo.plan`.

    Args:
        to: what to convert to: fp16, bf16 or int8, two of them (fp16,bf16 or int8,bf16), weights
            alone in int4, int8w, fp16w or bf16w, auto: what gains on this machine, or fp32: an FP16
            or BF16 file back.
        policy: how bold to be: a name of 'mezzo policies', or a .toml file.
        strategy: how to place the casts; see 'mezzo strategies'.
        target: what must run the result: a name of 'mezzo targets', or a .toml file.
        include: ask for low precision: a glob on node names, or 'op:Softmax'. Repeatable.
        exclude: keep in FP32: a glob on node names, or 'op:Softmax'. Repeatable.
        keep_region: leave a part as it is: a path of scopes or modules such as 'encoder/layer.3';
            globs work. Repeatable.
        fix_region: run a part in fp32 or in the low precision, and plan the rest around it.
            Repeatable.
        io: types of the model's inputs and outputs: keep them (default, but FP32 with --to fp32),
            all low, outputs as they come, or one by name. Repeatable.
        out_of_range: what to do with numbers that the low precision cannot hold: store them times a
            power of two, keep their operators in FP32, clamp weights, or refuse.
        opset: whether the opset, ONNX's version, may rise where a newer one allows the low
            precision.
        calibrator: how int8 chooses scales from --data: minmax, percentile, entropy, mse, your
            module:function; none: at run time.
        quantize_mode: what int8 takes beside products: what stands between them (smart), or all
            that the target runs (full).
        reduce_range: whether int8 gives weights scales with which sums hold on CPUs without VNNI;
            auto: if this machine's CPU is one.
        decode: with int4 or int8w and another format: the share of the time at one row, as where a
            language model writes; each matmul takes the format that is faster then.
        fuse: what to fuse: nothing, operators written out in small ones (operators), also what int8
            gains by (standard), or that for floats too (simplify).
        correct: what int8 corrects where --data shows that it helps: auto (leave,smooth,weights),
            none, or some of leave (small products that err much stay floats), smooth, weights and
            bias, with commas.
        assume: what an input holds, in place of what is assumed without data, such as image=0..255;
            may be repeated.
        feedback: an output that is an input of the next call, such as h_n=h_0, or guess: by names;
            may be repeated.
        trust_external_paths: open weights outside the model's folder, as links of a Hugging Face
            cache lead there.
    """

def convert(
    src: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    dst: str | os.PathLike[str] | None = None,
    *,
    to: FormatLike | None = None,
    policy: PolicyLike | None = "balanced",
    strategy: str | None = "mincut",
    target: TargetLike | None = None,
    include: Sequence[str] | None = (),
    exclude: Sequence[str] | None = (),
    keep_region: Sequence[str] | None = (),
    fix_region: Mapping[str, str] | None = {},
    io: IO | None = "keep",
    out_of_range: str | None = "repair",
    opset: str | None = "auto",
    calibrator: str | None = "minmax",
    quantize_mode: str | None = "smart",
    reduce_range: str | None = "auto",
    decode: float | str | None = "1",
    fuse: str | None = "standard",
    correct: str | None = "auto",
    assume: Mapping[str, str] | None = {},
    feedback: Sequence[str] | None = (),
    trust_external_paths: bool | None = False,
    provenance: bool | None = True,
    check: bool | None = True,
    plan: Plan | str | os.PathLike[str] | None = None,
    data: Data | None = None,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    steps: int | None = None,
    resume: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Convert an FP32 ONNX model to mixed precision with explicit types; the source is unchanged.

    Args:
        calibrator: how int8 chooses scales from --data: minmax, percentile, entropy, mse, your
            module:function; none: at run time.
        quantize_mode: what int8 takes beside products: what stands between them (smart), or all
            that the target runs (full).
        reduce_range: whether int8 gives weights scales with which sums hold on CPUs without VNNI;
            auto: if this machine's CPU is one.
        decode: with int4 or int8w and another format: the share of the time at one row, as where a
            language model writes; each matmul takes the format that is faster then.
        correct: what int8 corrects where --data shows that it helps: auto (leave,smooth,weights),
            none, or some of leave (small products that err much stay floats), smooth, weights and
            bias, with commas.
        trust_external_paths: open weights outside the model's folder, as links of a Hugging Face
            cache lead there.
        to: "fp16", "bf16" or "int8", or "int8" with one of the floats, as "int8,bf16" or as a
            tuple; by default the format that is faster on the named target and this machine, else
            "fp16". "auto" without a target chooses the target too: whatever the tables expect to
            gain on this machine is converted and timed, and the fastest right result is kept.
            "int4", "int8w", "fp16w" and "bf16w" store weights alone so: operators compute in FP32,
            for the last two with weights behind a Cast. "fp32" widens an FP16 or BF16 model, with
            inputs and outputs unless `io` keeps them.
        policy: a preset's name ("balanced" unless given), the path of a policy file (.toml), a
            Policy, or a function of a `mezzo.ir.selectors.Site`, or of one and "fp16" or "bf16". It
            returns a verdict for each node: "allow", "infer", "clear" or "deny", or one of these
            with the accumulation and output dtypes, or None for the verdict of "balanced".
        strategy: how casts are placed, "mincut" unless given.
        target: the runtime that must load the result: a name, the path of a target file (.toml), or
            a Target; by default ONNX Runtime for fp16 and int8, the ONNX schema alone for bf16,
            OpenVINO for int8,bf16, TensorRT for int8,fp16.
        include, exclude: lists of globs on node names, or "op:" and a glob on operators; exclude
            wins.
        keep_region: paths of scopes or modules to leave unchanged, such as "encoder/layer.3"; globs
            work.
        fix_region: such paths to "fp16", "bf16" or "fp32": those parts run in that format, the rest
            is planned around them.
        io: "keep" (the default), "low", "follow" (outputs have their producer's output type), or a
            mapping of input and output names to "fp16", "bf16" or "fp32".
        out_of_range: handling of numbers outside the format's range: "repair", the default, stores
            values times powers of two where data shows that they overflow, and keeps others' users
            in FP32; "protect" does only that; "clamp" stores the largest finite number in place of
            weights, "error" refuses them.
        opset: "auto", the default, raises the opset version only if a node needs it to run in the
            format; "keep" never does.
        fuse: "standard", the default, simplifies a model before quantization (folds and rewrites it
            in standard ONNX), and leaves float models unchanged, except that a norm by a root's
            reciprocal becomes a division if the target's runtime fuses only that form; "simplify"
            also simplifies float models; "none" changes nothing.
        assume: input names to ranges of their values, such as "0..255", instead of the default
            assumption.
        plan: a plan to replay instead of deciding; it must be of this model, and other options must
            be those it was made with.
        data: files or arrays, as of `mezzo.compare`: nodes that overflow
            on it stay FP32, nodes that were only suspected and fit run in low precision, and the
            result is checked on it in true precision; `labels` names arrays that are no inputs,
            `batch_size` splits along the first axis. "random" draws inputs that fit the model: they
            add protection, and clear no suspicion.
        feedback: outputs that become inputs of the next call, such as "h_n=h_0", or "guess": by
            their names. Elementwise arithmetic of such a state stays FP32 under "balanced"; with
            `data`, its rows are steps of one sequence, as of `mezzo.compare`, `steps` of them at
            most.
        resume: with `data`, a file with the state of searches for nodes that return to FP32, so
            that an interrupted conversion continues; ranges and calibration are in FILE.ranges.npz
            and FILE.calibration.npz. Checks of a result begin anew.
        check: whether the result is run on the target's runtime, if that is installed: its outputs,
            its INT8 kernels, its speed. Nodes that the runtime runs otherwise than planned return
            to floats.
        provenance: whether the result's metadata records mezzo's version, the options and the plan.
            Such a model keeps its FP32 nodes when it is converted again, unless another format,
            policy, strategy or target is requested.
        progress: called with (stage, done, total).

    Raises:
        InputError: an option, a pattern, the plan or the file is at fault.
        ModelError: the model is not valid ONNX.
        ContractError: the result would break a promise, or `out_of_range="error"` refuses.
    """

def convert_folder(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None = None,
    *,
    to: FormatLike | None = None,
    policy: PolicyLike | None = "balanced",
    strategy: str | None = "mincut",
    target: TargetLike | None = None,
    include: Sequence[str] | None = (),
    exclude: Sequence[str] | None = (),
    keep_region: Sequence[str] | None = (),
    fix_region: Mapping[str, str] | None = {},
    io: IO | None = "keep",
    out_of_range: str | None = "repair",
    opset: str | None = "auto",
    calibrator: str | None = "minmax",
    quantize_mode: str | None = "smart",
    reduce_range: str | None = "auto",
    decode: float | str | None = "1",
    fuse: str | None = "standard",
    correct: str | None = "auto",
    assume: Mapping[str, str] | None = {},
    feedback: Sequence[str] | None = (),
    trust_external_paths: bool | None = False,
    provenance: bool | None = True,
    check: bool | None = True,
    layout: str | None = None,
    data: FolderData | None = None,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    overwrite: bool = False,
    resume: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> ConvertedFolder:
    """Convert every FP32 model of a folder, such as a Hugging Face export; copy other files.

    Models that are low or quantized already are copied. A model at fault is copied too, and listed
    in `failed` with the reason; the others are converted. All files appear at the end, or none
    after an interrupt; with `resume` each appears as soon as it is done. Ports that pass tensors
    from one model to another, or back to the same one, share one type: FP32 if one of them cannot
    be low.

    Args:
        to: what to convert to: fp16, bf16 or int8, two of them (fp16,bf16 or int8,bf16), weights
            alone in int4, int8w, fp16w or bf16w, auto: what gains on this machine, or fp32: an FP16
            or BF16 file back.
        policy: how bold to be: a name of 'mezzo policies', or a .toml file.
        strategy: how to place the casts; see 'mezzo strategies'.
        target: what must run the result: a name of 'mezzo targets', or a .toml file.
        out_of_range: what to do with numbers that the low precision cannot hold: store them times a
            power of two, keep their operators in FP32, clamp weights, or refuse.
        opset: whether the opset, ONNX's version, may rise where a newer one allows the low
            precision.
        calibrator: how int8 chooses scales from --data: minmax, percentile, entropy, mse, your
            module:function; none: at run time.
        quantize_mode: what int8 takes beside products: what stands between them (smart), or all
            that the target runs (full).
        reduce_range: whether int8 gives weights scales with which sums hold on CPUs without VNNI;
            auto: if this machine's CPU is one.
        decode: with int4 or int8w and another format: the share of the time at one row, as where a
            language model writes; each matmul takes the format that is faster then.
        fuse: what to fuse: nothing, operators written out in small ones (operators), also what int8
            gains by (standard), or that for floats too (simplify).
        correct: what int8 corrects where --data shows that it helps: auto (leave,smooth,weights),
            none, or some of leave (small products that err much stay floats), smooth, weights and
            bias, with commas.
        feedback: an output that is an input of the next call, such as h_n=h_0, or guess: by names;
            may be repeated.
        trust_external_paths: open weights outside the model's folder, as links of a Hugging Face
            cache lead there.
        check: leave out the run of the result on the target's runtime, where that is installed.
        dst: the destination folder; by default the same folder.
        layout: "beside" the originals, as "model_fp16.onnx"; or "instead" of them, as "model.onnx".
            The default is "beside", but "instead" in a folder with a genai_config.json, which names
            its models; there `io` is "follow" by default.
        include, exclude, keep_region, fix_region, io, assume: as for `mezzo.convert`; each has to
            match in some model.
        data: a folder of data named like the models: "encoder_model.npz", or a folder
            "encoder_model" of .npz files, for "encoder_model.onnx"; or a mapping from models to
            what `mezzo.convert` takes. It is also the calibration data of models to be quantized.
        overwrite: replace existing files.
        resume: a folder with a record per model, which is made if it does not exist: models that
            an earlier run with it converted, and that have not changed since, are not converted
            again.
        jobs: the number of processes that convert models, with the results of one. A memory limit
            is divided among them.
        provenance: as of `mezzo.convert`.
        progress: called with (stage, done, total); the stage names the file.

    Raises:
        InputError: an option or the folder is at fault; or every model is, and the error is of the
            first.
        ModelError, ContractError: the same of a model that is not valid, or a broken promise.
    """

def llm(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    to: FormatLike | None = "int4",
    policy: PolicyLike | None = "balanced",
    strategy: str | None = "mincut",
    target: TargetLike | None = None,
    include: Sequence[str] | None = (),
    exclude: Sequence[str] | None = (),
    keep_region: Sequence[str] | None = (),
    fix_region: Mapping[str, str] | None = {},
    io: IO | None = "keep",
    out_of_range: str | None = "repair",
    opset: str | None = "auto",
    calibrator: str | None = "minmax",
    quantize_mode: str | None = "smart",
    reduce_range: str | None = "auto",
    decode: float | str | None = "1",
    fuse: str | None = "standard",
    correct: str | None = "auto",
    assume: Mapping[str, str] | None = {},
    feedback: Sequence[str] | None = (),
    trust_external_paths: bool | None = False,
    provenance: bool | None = True,
    check: bool | None = True,
    data: Data | None = None,
    max_error: float | None = None,
    max_bytes: int | str | None = None,
    held_out: Data | None = None,
    time_limit_s: float | None = None,
    resume: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> ConvertedFolder:
    """Write a folder that onnxruntime-genai runs, with low-bit weights, from a Hugging Face folder;
    with OpenVINO's target one that OpenVINO GenAI runs.

    The model is exported in FP32 by onnxruntime-genai's builder, in another process and without
    network, unless the folder has ONNX models in FP32 already. These are converted as by
    `mezzo.convert_folder`; with a budget the storage of each weight is searched as by `mezzo.tune`.
    The result's account is that of its model, in `files`.

    Args:
        to: what to convert to: fp16, bf16 or int8, two of them (fp16,bf16 or int8,bf16), weights
            alone in int4, int8w, fp16w or bf16w, auto: what gains on this machine, or fp32: an FP16
            or BF16 file back.
        policy: how bold to be: a name of 'mezzo policies', or a .toml file.
        strategy: how to place the casts; see 'mezzo strategies'.
        target: what must run the result: a name of 'mezzo targets', or a .toml file.
        include: ask for low precision: a glob on node names, or 'op:Softmax'. Repeatable.
        exclude: keep in FP32: a glob on node names, or 'op:Softmax'. Repeatable.
        keep_region: leave a part as it is: a path of scopes or modules such as 'encoder/layer.3';
            globs work. Repeatable.
        fix_region: run a part in fp32 or in the low precision, and plan the rest around it.
            Repeatable.
        io: types of the model's inputs and outputs: keep them (default, but FP32 with --to fp32),
            all low, outputs as they come, or one by name. Repeatable.
        out_of_range: what to do with numbers that the low precision cannot hold: store them times a
            power of two, keep their operators in FP32, clamp weights, or refuse.
        opset: whether the opset, ONNX's version, may rise where a newer one allows the low
            precision.
        calibrator: how int8 chooses scales from --data: minmax, percentile, entropy, mse, your
            module:function; none: at run time.
        quantize_mode: what int8 takes beside products: what stands between them (smart), or all
            that the target runs (full).
        reduce_range: whether int8 gives weights scales with which sums hold on CPUs without VNNI;
            auto: if this machine's CPU is one.
        decode: with int4 or int8w and another format: the share of the time at one row, as where a
            language model writes; each matmul takes the format that is faster then.
        fuse: what to fuse: nothing, operators written out in small ones (operators), also what int8
            gains by (standard), or that for floats too (simplify).
        correct: what int8 corrects where --data shows that it helps: auto (leave,smooth,weights),
            none, or some of leave (small products that err much stay floats), smooth, weights and
            bias, with commas.
        assume: what an input holds, in place of what is assumed without data, such as image=0..255;
            may be repeated.
        feedback: an output that is an input of the next call, such as h_n=h_0, or guess: by names;
            may be repeated.
        trust_external_paths: open weights outside the model's folder, as links of a Hugging Face
            cache lead there.
        provenance: leave out of the metadata what made the model: version, options, plan.
        check: leave out the run of the result on the target's runtime, where that is installed.
        src: a folder with config.json, safetensors and a tokenizer; or one of onnxruntime-genai or
            of Optimum in FP32.
        dst: the destination folder.
        data: running text, in files (.txt), which the folder's own tokenizer splits; or other data
            as of `mezzo.compare`. The result is checked on it, and a search chooses by it.
        max_error, max_bytes, held_out, time_limit_s, resume: of a search, as of `mezzo.tune`.
        overwrite: replace files of a destination that exists.
        progress: called with (stage, done, total).

    Raises:
        InputError: an option, the data or the folder is at fault, or a package is missing.
        ModelError: the model cannot be exported, or is not valid.
        ContractError: the result would break a promise.
    """

def plan(
    src: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    *,
    to: FormatLike | None = None,
    policy: PolicyLike | None = "balanced",
    strategy: str | None = "mincut",
    target: TargetLike | None = None,
    include: Sequence[str] | None = (),
    exclude: Sequence[str] | None = (),
    keep_region: Sequence[str] | None = (),
    fix_region: Mapping[str, str] | None = {},
    io: IO | None = "keep",
    out_of_range: str | None = "repair",
    opset: str | None = "auto",
    calibrator: str | None = "minmax",
    quantize_mode: str | None = "smart",
    reduce_range: str | None = "auto",
    decode: float | str | None = "1",
    fuse: str | None = "standard",
    correct: str | None = "auto",
    assume: Mapping[str, str] | None = {},
    feedback: Sequence[str] | None = (),
    trust_external_paths: bool | None = False,
    progress: Progress | None = None,
) -> Plan:
    """Decide every node's precision without converting. Options and errors are those of
    `convert`.

    Args:
        to: what to convert to: fp16, bf16 or int8, two of them (fp16,bf16 or int8,bf16), weights
            alone in int4, int8w, fp16w or bf16w, auto: what gains on this machine, or fp32: an FP16
            or BF16 file back.
        policy: how bold to be: a name of 'mezzo policies', or a .toml file.
        strategy: how to place the casts; see 'mezzo strategies'.
        target: what must run the result: a name of 'mezzo targets', or a .toml file.
        include: ask for low precision: a glob on node names, or 'op:Softmax'. Repeatable.
        exclude: keep in FP32: a glob on node names, or 'op:Softmax'. Repeatable.
        keep_region: leave a part as it is: a path of scopes or modules such as 'encoder/layer.3';
            globs work. Repeatable.
        fix_region: run a part in fp32 or in the low precision, and plan the rest around it.
            Repeatable.
        io: types of the model's inputs and outputs: keep them (default, but FP32 with --to fp32),
            all low, outputs as they come, or one by name. Repeatable.
        out_of_range: what to do with numbers that the low precision cannot hold: store them times a
            power of two, keep their operators in FP32, clamp weights, or refuse.
        opset: whether the opset, ONNX's version, may rise where a newer one allows the low
            precision.
        calibrator: how int8 chooses scales from --data: minmax, percentile, entropy, mse, your
            module:function; none: at run time.
        quantize_mode: what int8 takes beside products: what stands between them (smart), or all
            that the target runs (full).
        reduce_range: whether int8 gives weights scales with which sums hold on CPUs without VNNI;
            auto: if this machine's CPU is one.
        decode: with int4 or int8w and another format: the share of the time at one row, as where a
            language model writes; each matmul takes the format that is faster then.
        fuse: what to fuse: nothing, operators written out in small ones (operators), also what int8
            gains by (standard), or that for floats too (simplify).
        correct: what int8 corrects where --data shows that it helps: auto (leave,smooth,weights),
            none, or some of leave (small products that err much stay floats), smooth, weights and
            bias, with commas.
        assume: what an input holds, in place of what is assumed without data, such as image=0..255;
            may be repeated.
        feedback: an output that is an input of the next call, such as h_n=h_0, or guess: by names;
            may be repeated.
        trust_external_paths: open weights outside the model's folder, as links of a Hugging Face
            cache lead there.
    """

def quantize_report(
    src: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    data: Data,
    *,
    to: FormatLike | None = None,
    policy: PolicyLike | None = "balanced",
    strategy: str | None = "mincut",
    target: TargetLike | None = None,
    include: Sequence[str] | None = (),
    exclude: Sequence[str] | None = (),
    keep_region: Sequence[str] | None = (),
    fix_region: Mapping[str, str] | None = {},
    io: IO | None = "keep",
    out_of_range: str | None = "repair",
    opset: str | None = "auto",
    calibrator: str | None = "minmax",
    quantize_mode: str | None = "smart",
    reduce_range: str | None = "auto",
    decode: float | str | None = "1",
    fuse: str | None = "standard",
    correct: str | None = "auto",
    assume: Mapping[str, str] | None = {},
    feedback: Sequence[str] | None = (),
    trust_external_paths: bool | None = False,
    held_out: Data | None = None,
    labels: Sequence[str] = (),
    metric: str | Metric | None = None,
    calibrators: str | Sequence[str] = (),
    batch_size: int | None = None,
    time_limit_s: float | None = None,
    resume: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Calibrations:
    """Quantize a model with each calibrator in turn, and evaluate the outputs.

    Values are collected once, and each row is the result of `mezzo.convert` with that calibrator.
    No file is written.

    Args:
        policy: how bold to be: a name of 'mezzo policies', or a .toml file.
        strategy: how to place the casts; see 'mezzo strategies'.
        target: what must run the result: a name of 'mezzo targets', or a .toml file.
        include: ask for low precision: a glob on node names, or 'op:Softmax'. Repeatable.
        exclude: keep in FP32: a glob on node names, or 'op:Softmax'. Repeatable.
        keep_region: leave a part as it is: a path of scopes or modules such as 'encoder/layer.3';
            globs work. Repeatable.
        fix_region: run a part in fp32 or in the low precision, and plan the rest around it.
            Repeatable.
        io: types of the model's inputs and outputs: keep them (default, but FP32 with --to fp32),
            all low, outputs as they come, or one by name. Repeatable.
        out_of_range: what to do with numbers that the low precision cannot hold: store them times a
            power of two, keep their operators in FP32, clamp weights, or refuse.
        opset: whether the opset, ONNX's version, may rise where a newer one allows the low
            precision.
        calibrator: how int8 chooses scales from --data: minmax, percentile, entropy, mse, your
            module:function; none: at run time.
        quantize_mode: what int8 takes beside products: what stands between them (smart), or all
            that the target runs (full).
        reduce_range: whether int8 gives weights scales with which sums hold on CPUs without VNNI;
            auto: if this machine's CPU is one.
        decode: with int4 or int8w and another format: the share of the time at one row, as where a
            language model writes; each matmul takes the format that is faster then.
        fuse: what to fuse: nothing, operators written out in small ones (operators), also what int8
            gains by (standard), or that for floats too (simplify).
        correct: what int8 corrects where --data shows that it helps: auto (leave,smooth,weights),
            none, or some of leave (small products that err much stay floats), smooth, weights and
            bias, with commas.
        assume: what an input holds, in place of what is assumed without data, such as image=0..255;
            may be repeated.
        feedback: an output that is an input of the next call, such as h_n=h_0, or guess: by names;
            may be repeated.
        trust_external_paths: open weights outside the model's folder, as links of a Hugging Face
            cache lead there.
        data: calibration data, as of `mezzo.convert`; without `held_out`, a quarter of it is held
            out for evaluation.
        held_out: evaluation data that no scale is derived from.
        labels: arrays of the evaluation data that are no inputs. One with an integer per sample
            gives top-1 and, of more than five classes, top-5.
        metric: instead of them a function of (outputs, labels), or its "module:function", as of
            `mezzo.compare`.
        time_limit_s: end with the batch that runs then: scales are derived from the batches until
            then, and calibrators after the first that are not evaluated by then are left out. Notes
            say so.
        resume: a file with the collected state, continued if it exists; ranges are in
            FILE.ranges.npz.
        calibrators: names, such as "minmax,percentile=99.9"; all unless given.
        to: "int8", the default, or two formats such as "int8,bf16".

    Raises:
        InputError: an option, a calibrator or the data is at fault.
        ModelError: the model is not valid ONNX.
        ContractError: the model does not run.
    """

def sensitivity(
    src: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    data: Data,
    *,
    to: FormatLike | None = None,
    policy: PolicyLike | None = "aggressive",
    strategy: str | None = "mincut",
    target: TargetLike | None = None,
    include: Sequence[str] | None = (),
    exclude: Sequence[str] | None = (),
    keep_region: Sequence[str] | None = (),
    fix_region: Mapping[str, str] | None = {},
    io: IO | None = "keep",
    out_of_range: str | None = "repair",
    opset: str | None = "auto",
    calibrator: str | None = "minmax",
    quantize_mode: str | None = "smart",
    reduce_range: str | None = "auto",
    decode: float | str | None = "1",
    fuse: str | None = "standard",
    correct: str | None = "auto",
    assume: Mapping[str, str] | None = {},
    feedback: Sequence[str] | None = (),
    trust_external_paths: bool | None = False,
    batch_size: int | None = None,
    labels: Sequence[str] = (),
    max_runs: int = 48,
    accumulate: str | None = None,
    tile: int | None = None,
    resume: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Sensitivity:
    """Measure the output error of each unit when it alone runs in low precision, the largest first.

    A unit is an operator, or several that share a precision: a decomposed norm, the nodes of a
    sequence. Units at the same position of repeated blocks run together. A unit that was not run
    alone has a share of its group's error, with an interval. `unknown` names what the data cannot
    show.

    The first samples of the data are used.

    Args:
        to: what to convert to: fp16, bf16 or int8, two of them (fp16,bf16 or int8,bf16), weights
            alone in int4, int8w, fp16w or bf16w, auto: what gains on this machine, or fp32: an FP16
            or BF16 file back.
        strategy: how to place the casts; see 'mezzo strategies'.
        target: what must run the result: a name of 'mezzo targets', or a .toml file.
        include: ask for low precision: a glob on node names, or 'op:Softmax'. Repeatable.
        exclude: keep in FP32: a glob on node names, or 'op:Softmax'. Repeatable.
        keep_region: leave a part as it is: a path of scopes or modules such as 'encoder/layer.3';
            globs work. Repeatable.
        fix_region: run a part in fp32 or in the low precision, and plan the rest around it.
            Repeatable.
        io: types of the model's inputs and outputs: keep them (default, but FP32 with --to fp32),
            all low, outputs as they come, or one by name. Repeatable.
        out_of_range: what to do with numbers that the low precision cannot hold: store them times a
            power of two, keep their operators in FP32, clamp weights, or refuse.
        opset: whether the opset, ONNX's version, may rise where a newer one allows the low
            precision.
        calibrator: how int8 chooses scales from --data: minmax, percentile, entropy, mse, your
            module:function; none: at run time.
        quantize_mode: what int8 takes beside products: what stands between them (smart), or all
            that the target runs (full).
        reduce_range: whether int8 gives weights scales with which sums hold on CPUs without VNNI;
            auto: if this machine's CPU is one.
        decode: with int4 or int8w and another format: the share of the time at one row, as where a
            language model writes; each matmul takes the format that is faster then.
        fuse: what to fuse: nothing, operators written out in small ones (operators), also what int8
            gains by (standard), or that for floats too (simplify).
        correct: what int8 corrects where --data shows that it helps: auto (leave,smooth,weights),
            none, or some of leave (small products that err much stay floats), smooth, weights and
            bias, with commas.
        assume: what an input holds, in place of what is assumed without data, such as image=0..255;
            may be repeated.
        feedback: an output that is an input of the next call, such as h_n=h_0, or guess: by names;
            may be repeated.
        trust_external_paths: open weights outside the model's folder, as links of a Hugging Face
            cache lead there.
        policy: which nodes may run in low precision, as of `mezzo.convert`.
        resume: a file with the finished runs, continued if it exists; FILE.calibration.npz has the
            calibration's state.

    Raises:
        InputError: an option, the data or the file to resume from is at fault.
        ModelError: the model is not valid ONNX.
    """

def tune(
    src: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    dst: str | os.PathLike[str] | None = None,
    *,
    to: FormatLike | None = None,
    policy: PolicyLike | None = "aggressive",
    strategy: str | None = "mincut",
    target: TargetLike | None = None,
    include: Sequence[str] | None = (),
    exclude: Sequence[str] | None = (),
    keep_region: Sequence[str] | None = (),
    fix_region: Mapping[str, str] | None = {},
    io: IO | None = "keep",
    out_of_range: str | None = "repair",
    opset: str | None = "auto",
    calibrator: str | None = "minmax",
    quantize_mode: str | None = "smart",
    reduce_range: str | None = "auto",
    decode: float | str | None = "1",
    fuse: str | None = "standard",
    correct: str | None = "auto",
    assume: Mapping[str, str] | None = {},
    feedback: Sequence[str] | None = (),
    trust_external_paths: bool | None = False,
    provenance: bool | None = True,
    check: bool | None = True,
    data: Data,
    max_error: float | None = None,
    metric: str | Metric | None = None,
    max_drop: str | float | None = None,
    max_bytes: int | str | None = None,
    held_out: Data | None = None,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    steps: int | None = None,
    measure: bool = False,
    accumulate: str | None = None,
    tile: int | None = None,
    time_limit_s: float | None = None,
    resume: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Find the cheapest plan whose output error stays within a budget, and convert with it.

    The error is the largest relative L2 over the outputs, ||y - ref|| / ||ref|| over all data, in
    true precision. There is always a result: in the worst case the model itself, with the reason
    why the search stopped. Its account, `measured`, holds the frontier, the cost of each unit, and
    the error on held-out data. What the data cannot show, as it holds NaN or nothing changes, is in
    `measured.search.unknown`; then the budget is unconfirmed, and nodes that only reach outputs
    without information stay FP32.

    Args:
        to: what to convert to: fp16, bf16 or int8, two of them (fp16,bf16 or int8,bf16), weights
            alone in int4, int8w, fp16w or bf16w, auto: what gains on this machine, or fp32: an FP16
            or BF16 file back.
        strategy: how to place the casts; see 'mezzo strategies'.
        target: what must run the result: a name of 'mezzo targets', or a .toml file.
        include: ask for low precision: a glob on node names, or 'op:Softmax'. Repeatable.
        exclude: keep in FP32: a glob on node names, or 'op:Softmax'. Repeatable.
        keep_region: leave a part as it is: a path of scopes or modules such as 'encoder/layer.3';
            globs work. Repeatable.
        fix_region: run a part in fp32 or in the low precision, and plan the rest around it.
            Repeatable.
        io: types of the model's inputs and outputs: keep them (default, but FP32 with --to fp32),
            all low, outputs as they come, or one by name. Repeatable.
        out_of_range: what to do with numbers that the low precision cannot hold: store them times a
            power of two, keep their operators in FP32, clamp weights, or refuse.
        opset: whether the opset, ONNX's version, may rise where a newer one allows the low
            precision.
        calibrator: how int8 chooses scales from --data: minmax, percentile, entropy, mse, your
            module:function; none: at run time.
        quantize_mode: what int8 takes beside products: what stands between them (smart), or all
            that the target runs (full).
        reduce_range: whether int8 gives weights scales with which sums hold on CPUs without VNNI;
            auto: if this machine's CPU is one.
        decode: with int4 or int8w and another format: the share of the time at one row, as where a
            language model writes; each matmul takes the format that is faster then.
        fuse: what to fuse: nothing, operators written out in small ones (operators), also what int8
            gains by (standard), or that for floats too (simplify).
        correct: what int8 corrects where --data shows that it helps: auto (leave,smooth,weights),
            none, or some of leave (small products that err much stay floats), smooth, weights and
            bias, with commas.
        assume: what an input holds, in place of what is assumed without data, such as image=0..255;
            may be repeated.
        feedback: an output that is an input of the next call, such as h_n=h_0, or guess: by names;
            may be repeated.
        trust_external_paths: open weights outside the model's folder, as links of a Hugging Face
            cache lead there.
        provenance: leave out of the metadata what made the model: version, options, plan.
        check: leave out the run of the result on the target's runtime, where that is installed.
        data: data for the search, as of `mezzo.compare`; without `held_out`, a quarter of it is
            held out.
        max_error: the budget.
        metric, max_drop: instead of it, a metric ("module:function" or a callable; larger is
            better) and its largest decrease: 0.005, or "0.5%" of the reference's.
        max_bytes: for weights in blocks (`to="int4"`), in place of an error budget: the size that
            the model may take, in bytes or as "80MB"; the plan of least error is chosen.
        measure: use times measured on the target instead of its table, and at the end time the
            result with the model in FP32 and the result of `mezzo.convert` alone; a result no
            faster than FP32 is FP32.
        accumulate, tile: the target's accumulators are rounded to "fp16" or "bf16" after every
            `tile` products; as the target's table says unless given, FP32 if it says nothing.
        time_limit_s: end the search after the current batch, with the best plan found by then,
            which is checked after it. INT8 calibration ends so too, and a note tells the share of
            data that it used.
        resume: a file with the finished runs, so that an interrupted search continues; ranges and
            calibration are in FILE.ranges.npz and FILE.calibration.npz.
        policy: which nodes may run in low precision, as of `mezzo.convert`.
        steps: with `feedback`, the number of steps: every plan is run through them, and the worst
            step counts.

    Raises:
        InputError: an option or the data is at fault.
        ModelError: the model is not valid ONNX.
        ContractError: the result would break a promise.
    """
