"""Every core ATen operator alone, planned by mezzo in a region and in none, beside plain PyTorch.

    python benchmarks/torch_operators.py --samples 5 --json out/torch-operators.json
    python benchmarks/torch_operators.py --names mm convolution --types float32

Calls are those that PyTorch's own sample inputs come to, and a few written for operators that these do not reach. Each
is judged with float operands in FP32, BF16 and FP16, for a conversion to BF16 and to FP16: outside regions (in FP32
with weights for operands, too), and in regions of the low type, of `keep()` and of FP32. What holds an answer to be
right stands in tests/pytorch/operator_laws.py. Graphs are interpreted. The run ends with 1 if an answer is not right.
Needs torch.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
import torch._inductor.lowering  # before its table of decompositions
from conformance import describe_environment

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "pytorch"))
from operator_calls import LEFT_OUT, Call, calls_of, core_operators
from operator_laws import LOW, REGIONS, Judge, Verdict, planned

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def verdicts_of(call: Call, types: Sequence[str]) -> Iterator[Verdict]:
    """One call in all types and regions; nothing where plain PyTorch does not run it."""
    for dtype in types:
        for to in LOW:
            judged = Judge(call, TYPES[dtype], to)
            for region in REGIONS:
                for with_weights in (False, True) if dtype == "float32" and region is None else (False,):
                    verdict = judged.judge(region, planned, with_weights=with_weights)
                    if verdict is not None:
                        yield verdict


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__ is not None, "the help begins with it"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=3, help="how many calls of each operator, at most")
    parser.add_argument("--names", nargs="+", help="operators without their overload, in place of all")
    parser.add_argument("--types", nargs="+", choices=tuple(TYPES), default=list(TYPES), help="of float operands")
    parser.add_argument("--json", type=Path, help="where the failures go, with counts, versions and CPU")
    given = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    calls = calls_of(given.samples, tries=2 * given.samples)
    if given.names:
        calls = [call for call in calls if str(call.func).split(".")[1] in given.names]
    reached = {str(call.func) for call in calls}
    verdicts = [verdict for call in calls for verdict in verdicts_of(call, given.types)]
    failures = [verdict for verdict in verdicts if verdict.failure is not None]
    for verdict in failures:
        print(f"{verdict.call} {verdict.kind}: {verdict.failure}")
    core = [name for name in core_operators() if name not in LEFT_OUT]
    counts = {
        "operators": len(reached),
        "core": len(core),
        "calls": len(calls),
        "judged": len(verdicts),
        "failures": len(failures),
    }
    print(", ".join(f"{name} {count}" for name, count in counts.items()))
    if given.json:
        environment = describe_environment("mezzo")
        environment["versions"]["torch"] = torch.__version__
        document = {"environment": environment, "counts": counts, "failures": list(map(asdict, failures))}
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
