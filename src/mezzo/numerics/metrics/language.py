"""Next-token distributions of two language models on running text: Kullback-Leibler divergence,
agreement of the likeliest token, perplexity.

Standard errors are over rows of text, as tokens of a row depend on each other.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.numerics.measures import Mean, NextTokens
from mezzo.numerics.metrics.decisions import WIDEST_EMBEDDING
from mezzo.numerics.metrics.metrics import is_float

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

# Logits in FP64 at once.
_PIECE = 1 << 16


def _grown_caches(feeds: Mapping[str, Any], outputs: Mapping[str, Any]) -> frozenset[str]:
    """Outputs that have the shape of an empty input, grown along its axes of length 0: caches of
    what later tokens read.
    """
    empty = [
        feed.shape for feed in feeds.values() if isinstance(feed, np.ndarray) and not feed.size
    ]
    return frozenset(
        name
        for name, output in outputs.items()
        if any(_has_grown(shape, np.shape(output)) for shape in empty)
    )


def _has_grown(empty: Sequence[int], shape: Sequence[int]) -> bool:
    pairs = zip(empty, shape, strict=False)
    return len(empty) == len(shape) and all(length in (0, grown) for length, grown in pairs)


class LanguageTallies:
    """Compares the outputs that hold next-token logits: one number for each word of a vocabulary,
    for each token.
    """

    def __init__(self, tables: Collection[int]) -> None:
        """`tables`: the numbers of rows of the embedding tables that the model's inputs index."""
        self._tables = frozenset(tables)
        self._tallies: dict[str, LanguageTally] = {}

    def add(self, name: str, reference: Any, candidate: Any, ids: Array) -> None:
        """Add a batch of one output, if it holds logits. `ids`: its tokens, [rows, tokens]."""
        if self.are_logits(reference, ids) and np.shape(candidate) == reference.shape:
            tally = self._tallies.setdefault(name, LanguageTally())
            tally.add(reference, np.asarray(candidate), ids)

    def are_logits(self, output: object, ids: Array) -> bool:
        """Whether an output has a number for each word, for each of the tokens [rows, tokens]."""
        if not isinstance(output, np.ndarray) or output.ndim != 3 or not is_float(output):
            return False
        width = output.shape[-1]
        is_vocabulary = width in self._tables or width > WIDEST_EMBEDDING
        is_of_tokens = output.shape[:2] == ids.shape and ids.shape[1] > 1
        return is_vocabulary and is_of_tokens and bool(ids.max() < width)

    def caches(
        self, feeds: Mapping[str, Any], outputs: Mapping[str, Any], ids: Array
    ) -> frozenset[str]:
        """Outputs that are caches, which later logits are made of; empty without logits."""
        if not any(self.are_logits(output, ids) for output in outputs.values()):
            return frozenset()
        return _grown_caches(feeds, outputs)

    def result(self, name: str) -> NextTokens | None:
        """The figures of an output; None if it holds no logits."""
        tally = self._tallies.get(name)
        return None if tally is None else tally.result()


class LanguageTally:
    """Compares logits of one output, [rows, tokens, vocabulary], over batches."""

    def __init__(self) -> None:
        self._tokens = 0
        self._kl: list[float] = []
        self._agreement: list[float] = []
        # Negative log-likelihoods of the next tokens by reference and candidate, and of each
        # token itself by the reference.
        self._losses: tuple[list[float], list[float], list[float]] = ([], [], [])

    def add(self, reference: Array, candidate: Array, ids: Array) -> None:
        """Add the rows of a batch, whose tokens are `ids`, [rows, tokens]."""
        for want, found, row in zip(reference, candidate, ids, strict=True):
            self._add_row(want, found, row)

    def _add_row(self, want: Array, found: Array, row: Array) -> None:
        length = len(row)
        following = np.append(row[1:], row[-1:])  # the last token's is not in the text
        kl, agreeing = 0.0, 0
        losses = np.zeros((3, length))
        step = max(1, _PIECE // want.shape[-1])
        for start in range(0, length, step):
            part = slice(start, start + step)
            ours, theirs = _log_softmax(want[part]), _log_softmax(found[part])
            kl += _divergence(ours, theirs)
            agreeing += int(np.count_nonzero(ours.argmax(-1) == theirs.argmax(-1)))
            for loss, scores, ids in zip(
                losses, (ours, theirs, ours), (following, following, row), strict=True
            ):
                loss[part] = -np.take_along_axis(scores, ids[part, None], axis=-1)[:, 0]
        self._tokens += length
        self._kl.append(kl / length)
        self._agreement.append(agreeing / length)
        for several, loss in zip(self._losses, losses, strict=True):
            several.append(float(loss[:-1].mean()))

    def result(self) -> NextTokens:
        """The figures so far, of at least one row."""
        reference, candidate, itself = self._losses
        is_causal = _mean(itself).value > min(_mean(reference).value, math.log(2))
        return NextTokens(
            rows=len(self._kl),
            tokens=self._tokens,
            kl=_mean(self._kl),
            agreement=_mean(self._agreement),
            reference_perplexity=_perplexity(reference) if is_causal else None,
            perplexity=_perplexity(candidate) if is_causal else None,
        )


def _log_softmax(logits: Array) -> Floats:
    with np.errstate(all="ignore"):
        wide = logits.astype(np.float64)
        wide -= wide.max(-1, keepdims=True)
        wide -= np.log(np.exp(wide).sum(-1, keepdims=True))
    return wide


def _divergence(ours: Floats, theirs: Floats) -> float:
    """The divergences of several tokens, summed; infinite where a number is NaN."""
    with np.errstate(all="ignore"):
        shares = np.exp(ours)
        terms = np.where(shares == 0.0, 0.0, shares * (ours - theirs))
        divergence = float(terms.sum())
    return math.inf if math.isnan(divergence) else max(0.0, divergence)


def _mean(values: list[float]) -> Mean:
    several = np.array(values)
    if len(several) < 2:
        return Mean(float(several[0]), None)
    with np.errstate(all="ignore"):
        return Mean(float(several.mean()), float(several.std(ddof=1) / len(several) ** 0.5))


def _perplexity(losses: list[float]) -> Mean:
    """The exponential of a mean loss, with the first-order standard error."""
    loss = _mean(losses)
    value = math.exp(min(loss.value, 700.0))
    spread = loss.standard_error
    return Mean(value, None if spread is None else value * spread)
