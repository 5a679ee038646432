"""A metric: one score per sample, larger is better."""

from typing import Any


def accuracy(outputs: dict[str, Any], labels: dict[str, Any]) -> Any:
    """1 where the largest output is the label's class, else 0."""
    (logits,), (classes,) = outputs.values(), labels.values()
    return (logits.argmax(-1) == classes.reshape(-1)).astype(float)
