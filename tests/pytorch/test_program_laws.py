"""Random programs with regions in them, compiled: right answers; `benchmarks/torch_programs.py` runs hundreds."""

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

from program_laws import judge, judge_kept
from random_programs import Program

_SEEDS = (3, 6, 13, 16, 22)


@pytest.mark.parametrize("seed", _SEEDS)
def test_random_programs_err_as_autocast_does_at_most(seed: int) -> None:
    verdict = judge(seed, "bf16" if seed % 2 else "fp16")
    assert verdict.is_right, f"{verdict}\n{Program(seed).text}"


@pytest.mark.parametrize("seed", _SEEDS[:2])
def test_random_programs_in_keep_answer_as_plain_ones_bit_for_bit(seed: int) -> None:
    verdict = judge_kept(seed, "bf16")
    assert verdict is not None and verdict.is_right, f"{verdict}\n{Program(seed).text}"
