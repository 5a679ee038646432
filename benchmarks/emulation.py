"""Judges the emulator by arithmetic in numpy and ml_dtypes, operator by operator, over the ONNX operator test models.

    python benchmarks/emulation.py --json out/emulation.json

Three questions, per operator and format, on the test models' own numbers and for elementwise operators on every FP16
number besides:

- Is what the emulator gives the engine's FP32 result on rounded operands, rounded once? In every bit, always: what is
  not counts as wrong.
- Is it the reference's FP32 result, rounded once? Where it is not, the FP32 results of the two libraries differ before
  any rounding, which is told apart:
  - straddling: they lie on both sides of a rounding boundary and differ by at most k * eps32 of the result's scale,
    with k = 64 for elementwise operators (their approximations are a few units off) and k = 2 n for sums of n terms
    (each product and each addition rounds once on either side);
  - near zero: they differ by more than that, and by less than 64 * eps32 of 1: exp(x) - 1 against expm1(x), tails that
    an approximation cuts off, the sign of a zero;
  - other answers: all the rest, such as the maximum of numbers and NaN. The operators are listed.
- Do tiled sums of MatMul, Gemm and Conv follow the stated model? On integers whose FP32 sums are exact, in every bit.

Ends with 1 if the first or the third is ever answered no.
"""

import argparse
import hashlib
import json
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from arithmetic import EPS, Array, Step, compute, integers_like, rounded, steps, tiled
from conformance import describe_environment
from rich.console import Console
from rich.table import Table
from suites import operators

from mezzo.common.errors import MezzoError
from mezzo.contracts.plans import Accumulation
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.nodes import Kind, Role, Signature
from mezzo.onnx.emulate.switch import OnnxEmulator
from mezzo.onnx.opening import open_model
from mezzo.onnx.run.runtime import JUDGING
from mezzo.onnx.run.session import Engine, Session
from mezzo.tables.facts import Cost
from mezzo.tables.ops import op_facts

FAMILIES = {
    Cost.POINTWISE: "elementwise", Cost.MOVEMENT: "movement", Cost.REDUCTION: "reduction", Cost.LINEAR: "linear",
    Cost.NORMALIZATION: "normalization",
}  # fmt: skip
TILED = ("MatMul", "Gemm", "Conv")
TILES = (1, 4, 16, 128)
ELEMENTWISE_UNITS = 64
# Whose second half of operands is no data, or whose results hang on the first axes.
NO_PROBES = frozenset({"RotaryEmbedding", "SwiGLU", "Scale", "ImageScaler", "BitCast"})


@dataclass(slots=True)
class Tally:
    """What one operator came to in one format. Numbers are counted one by one; `steps` are models."""

    family: str
    op: str
    format: str
    steps: int = 0
    numbers: int = 0
    straddling: int = 0
    near_zero: int = 0
    other_answers: int = 0
    largest_units: float = 0.0  # largest difference of the libraries' FP32 results, in k * eps32, where not apart
    wrong: int = 0
    tiled_sums: int = 0
    tiled_wrong: int = 0
    not_run: int = 0  # models that the engine or the reference cannot run
    errors: set[str] = field(default_factory=set)
    why: list[str] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--only", help="judge only operators with this name")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    tallies = judge_all(options.only)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(make_table(tallies))
    for line in [*explain(tallies), *(line for tally in tallies for line in tally.why[:3])]:
        console.print(line, markup=False)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        report = {
            "environment": describe_environment("mezzo"),
            "operators": [asdict(t) | {"errors": sorted(t.errors)} for t in tallies],
        }
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 1 if any(tally.wrong or tally.tiled_wrong for tally in tallies) else 0


def judge_all(only: str | None = None) -> list[Tally]:
    """Judge every operator of the test models, those met twice with the same operands once."""
    tallies: dict[tuple[str, str, DType], Tally] = {}
    seen = set[bytes]()
    rows = op_facts("onnx")
    for case in operators():
        if case.random_because is not None:
            continue
        for step in steps(case):
            row = rows.get(step.node.op_type)
            family = None if row is None or step.node.domain else FAMILIES.get(row.cost)
            key = _digest(step)
            if family is None or key in seen or only not in (None, step.node.op_type):
                continue
            seen.add(key)
            judge_step(step, family, tallies)
    return sorted(tallies.values(), key=lambda tally: (tally.family, tally.op, tally.format))


def _digest(step: Step) -> bytes:
    digest = hashlib.sha256(repr((step.node.op_type, step.node.attribute, step.opset)).encode())
    for operand in step.operands:
        digest.update(b"-" if operand is None else repr((operand.dtype, operand.shape)).encode() + operand.tobytes())
    return digest.digest()


def judge_step(step: Step, family: str, tallies: dict[tuple[str, str, DType], Tally]) -> None:
    """Judge one operator in every format that its opset reaches."""
    try:
        opened = open_model(step.model())
        signature = _signature(opened.read(DType.FLOAT16).graph)
    except MezzoError:
        return
    if signature is None:
        return
    for formats in ((DType.FLOAT16, DType.BFLOAT16), (DType.FLOAT8E4M3FN, DType.FLOAT8E5M2)):
        try:
            reading = opened.read(formats[0])
            number = next(node.id for node in reading.graph.nodes if node.name == "step")
            emulator = OnnxEmulator(opened, reading, formats, settings=JUDGING)
            plain = Session(step.model(), step.model().graph.input, Engine.ONNXRUNTIME, JUDGING)
        except MezzoError:
            continue  # the engine has no kernel for it, or the opset cannot be raised
        if emulator.fallback is not None:
            continue
        for dtype in formats:
            key = family, step.node.op_type, dtype
            tally = tallies.setdefault(key, Tally(family, step.node.op_type, str(dtype)))
            for operands, is_own in _operand_sets(step, signature, family):
                _compare(step, signature, operands, dtype, is_own, emulator, number, plain, tally)
            if step.node.op_type in TILED and not dtype.name.startswith("FLOAT8"):
                _compare_tiled(step, opened, dtype, tally)


def _signature(graph: Any) -> Signature | None:
    found = [n for n in graph.nodes if n.kind is Kind.OP and n.name == "step" and n.signature.dtype is HIGH]
    return found[0].signature if found else None


def _operand_sets(step: Step, signature: Signature, family: str) -> Iterator[tuple[list[Array | None], bool]]:
    """The model's own operands, and for elementwise operators every FP16 number beside others."""
    yield list(step.operands), True
    group = [i for i, role in enumerate(signature.inputs) if role is Role.GROUP]
    shapes = {step.operands[i].shape for i in group}  # type: ignore[union-attr]  # a role has an operand
    others = [o for i, o in enumerate(step.operands) if i not in group and o is not None and o.ndim]
    if family != "elementwise" or not group or len(shapes) > 1 or others or step.node.op_type in NO_PROBES:
        return
    if any(attribute.name in ("axis", "axes") for attribute in step.node.attribute):
        return
    generator = np.random.default_rng(20)
    every = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    probes = list(step.operands)
    for place, index in enumerate(group):
        usual = generator.standard_normal(40_000) * np.exp(generator.uniform(-12, 12, 40_000))
        numbers = np.concatenate([every if place == 0 else generator.permutation(every), usual]).astype(np.float32)
        rank = step.operands[index].ndim  # type: ignore[union-attr]  # a role has an operand
        probes[index] = numbers.reshape([*[1] * (rank - 1), -1]) if rank else numbers[7]
    yield [o if o is None else np.asarray(o) for o in probes], False


def _compare(
    step: Step,
    signature: Signature,
    operands: list[Array | None],
    dtype: DType,
    is_own: bool,
    emulator: OnnxEmulator,
    number: int,
    plain: Session,
    tally: Tally,
) -> None:
    low = [
        rounded(array, dtype) if array is not None and role is Role.GROUP else array
        for array, role in zip(operands, signature.inputs, strict=True)
    ]
    try:
        got = emulator.run(step.feeds(operands), {number: dtype})
        engine = plain.run(step.feeds(low))
        reference = dict(zip(engine, compute(step, low), strict=True))
    except Exception as error:  # noqa: BLE001  probes may be numbers that an operator refuses
        tally.not_run += is_own
        tally.errors.add(f"{type(error).__name__}: {str(error)[:100]}")
        return
    tally.steps += 1
    for index, name in enumerate(name for name in step.node.output if name):
        mine, ours, theirs = (np.asarray(results[f"o{index}"]) for results in (got, engine, reference))
        if ours.dtype != np.float32:
            continue
        is_group = signature.outputs[list(step.node.output).index(name)] is Role.GROUP
        expected, wanted = (rounded(r, dtype) if is_group else r for r in (ours, theirs.astype(np.float32)))
        tally.numbers += mine.size
        wrong = _count_differing(mine, expected)
        if mine.shape != theirs.shape:
            tally.other_answers += mine.size
            continue
        differs = ~_same(expected, wanted)
        scale = _scale(low, tally.family, theirs)
        with np.errstate(all="ignore"):
            distance = np.abs(ours.astype(np.float64) - theirs)
            units = distance / (_units(tally.family, low) * EPS * scale)
            is_close = np.isfinite(units) & (units <= 1) & (ours != theirs)
            is_small = ~is_close & (distance <= ELEMENTWISE_UNITS * EPS)
        tally.straddling += int((differs & is_close).sum())
        tally.near_zero += int((differs & is_small).sum())
        tally.other_answers += int((differs & ~is_close & ~is_small).sum())
        tally.largest_units = max(tally.largest_units, float(units[is_close].max(initial=0.0)))
        tally.wrong += wrong
        if wrong:
            tally.why.append(f"{step.name} {step.node.op_type} {dtype}: {wrong} numbers are not rounded as they should")


def _units(family: str, operands: Sequence[Array | None]) -> float:
    """k of the bound k * eps32."""
    if family in ("elementwise", "movement"):
        return ELEMENTWISE_UNITS
    sizes = [array.size for array in operands if array is not None]
    return 2.0 * max(1.0, max(sizes, default=1))


def _scale(operands: Sequence[Array | None], family: str, result: Array) -> Any:
    """What FP32's relative error refers to: the result, and in sums the same sum of magnitudes."""
    with np.errstate(all="ignore"):
        if family in ("elementwise", "movement"):
            return np.maximum(np.abs(result.astype(np.float64)), 1e-300)
        finite = np.abs(result[np.isfinite(result)]).max(initial=0.0)
        sums = [np.abs(a).max(initial=0.0) for a in operands if a is not None and a.dtype == np.float32]
        return max(float(finite), float(max(sums, default=0.0)), 1e-30)


def _compare_tiled(step: Step, opened: Any, dtype: DType, tally: Tally) -> None:
    generator = np.random.default_rng(21)
    operands = [None if array is None else integers_like(array, generator, dtype) for array in step.operands]
    for tile in TILES:
        reading = opened.read(DType.FLOAT16)
        number = next(node.id for node in reading.graph.nodes if node.name == "step")
        try:
            emulator = OnnxEmulator(opened, reading, [dtype], Accumulation(dtype, tile), settings=JUDGING)
        except MezzoError:
            continue  # an opset below 13 that cannot be raised
        mine = emulator.run(step.feeds(operands), {number: dtype})["o0"]
        expected = tiled(step, operands, dtype, tile)
        tally.tiled_sums += mine.size
        wrong = _count_differing(mine, expected)
        tally.tiled_wrong += wrong
        if wrong:
            tally.why.append(f"{step.name} {step.node.op_type} {dtype}: {wrong} sums in tiles of {tile} are wrong")


def _same(first: Array, second: Array) -> Any:
    is_nan = np.isnan(first) & np.isnan(second)
    return is_nan | ((first == second) & (np.signbit(first) == np.signbit(second)))


def _count_differing(first: Array, second: Array) -> int:
    return int((~_same(first, second)).sum()) if first.shape == second.shape else max(first.size, 1)


def explain(tallies: Sequence[Tally]) -> Iterator[str]:
    """Lines that name the operators whose FP32 answers differ between the libraries, and those not run."""
    for title, part in (
        ("straddling", "straddling"), ("near zero", "near_zero"), ("other answers", "other_answers"),
        ("models not run", "not_run"),
    ):  # fmt: skip
        counts: dict[str, int] = defaultdict(int)
        for tally in tallies:
            counts[tally.op] += getattr(tally, part)
        named = ", ".join(f"{op} {count:,}" for op, count in sorted(counts.items()) if count)
        yield f"{title}: {named or 'none'}"
    units = {
        family: max(t.largest_units for t in tallies if t.family == family) for family in {t.family for t in tallies}
    }
    yield "largest difference of FP32 in units of its bound: " + ", ".join(
        f"{f} {u:.2g}" for f, u in sorted(units.items())
    )


def make_table(tallies: Sequence[Tally]) -> Table:
    """One row per family and format, with the operators whose libraries differ."""
    table = Table(title="Emulator against numpy and ml_dtypes")
    heads = ("family", "format", "operators", "models", "numbers", "wrong", "straddling", "near zero")
    for head in (*heads, "other answers", "tiled sums", "wrong tiled"):
        table.add_column(head, justify="left" if head in heads[:2] else "right")
    groups: dict[tuple[str, str], list[Tally]] = defaultdict(list)
    for tally in tallies:
        groups[tally.family, tally.format].append(tally)
    for (family, name), group in groups.items():
        sums = [
            sum(getattr(tally, part) for tally in group)
            for part in (
                "steps",
                "numbers",
                "wrong",
                "straddling",
                "near_zero",
                "other_answers",
                "tiled_sums",
                "tiled_wrong",
            )
        ]
        table.add_row(family, name, str(len(group)), *(f"{number:,}" for number in sums))
    return table


if __name__ == "__main__":
    sys.exit(main())
