"""Next tokens of two language models: divergence, agreement and perplexity, against direct FP64 computations."""

import math

import numpy as np
import pytest

from mezzo.numerics.measures import Mean
from mezzo.numerics.metrics import language
from mezzo.numerics.metrics.language import LanguageTallies

ROWS, TOKENS, WORDS = 5, 6, 11
RNG = np.random.default_rng(3)
IDS = RNG.integers(0, WORDS, (ROWS, TOKENS))
REFERENCE = RNG.normal(size=(ROWS, TOKENS, WORDS)).astype(np.float32) * 3
# It knows what follows, as a causal model does.
np.put_along_axis(REFERENCE[:, :-1], IDS[:, 1:, None], 6.0, axis=-1)
CANDIDATE = REFERENCE + RNG.normal(size=REFERENCE.shape).astype(np.float32)


def judge(reference, candidate, ids=IDS, tables=(WORDS,), step=2):
    tallies = LanguageTallies(tables)
    for start in range(0, len(ids), step):
        part = slice(start, start + step)
        tallies.add("logits", reference[part], candidate[part], ids[part])
    return tallies.result("logits")


def log_softmax(logits):
    exponentials = np.exp(logits.astype(np.float64))
    return np.log(exponentials / exponentials.sum(-1, keepdims=True))


def over_rows(values):
    return Mean(pytest.approx(values.mean()), pytest.approx(values.std(ddof=1) / ROWS**0.5))


@pytest.mark.parametrize("piece", [1, 2 * WORDS, 1 << 18])
def test_figures_are_those_of_a_direct_computation(monkeypatch, piece):
    monkeypatch.setattr(language, "_PIECE", piece)
    ours, theirs = log_softmax(REFERENCE), log_softmax(CANDIDATE)
    judged = judge(REFERENCE, CANDIDATE)
    assert (judged.rows, judged.tokens) == (ROWS, ROWS * TOKENS)
    assert judged.kl == over_rows((np.exp(ours) * (ours - theirs)).sum(-1).mean(-1))
    assert judged.agreement == over_rows((ours.argmax(-1) == theirs.argmax(-1)).mean(-1))
    for scores, perplexity in ((ours, judged.reference_perplexity), (theirs, judged.perplexity)):
        losses = -np.take_along_axis(scores[:, :-1], IDS[:, 1:, None], axis=-1).mean((1, 2))
        spread = math.exp(losses.mean()) * losses.std(ddof=1) / ROWS**0.5
        assert perplexity == Mean(pytest.approx(math.exp(losses.mean())), pytest.approx(spread))


def test_a_model_does_not_diverge_from_itself():
    judged = judge(REFERENCE, REFERENCE.copy())
    assert (judged.kl, judged.agreement) == (Mean(0.0, 0.0), Mean(1.0, 0.0))
    assert judged.perplexity == judged.reference_perplexity


def test_a_constant_added_to_all_logits_of_a_token_changes_nothing():
    moved = CANDIDATE.astype(np.float64) + RNG.normal(size=(ROWS, TOKENS, 1)) * 100
    judged, other = judge(REFERENCE, CANDIDATE), judge(REFERENCE, moved)
    assert other.kl.value == pytest.approx(judged.kl.value, rel=1e-9)
    assert other.perplexity.value == pytest.approx(judged.perplexity.value, rel=1e-9)


def test_a_word_that_both_rule_out_adds_nothing_and_one_that_the_candidate_rules_out_everything():
    masked, more = REFERENCE.copy(), CANDIDATE.copy()
    masked[..., 0] = more[..., 0] = -np.inf
    without = judge(masked[..., 1:], more[..., 1:], np.maximum(IDS, 1) - 1, (WORDS - 1,))
    assert judge(masked, more).kl.value == pytest.approx(without.kl.value, rel=1e-12)
    assert judge(REFERENCE, more).kl.value == math.inf
    more[0, 0] = np.nan
    assert judge(masked, more).kl.value == math.inf


def test_a_model_that_predicts_each_token_itself_has_no_perplexity():
    logits = np.zeros((ROWS, TOKENS, WORDS), np.float32)
    np.put_along_axis(logits, IDS[..., None], 9.0, axis=-1)
    judged = judge(logits, logits)
    assert (judged.perplexity, judged.reference_perplexity, judged.kl.value) == (None, None, 0.0)


def test_of_one_row_no_error_is_known():
    assert judge(REFERENCE[:1], CANDIDATE[:1], IDS[:1]).kl.standard_error is None


@pytest.mark.parametrize(
    ("output", "tables"),
    [
        (REFERENCE, (WORDS + 1,)),  # a hidden state
        (REFERENCE[:, 0], (WORDS,)),
        (REFERENCE[:, 1:], (WORDS,)),
        (REFERENCE.astype(np.int64), (WORDS,)),
        (None, (WORDS,)),
        (REFERENCE[..., :3], (3,)),  # fewer words than the text has
    ],
)
def test_outputs_that_hold_no_logits_of_the_tokens_are_not_judged(output, tables):
    tallies = LanguageTallies(tables)
    tallies.add("y", output, output, IDS)
    assert tallies.result("y") is None
