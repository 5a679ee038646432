"""Options of an optimizer, split into compile-time constants and inputs of the compiled update."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from mezzo.torch.torch_internals import pytree

_RATE = "lr"
_MOMENTA = frozenset({"betas", "momentum"})  # which PyTorch's cyclic schedulers change


class OptimizerOptions:
    """The flattened options of an optimizer's groups. Options that change between steps are inputs
    of the update; the others are compiled in. Inputs are learning rates, momenta, and options that
    were seen to change, unless compiling with them as inputs failed.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._moving: frozenset[int] = frozenset()
        self._fixed: frozenset[int] = frozenset()  # compilation with these as inputs failed
        self._compiled: Sequence[Any] = ()

    def read(self) -> None:
        """Read the current options."""
        names = self.optimizer.defaults
        self._groups = [
            {name: group[name] for name in names if name in group}
            for group in self.optimizer.param_groups
        ]
        self._leaves, self._spec = pytree.tree_flatten(self._groups)
        paths, _ = pytree.tree_flatten_with_path(self._groups)
        self._names = [path[1].key for path, _ in paths]
        self._rates = frozenset(at for at, name in enumerate(self._names) if name == _RATE)
        self._moving |= self._rates

    def key(self) -> Hashable:
        """All constant options, and the signs of the inputs."""
        fixed = tuple(
            None if index in self._moving else option for index, option in enumerate(self._leaves)
        )
        return fixed, self._moving, tuple(self.signs().items())

    def signs(self) -> Mapping[int, int]:
        """The sign of each input, by its index among `rates`. Learning rates are excluded:
        optimizers do not test them, and they may start at 0.
        """
        numbers = {
            place: float(self._leaves[at])
            for place, at in enumerate(sorted(self._moving))
            if at not in self._rates
        }
        return {place: (number > 0) - (number < 0) for place, number in numbers.items()}

    def rates(self) -> list[torch.Tensor]:
        """The inputs as FP64 tensors."""
        return [
            torch.as_tensor(self._leaves[index], dtype=torch.float64)
            for index in sorted(self._moving)
        ]

    def filled(self, rates: Sequence[torch.Tensor]) -> Sequence[Mapping[str, Any]]:
        """The options of each group, with inputs replaced by `rates`."""
        leaves = list(self._leaves)
        for index, rate in zip(sorted(self._moving), rates, strict=True):
            leaves[index] = rate
        filled: Sequence[Mapping[str, Any]] = pytree.tree_unflatten(leaves, self._spec)
        return filled

    def widened(self) -> Iterator[None]:
        """Extend the inputs by momenta and by numbers that changed since the last compilation. Each
        iteration tries fewer inputs, down to the learning rates, for when compilation fails.
        """
        old, new = self._compiled, self._leaves
        self._compiled = list(new)
        floats = {at for at, option in enumerate(new) if isinstance(option, float)}
        changed = {
            at
            for at in floats
            if at < len(old) and old[at] != new[at] and isinstance(old[at], float)
        }
        tensors = {at for at, option in enumerate(new) if isinstance(option, torch.Tensor)}
        momenta = {at for at in floats if self._names[at] in _MOMENTA}
        default = (self._moving | momenta | tensors) - self._fixed
        extended = (default | changed) - self._fixed
        for moving, fewer in ((extended, default), (default, self._rates)):
            if moving > fewer:
                self._moving = moving
                yield
                self._fixed |= moving - fewer
        self._moving = self._rates
        yield
