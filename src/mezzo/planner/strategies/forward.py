"""Forward colouring: one walk from inputs to outputs, as compilers' passes do it.

Green (allow) converts; gray (infer, clear) follows when all its float inputs are low already; red (deny) goes back.
Source: TVM RFC 0001, "AMP pass"; graph inputs count as FP32 here, so gray alone never starts a conversion.
"""

from collections.abc import Sequence, Set
from typing import ClassVar

from mezzo.contracts.coloring import ColouringStrategy, makers, makes_low, settle, start
from mezzo.contracts.problem import Choice, Split
from mezzo.ir.nodes import Node
from mezzo.tables.policy import Category


class Forward(ColouringStrategy):
    name: ClassVar[str] = "forward"
    summary: ClassVar[str] = "post-order colouring: allow converts, infer follows low inputs, deny goes back (TVM)"
    because: ClassVar[str] = "what infers goes with what it reads"

    def colour(self, split: Split) -> Sequence[bool]:
        asked = {split.linked[number] for number, is_low in enumerate(start(split)) if is_low}

        def walk(demoted: Set[int]) -> list[bool]:
            is_low = start(split)
            for node in split.graph.nodes:
                if split.choices[node.id] is Choice.FREE and node.id not in demoted:
                    is_low[node.id] = split.linked[node.id] in asked or _follows(split, is_low, node)
            return is_low

        return settle(split, walk)


def _follows(split: Split, is_low: Sequence[bool], node: Node) -> bool:
    if split.categories[node.id] is Category.ALLOW:
        return True
    operands = [makes_low(split, is_low, value) for value, maker in makers(split, node) if maker is not None]
    return bool(operands) and all(operands)
