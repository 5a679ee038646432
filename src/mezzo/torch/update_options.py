"""The options of an optimizer, of which some are numbers that a compiled update takes at each step."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim.optimizer import Optimizer
from torch.utils import _pytree as pytree

_RATE = "lr"


class Options:
    """The options of an optimizer's groups, flat. Those that move from step to step are numbers that an update takes;
    it is compiled for all others.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._moving: frozenset[int] = frozenset()
        self._compiled: Sequence[Any] = ()
        self.read()

    def read(self) -> None:
        """Take them as they are now."""
        names = self.optimizer.defaults
        self._groups = [{name: group[name] for name in names if name in group} for group in self.optimizer.param_groups]
        self._leaves, self._spec = pytree.tree_flatten(self._groups)
        paths, _ = pytree.tree_flatten_with_path(self._groups)
        self._moving |= {at for at, (path, _) in enumerate(paths) if path[1].key == _RATE}

    def key(self) -> Hashable:
        """All that do not move."""
        return tuple(None if at in self._moving else one for at, one in enumerate(self._leaves)), self._moving

    def rates(self) -> list[torch.Tensor]:
        """Those that move, as FP64 numbers."""
        return [torch.as_tensor(self._leaves[at], dtype=torch.float64) for at in sorted(self._moving)]

    def filled(self, rates: Sequence[torch.Tensor]) -> Sequence[Mapping[str, Any]]:
        """The options of each group, those that move taken from `rates`."""
        leaves = list(self._leaves)
        for at, rate in zip(sorted(self._moving), rates, strict=True):
            leaves[at] = rate
        filled: Sequence[Mapping[str, Any]] = pytree.tree_unflatten(leaves, self._spec)
        return filled

    def widened(self) -> Iterator[None]:
        """Let numbers move that have changed since an update was compiled; then, if that one does not compile, none."""
        before, now = self._compiled, self._leaves
        self._compiled, moving = list(now), self._moving
        changed = {
            at
            for at, (old, new) in enumerate(zip(before, now, strict=False))
            if isinstance(new, float) and isinstance(old, float) and old != new
        }
        if changed - moving:
            self._moving = moving | changed
            yield
        self._moving = moving
        yield
