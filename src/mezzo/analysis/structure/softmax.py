"""Decomposed softmax and log-sum-exp."""

from collections.abc import Iterable

from mezzo.analysis.structure import Detection, StructureRule, StructureView
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Function
from mezzo.tables.policy import Lifting


def _sums(view: StructureView, exponential: Node) -> list[Node]:
    return [reader for reader in view.readers(exponential) if view.function(reader) is Function.SUM]


def softmax(view: StructureView) -> Iterable[Detection]:
    """exp(x - max(x)) / sum, with or without the maximum."""
    for exponential in view.nodes(Function.EXP):
        for total in _sums(view, exponential):
            divisions = [r for r in view.readers(total) if view.function(r) is Function.DIVIDE]
            divisions = [
                d for d in divisions if exponential in (view.producer(d, 0), view.producer(d, 1))
            ]
            if not divisions:
                continue
            group = [exponential, total, *divisions]
            shifted = view.producer(exponential, 0)
            if shifted is not None and view.function(shifted) is Function.SUBTRACT:
                group.append(shifted)
                largest = view.producer(shifted, 1)
                if largest is not None and view.function(largest) is Function.MAX:
                    group.append(largest)
            text = (
                f"part of a decomposed softmax around {exponential.name!r}: "
                "differences, exponentials and their sum stay together"
            )
            for node in group:
                yield Detection(node, text, exponential)


def log_sum_exp(view: StructureView) -> Iterable[Detection]:
    """log(sum(exp(x)))."""
    for exponential in view.nodes(Function.EXP):
        for total in _sums(view, exponential):
            for logarithm in view.readers(total):
                if view.function(logarithm) is not Function.LOG:
                    continue
                text = f"part of a decomposed log-sum-exp around {exponential.name!r}"
                for node in (exponential, total, logarithm):
                    yield Detection(node, text, exponential)


RULES = (
    StructureRule("softmax-decomposed", "softmax in small operators", softmax, Lifting.BY_RANGES),
    StructureRule("log-sum-exp", "log-sum-exp in small operators", log_sum_exp, Lifting.BY_RANGES),
)
