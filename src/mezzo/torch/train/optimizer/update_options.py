"""The options of an optimizer, of which some are numbers that a compiled update takes at each step."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim.optimizer import Optimizer
from torch.utils import _pytree as pytree

_RATE = "lr"
_MOMENTA = frozenset({"betas", "momentum"})  # which schedules of PyTorch's cycle with the rate


class Options:
    """The options of an optimizer's groups, flat. Those that move from step to step are numbers that an update takes;
    it is compiled for all others. Rates and momenta move, and what was seen to change, but for what was tried in vain.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._moving: frozenset[int] = frozenset()
        self._fixed: frozenset[int] = frozenset()  # no update compiled with them as numbers that it takes
        self._compiled: Sequence[Any] = ()

    def read(self) -> None:
        """Take them as they are now."""
        names = self.optimizer.defaults
        self._groups = [{name: group[name] for name in names if name in group} for group in self.optimizer.param_groups]
        self._leaves, self._spec = pytree.tree_flatten(self._groups)
        paths, _ = pytree.tree_flatten_with_path(self._groups)
        self._names = [path[1].key for path, _ in paths]
        self._rates = frozenset(at for at, name in enumerate(self._names) if name == _RATE)
        self._moving |= self._rates

    def key(self) -> Hashable:
        """All that do not move, and what code may ask of those that do."""
        fixed = tuple(None if at in self._moving else one for at, one in enumerate(self._leaves))
        return fixed, self._moving, tuple(self.signs().items())

    def signs(self) -> Mapping[int, int]:
        """Whether those that move are above 0, 0 or below, by their places among `rates`: of all but learning rates,
        which no code asks, and which may begin at 0.
        """
        numbers = {
            place: float(self._leaves[at]) for place, at in enumerate(sorted(self._moving)) if at not in self._rates
        }
        return {place: (one > 0) - (one < 0) for place, one in numbers.items()}

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
        """Let momenta move, and numbers that have changed since an update was compiled; then, if that one does not
        compile, fewer, down to the rates alone.
        """
        before, now = self._compiled, self._leaves
        self._compiled = list(now)
        floats = {at for at, one in enumerate(now) if isinstance(one, float)}
        changed = {at for at in floats if at < len(before) and before[at] != now[at] and isinstance(before[at], float)}
        held = {at for at, one in enumerate(now) if isinstance(one, torch.Tensor)}
        momenta = {at for at in floats if self._names[at] in _MOMENTA}
        usual = (self._moving | momenta | held) - self._fixed
        wider = (usual | changed) - self._fixed
        for moving, fewer in ((wider, usual), (usual, self._rates)):
            if moving > fewer:
                self._moving = moving
                yield
                self._fixed |= moving - fewer
        self._moving = self._rates
        yield
