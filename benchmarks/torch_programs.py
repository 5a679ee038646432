"""Answers of random programs with regions in them, compiled by mezzo, beside those of autocast.

    python benchmarks/torch_programs.py --count 200 --json out/torch-programs.json
    python benchmarks/torch_programs.py --first 25 --count 1 --show

Programs are of core operators (views, writes, buffers, reductions, masks, indices, norms, products, convolutions,
joins, conversions) in regions and functions in regions, over graph breaks; every eighth is compiled for any batch. Odd
seeds are for BF16, even ones for FP16. What holds a program to be right stands in tests/pytorch/program_laws.py; every
fourth is run within `keep()` as well. Graphs are those that Inductor compiles, interpreted operator by operator. The
run ends with 1 if a program is not right. Needs torch.
"""

import argparse
import json
import logging
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from conformance import describe_environment

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "pytorch"))
from program_laws import Verdict, judge, judge_kept  # the laws are the tests' own
from random_programs import Program


def show(verdicts: Sequence[Verdict], kept: Sequence[Verdict]) -> None:
    """Print the sums, and each program that is not right."""
    for one in [*verdicts, *kept]:
        if one.failure is not None:
            beside = "; plain torch.compile fails too" if one.plain_fails else ""
            print(f"seed {one.seed} {one.to}: {one.failure}{beside}")
    for to in sorted({one.to for one in verdicts}):
        of = [one for one in verdicts if one.to == to]
        ran = [one for one in of if not one.plain_fails]
        ratios = sorted(one.error / one.beside for one in ran if one.failure is None and one.beside)
        middle = f", error in autocast's: {ratios[len(ratios) // 2]:.2f}, at most {ratios[-1]:.2f}" if ratios else ""
        right, alike = sum(one.is_right for one in ran), sum(one.is_as_autocast for one in ran)
        print(f"{to}: {right} of {len(ran)} right, {alike} as autocast{middle}; {len(of) - len(ran)} fail plainly")
    print(f"in keep(): {sum(one.is_right for one in kept)} of {len(kept)} right")


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__ is not None, "the help begins with it"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=200, help="how many programs")
    parser.add_argument("--show", action="store_true", help="print each program before it runs")
    parser.add_argument("--json", type=Path, help="where the verdicts go, with versions and CPU")
    given = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    verdicts, kept = [], []
    for seed in range(given.first, given.first + given.count):
        to = "bf16" if seed % 2 else "fp16"
        if given.show:
            print(Program(seed).text)
        verdicts.append(judge(seed, to))
        print(json.dumps(asdict(verdicts[-1])), file=sys.stderr, flush=True)
        inside = judge_kept(seed, to) if seed % 4 == 1 else None
        kept += [] if inside is None else [inside]
    show(verdicts, kept)
    if given.json:
        environment = describe_environment("mezzo")
        environment["versions"]["torch"] = torch.__version__
        document = {
            "environment": environment,
            "programs": list(map(asdict, verdicts)),
            "kept": list(map(asdict, kept)),
        }
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0 if all(one.is_right for one in (*verdicts, *kept)) else 1


if __name__ == "__main__":
    sys.exit(main())
