"""mezzo bench: benchmark of models side by side, and runtime profiles."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from mezzo.api.folders.genai import CONFIG, OPENVINO_MODEL
from mezzo.cli.exit_codes import NO
from mezzo.cli.options import choices, data_options
from mezzo.cli.options import options as shared
from mezzo.cli.options.data_options import Top, check_top
from mezzo.cli.output import print_result
from mezzo.common.errors import InputError

_TYPES = ("file", "runtime")
_CARE = "How it is timed"
_Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE...",
        help="The ONNX models, or folders of onnxruntime-genai and OpenVINO GenAI; the first is the"
        " reference.",
        show_default=False,
    ),
]
_Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="Whose runtime, as it is installed here; 'mezzo doctor' lists them.",
        autocompletion=choices.complete_target,
        show_default="that of fp16, see 'mezzo targets'",
    ),
]
_Data = Annotated[
    list[Path] | None,
    typer.Option(
        "--data",
        metavar="DATA",
        help="What they are fed, as of 'mezzo compare'. Repeatable.",
        show_default="random",
        rich_help_panel=shared.COMMON_PANEL,
    ),
]
_Batch = Annotated[
    int | None,
    typer.Option(
        "--batch",
        metavar="N",
        help="Samples per call, where the models leave their number open.",
        show_default="1",
        rich_help_panel=data_options.PANEL,
    ),
]
_Baseline = Annotated[
    Path | None,
    typer.Option(
        "--baseline",
        metavar="FILE",
        help="The file that the others are compared with.",
        show_default="the first",
        rich_help_panel=_CARE,
    ),
]
_Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        help="How many the runtime may use.",
        show_default="the runtime decides",
        rich_help_panel=_CARE,
    ),
]
_Runs = Annotated[
    int | None,
    typer.Option(
        "--runs",
        metavar="N",
        help="Timed turns of each file, over all starts.",
        show_default="60",
        rich_help_panel=shared.COMMON_PANEL,
    ),
]
_Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        metavar="S",
        help="About how long it may take in all, loading included.",
        show_default="60 without --runs",
        rich_help_panel=_CARE,
    ),
]
_Starts = Annotated[
    int,
    typer.Option(
        "--starts",
        metavar="N",
        help="How often each file is loaded anew.",
        rich_help_panel=_CARE,
    ),
]
_Types = Annotated[
    str,
    typer.Option(
        "--types",
        metavar="|".join(_TYPES),
        help="Run the types that the files state, or those that the "
        "runtime likes best: OpenVINO computes FP32 in BF16 where the machine can.",
        autocompletion=choices.completing(_TYPES),
        rich_help_panel=_CARE,
    ),
]
_Layers = Annotated[
    bool,
    typer.Option(
        "--layers",
        "-v",
        help="Also what each file's time goes into, from the runtime's own profile.",
        rich_help_panel=shared.COMMON_PANEL,
    ),
]
_Profiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        help="Run nothing, and tell of a profile: ONNX Runtime's JSON, or "
        "trtexec's --exportProfile with its --exportLayerInfo beside it. Repeatable.",
        rich_help_panel=shared.FILES_PANEL,
    ),
]


def bench(
    files: _Files = None,
    target: _Target = None,
    data: _Data = None,
    preprocess: data_options.Preprocess = None,
    tokenizer: data_options.Tokenizer = None,
    batch: _Batch = None,
    baseline: _Baseline = None,
    threads: _Threads = None,
    runs: _Runs = None,
    seconds: _Seconds = None,
    starts: _Starts = 5,
    types: _Types = "file",
    layers: _Layers = False,
    top: Top = 10,
    profile: _Profiles = None,
    trust_external_paths: shared.TrustExternalPaths = False,
    as_json: shared.AsJson = False,
    quiet: shared.Quiet = False,
) -> None:
    """Time models side by side on the installed runtime, and say which is faster where that is more
    than noise.

    They run in turns, each in a process of its own; before each timed turn stand 20 ms of rest and
    a call that is not timed, and all are loaded anew several times. Speed is how many times as fast
    as the reference, with an interval; where that holds 1, the difference is not significant.

    Of folders of onnxruntime-genai and OpenVINO GenAI, as 'mezzo llm' writes them, it tells tokens
    per second: of a prompt, and of new ones.

    Exit code 0: all were timed; 1: some do not run; 2: bad input.
    """
    check_top(top)
    if any((file / name).is_file() for file in files or () for name in (CONFIG, OPENVINO_MODEL)):
        of_models = {
            "--target": target, "--data": data, "--batch": batch, "--baseline": baseline,
            "--seconds": seconds, "--layers": layers or None, "--profile": profile,
        }  # fmt: skip
        _bench_folders(files or [], of_models, threads, runs, as_json=as_json, quiet=quiet)
        return
    if profile:
        if files:
            raise InputError(
                f"{str(files[0])!r}: --profile tells of profiles and runs no model; leave one of"
                " them out"
            )
        _print_profiles(profile, top, as_json=as_json, quiet=quiet)
        return
    if not files and baseline is None:
        raise InputError("'bench' lacks FILE: the ONNX models; write mezzo bench FILE...")
    data_files = data_options.read_data(data or [Path("random")], preprocess, tokenizer)
    types = choices.settle_choice("--types", types, _TYPES)
    target = None if target is None else choices.settle_target(target)

    from mezzo.api.bench import bench as time_files
    from mezzo.cli.progress import Patience
    from mezzo.report.text.measured.timings import describe_timings, report_timings

    with Patience() as progress:
        timings = time_files(
            files or [], target=target, data=data_files, baseline=baseline, batch_size=batch,
            threads=threads, runs=runs, seconds=seconds, starts=starts, types=types, layers=layers,
            trust_external_paths=trust_external_paths, progress=progress,
        )  # fmt: skip
    print_result(
        lambda: describe_timings(timings),
        lambda layout: report_timings(layout, timings, top),
        as_json=as_json,
        quiet=quiet,
    )
    if timings.has_faults:
        raise typer.Exit(NO)


def _bench_folders(
    folders: list[Path],
    of_models: Mapping[str, object],
    threads: int | None,
    runs: int | None,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    for name, value in of_models.items():
        if value is not None:
            raise InputError(f"{name} is for models, and folders are given; leave it out")

    from mezzo.api.language_models.generation import bench_folders
    from mezzo.cli.progress import Patience
    from mezzo.report.text.measured.tokens import describe_tokens, report_tokens

    with Patience() as progress:
        timings = bench_folders(folders, threads=threads, runs=runs, progress=progress)
    print_result(
        lambda: describe_tokens(timings),
        lambda layout: report_tokens(layout, timings),
        as_json=as_json,
        quiet=quiet,
    )
    if timings.has_faults:
        raise typer.Exit(NO)


def _print_profiles(paths: list[Path], top: int, *, as_json: bool, quiet: bool) -> None:
    from mezzo.io.runtime_profiles import read_profiles
    from mezzo.report.text.measured.timings import describe_profiles, report_profiles

    profiles = read_profiles(paths)
    print_result(
        lambda: describe_profiles(profiles),
        lambda layout: report_profiles(layout, profiles, top),
        as_json=as_json,
        quiet=quiet,
    )
