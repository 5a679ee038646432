"""Break the code in small ways and count which ways the tests notice.

    python tools/mutants                                        # every folder, 60 mutants of each module: hours
    python tools/mutants core --only lower --sample 0           # all of one module
    python tools/mutants core --again                           # what got away last time, once more

A mutant is one place changed by one of mutmut's operators: a comparison, a number, an argument, a keyword, a text, a
branch. mutmut's own runner leaves out whatever stands under a decorator, every cached property with it, and what
modules hold, and it collects the tests anew for each mutant; this one does neither. Two runs with one seed try the same
mutants in the same order, which is random: a run that `--minutes` ends has tried a random part of them.

`equivalent.toml` lists mutants that no test can notice, with reasons: counted apart, never as killed.
"""

import argparse
import fnmatch
import json
import math
import os
import random
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from making import ROOT, SOURCE, Mutant, means_the_same, mutants_of, name_of
from trying import FLAGS, Result, Spare, Trial

EQUIVALENTS = Path(__file__).with_name("equivalent.toml")
CORE = (
    *sorted(path.relative_to(SOURCE).with_suffix("").as_posix() for path in (SOURCE / "contracts").rglob("*.py")),
    *sorted(path.relative_to(SOURCE).with_suffix("").as_posix() for path in (SOURCE / "ir").glob("*.py")),
    *sorted(path.relative_to(SOURCE).with_suffix("").as_posix() for path in (SOURCE / "tables").glob("*.py")),
    "planner/check", "planner/choices/choosing", "planner/lower", "planner/planner", "planner/verdicts/promotion",
    "planner/reasons", "planner/verdicts/rules", "planner/plan_options", "report/views/grouping",
    "formats/dtypes", "formats/format_words", "formats/precision_line", "formats/quantization",
)  # fmt: skip
# What a plan and a result say of themselves: what was found and lifted, how it was made, where it is written.
TELLING = (
    "conversion/version_steps", "conversion/recall", "planner/verdicts/findings", "planner/recalled",
    "planner/recording", "io/provenance", "evaluate/standards", "common/safe_paths", "tuning/repeated_blocks",
    "tuning/repair/overflow_protection",
)  # fmt: skip
# Weights of four and eight bits in blocks: grids, and payloads in pieces.
BLOCKS = (
    "formats/block_storage", "onnx/files/block_payloads", "quantize/arithmetic/block_grid",
    "quantize/arithmetic/grid_search", "quantize/rounding/clip_search", "quantize/rounding/hqq",
    "quantize/rounding/k_quant",
)  # fmt: skip
FOLDERS = {
    "core": tuple(SOURCE / f"{name}.py" for name in CORE),
    "blocks": tuple(SOURCE / f"{name}.py" for name in BLOCKS),
    **{
        name.rpartition("/")[2]: tuple(sorted((SOURCE / name).rglob("*.py")))
        for name in ("planner/strategies", "analysis/structure", "numerics", "analysis/estimates")
    },
    "telling": tuple(SOURCE / f"{name}.py" for name in TELLING),
}
# The quick tests of each folder: files as globs in tests/, or one test of a file.
_PLANNING = (
    "formats/test_*.py", "ir/test_*.py", "contracts/test_*.py", "analysis/test_structure_rules.py",
    "analysis/test_findings.py", "tables/test_policy_rules.py", "tables/test_quantized_kernels.py",
    "tables/test_target*.py", "tables/test_words.py", "planner/test_check.py", "planner/test_node_verdicts.py",
    "planner/test_lower.py", "planner/test_promotion.py", "planner/test_reasons.py", "planner/test_toy_dialect.py",
    "planner/test_properties.py::test_check_finds_planted_faults",
    "planner/test_properties.py::test_mincut_costs_what_brute_force_finds", "io/test_policyfile.py",
    "io/test_targetfile.py", "conversion/test_plans.py", "test_golden.py::test_case_gives_what_its_file_says",
)  # fmt: skip
_LAWS = (
    "reference/test_*.py", "planner/test_properties.py::test_assignment_is_independent_of_node_order",
    "planner/test_properties.py::test_every_decided_node_is_assigned_as_its_choice_says",
    "planner/test_mincut_penalties.py::test_mincut_costs_what_brute_force_finds",
    "planner/test_mincut_penalties.py::test_huge_numbers_leave_the_rest_exact",
)  # fmt: skip
TESTS = {
    "core": _PLANNING,
    "blocks": ("onnx/test_block_payloads.py", "quantize/test_rounding.py"),
    "strategies": (*_PLANNING, *_LAWS),
    "structure": _PLANNING,
    "numerics": ("numerics/test_*.py", "tuning/test_pricing.py", "tuning/test_table_costs.py"),
    "estimates": ("analysis/estimates/test_*.py", "test_golden.py::test_case_gives_what_its_file_says"),
    "telling": (
        "tables/test_words.py", "tuning/test_margins.py", "cli/test_cannot_tell.py", "cli/test_places.py",
        "cli/test_provenance_commands.py", "tuning/test_repeated_blocks.py", "conversion/test_plans.py",
        "tuning/test_overflow_protection.py", "conversion/test_provenance.py", "numerics/test_verdicts.py",
        "test_golden.py::test_case_gives_what_its_file_says",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Share:
    """How many mutants of a module there are, were tried, are equivalent, and were noticed; and by more than the tests
    that were asked last.
    """

    mutants: int
    tried: int
    equivalent: int
    killed: int
    killed_before: int


def main() -> int:
    asked = _read_arguments()
    folders = asked.folders or list(FOLDERS)
    for folder in folders:
        if not asked.table and not os.fork():  # each folder has tests of its own, collected in a process of its own
            _run_folder(folder, asked)
            os._exit(0)
        if not asked.table:
            os.wait()
    for folder in folders:
        _print_table(folder, Path(asked.out))
    return 0


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Break the code in small ways and count what the tests notice.")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help=f"of {', '.join(FOLDERS)}; all unless given")
    parser.add_argument("--only", nargs="*", default=(), metavar="MODULE", help="modules, by the end of their names")
    parser.add_argument("--sample", type=int, default=60, help="mutants of each module; 0 is all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=15.0, help="processor time of the tests of one mutant")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after so long with what was tried")
    parser.add_argument(
        "--last", nargs="*", default=(), metavar="TEXT", help="tests to ask last, by what their names hold"
    )
    parser.add_argument("--again", action="store_true", help="try those that survived the last run")
    parser.add_argument("--table", action="store_true", help="print what is known and run nothing")
    parser.add_argument("--out", default="out/mutants")
    asked = parser.parse_args()
    strange = [folder for folder in asked.folders if folder not in FOLDERS]
    if strange:
        parser.error(f"{strange[0]!r} is no folder of mezzo's that mutants are made of; choose of {', '.join(FOLDERS)}")
    return asked


def _run_folder(folder: str, asked: argparse.Namespace) -> None:
    spare = Spare()
    chosen: list[Mutant] = []
    counts: dict[str, int] = {}
    for path in FOLDERS[folder]:
        if not asked.only or path.stem in asked.only:
            every = mutants_of(path)
            counts[name_of(path)] = len(every)
            take = min(asked.sample or len(every), len(every))
            chosen += random.Random(f"{asked.seed} {name_of(path)}").sample(every, take)
    random.Random(asked.seed).shuffle(chosen)
    equivalents = _read_equivalents()
    file = Path(asked.out, f"{folder}.json")
    known = {row["mutant"]: row for row in json.loads(file.read_text())["tried"]} if asked.again else {}
    apart = {mutant: because for mutant in chosen if (because := _why_equivalent(mutant, equivalents)) is not None}
    fresh = [m for m in chosen if m not in apart and (not known or not known.get(str(m), {}).get("killed", True))]

    def save(results: Mapping[Mutant, Result]) -> None:
        rows = []
        for mutant in chosen:
            row = _row(mutant, results[mutant]) if mutant in results else known.get(str(mutant))
            if mutant in apart:
                row = {**_row(mutant, Result(False)), "equivalent": apart[mutant]}
            rows += [] if row is None else [row]
        file.parent.mkdir(parents=True, exist_ok=True)
        document = {"last": asked.last, "mutants": counts, "tried": sorted(rows, key=lambda row: str(row["mutant"]))}
        file.write_text(json.dumps(document, indent=1))

    trial = Trial(fresh, asked.workers, asked.seconds, 60 * asked.minutes, asked.last, spare, save)
    os.chdir(ROOT)
    pytest.main([*FLAGS, *_select(folder)], plugins=[trial])
    save(trial.results)


def _select(folder: str) -> list[str]:
    """Tests as pytest takes them."""
    found: list[str] = []
    for part in TESTS[folder]:
        glob, separator, test = part.partition("::")
        found += [f"{path}{separator}{test}" for path in sorted((ROOT / "tests").glob(glob))]
    return found


def _row(mutant: Mutant, result: Result) -> dict[str, object]:
    return {"mutant": str(mutant), "module": mutant.module, "killed": result.is_killed, "killer": result.killer}


def _read_equivalents() -> list[dict[str, str]]:
    return tomllib.loads(EQUIVALENTS.read_text(encoding="utf-8")).get("mutant", []) if EQUIVALENTS.exists() else []


def _why_equivalent(mutant: Mutant, rows: Sequence[Mapping[str, str]]) -> str | None:
    """Why no test can notice a mutant; None where one can. A row has the module and the line, both as globs, and what
    of the line becomes what.
    """
    if means_the_same(mutant):
        return "is spelled otherwise, or asserts less to ourselves"
    for row in rows:
        if not fnmatch.fnmatchcase(mutant.module, row["module"]) or not fnmatch.fnmatchcase(mutant.before, row["line"]):
            continue
        parts = mutant.before.split(row["from"])
        pairs = [(row["from"].join(parts[:at]), row["from"].join(parts[at:])) for at in range(1, len(parts))]
        if any(mutant.after == f"{left}{row['to']}{right}" for left, right in pairs):
            return row["because"]
    return None


# -- what it came to --------------------------------------------------------------------------------------------------


def _shares(document: dict[str, object]) -> dict[str, Share]:
    last, shares = document["last"], {}
    for module, count in document["mutants"].items():  # type: ignore[attr-defined]  # JSON
        rows = [row for row in document["tried"] if row["module"] == module]  # type: ignore[attr-defined]  # JSON
        killed = [row for row in rows if row["killed"]]
        before = [row for row in killed if not any(part in (row.get("killer") or "") for part in last)]  # type: ignore[attr-defined]  # JSON
        apart = sum("equivalent" in row for row in rows)
        shares[module] = Share(count, len(rows), apart, len(killed), len(before))
    return shares


def estimate(shares: Iterable[Share]) -> tuple[float, float]:
    """The share killed of all mutants that are not equivalent, and half its 95 % interval, modules being strata."""
    counted = [share for share in shares if share.tried > share.equivalent]
    total = sum(share.mutants for share in counted)
    mean, variance = 0.0, 0.0
    for share in counted:
        tried, weight = share.tried - share.equivalent, share.mutants / total
        rate = share.killed / tried
        mean += weight * rate
        left = 1 - share.tried / share.mutants  # nothing is left to chance where all were tried
        variance += weight**2 * rate * (1 - rate) / max(tried - 1, 1) * left
    return mean, 1.96 * math.sqrt(variance)


def _print_table(folder: str, out: Path) -> None:
    document = json.loads((out / f"{folder}.json").read_text())
    shares = _shares(document)
    print("| module | mutants | tried | equivalent | killed before | killed | share of those not equivalent |")
    print("|---|---|---|---|---|---|---|")
    for name, part in [*((module, [share]) for module, share in shares.items()), (folder, list(shares.values()))]:
        print(f"| {name} | {' | '.join(_figures(part))} |")
    survivors = [row["mutant"] for row in document["tried"] if not row["killed"] and "equivalent" not in row]
    (out / f"{folder}.survivors.txt").write_text("".join(f"{mutant}\n" for mutant in survivors))


def _figures(part: Sequence[Share]) -> list[str]:
    sums = [sum(getattr(share, name) for share in part) for name in Share.__dataclass_fields__]
    mutants, tried, equivalent, killed, before = sums
    rate, half = estimate(part)
    return [*map(str, (mutants, tried, equivalent, before, killed)), f"{rate:.1%}{f' ± {half:.1%}' if half else ''}"]


if __name__ == "__main__":
    sys.exit(main())
