"""Inputs for low-precision weights that no operator of a planned graph reads.

Inductor of PyTorch 2.11 generates code that asserts the sizes and strides of every input that has
elements, and what is passed for an unused one is empty: so it is traced as empty too.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from mezzo.torch.torch_internals import PlainAOTInput


def with_empty_unused_inputs(inner_compile: Callable[..., Any], first: int) -> Callable[..., Any]:
    """`inner_compile` with empty examples for unused inputs from position `first` on."""

    def compile_graph(module: fx.GraphModule, examples: Sequence[Any], **options: Any) -> Any:
        examples = list(examples)
        for place, node in enumerate(module.graph.find_nodes(op="placeholder")):
            origin = node.meta.get("desc")
            is_added = isinstance(origin, PlainAOTInput) and origin.idx >= first
            if is_added and not node.users and isinstance(examples[place], torch.Tensor):
                examples[place] = examples[place].new_empty(0)
        return inner_compile(module, examples, **options)

    return compile_graph
