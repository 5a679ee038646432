"""Every core ATen operator alone, in a region and in none, answers as plain PyTorch does or errs no more than it may.

`benchmarks/torch_operators.py` judges more calls of each, of three types.
"""

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
import torch._inductor.lowering  # before its table of decompositions
from operator_calls import LEFT_OUT, Call, calls_of, core_operators
from operator_laws import Judge, Verdict, planned


@pytest.fixture(scope="module")
def calls() -> list[Call]:
    """One call of each operator."""
    return calls_of(1, tries=2)


def _failures(calls: list[Call], dtype: torch.dtype, to: str, *regions: str | None) -> list[Verdict]:
    judged = [Judge(call, dtype, to).judge(region, planned) for call in calls for region in regions]
    return [verdict for verdict in judged if verdict is not None and verdict.failure is not None]


def test_every_core_operator_is_called(calls: list[Call]) -> None:
    assert {str(call.func) for call in calls} | LEFT_OUT.keys() == core_operators().keys() | LEFT_OUT.keys()


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_operators_in_fp32_answer_as_they_may(calls: list[Call], step: int) -> None:
    assert _failures(calls[::step], torch.float32, "bf16", None, "low", "keep") == []


def test_operators_forced_into_fp16_answer_as_they_may(calls: list[Call]) -> None:
    assert _failures(calls[1::6], torch.float32, "fp16", "low") == []


def test_operators_that_the_program_runs_low_are_left_so(calls: list[Call]) -> None:
    assert _failures(calls[2::12], torch.bfloat16, "bf16", None, "keep") == []


def test_forced_operators_run_low(calls: list[Call]) -> None:
    """That the laws above judge something: answers differ from FP32's wherever operands are rounded."""
    names = ("aten.mm.default", "aten.exp.default", "aten._softmax.default", "aten.native_layer_norm.default")
    for call in calls:
        if str(call.func) in names:
            judge = Judge(call, torch.float32, "bf16")
            assert judge.plain is not None
            assert not torch.equal(planned(judge.call, "bf16", "bf16", False)[0], judge.plain[0]), str(call)
