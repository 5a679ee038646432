"""Steps of optimizers, compiled: one update reads gradients as they are, and writes weights and their low copies."""

import inspect
import types
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch.optim.optimizer import Optimizer
from torch.utils.weak import WeakTensorKeyDictionary

from mezzo.common.errors import InputError, spell_raised
from mezzo.torch.train.hidden_gradients import in_weights_format
from mezzo.torch.train.optimizer.update_graphs import Held, Steps, compile_step
from mezzo.torch.train.optimizer.update_options import Options
from mezzo.torch.weights.weights import SHADOWS

COMPILED: "WeakSet[Optimizer]" = WeakSet()
_MOST = 8  # updates that are compiled of one optimizer
_LONGEST_FAULT = 200
_OURS = frozenset({"step", "__reduce_ex__"})  # of what an optimizer holds
_SCHEDULED = "_wrapped_by_lr_sched"  # what a schedule writes on the steps of its optimizer


def compile_update(optimizer: Optimizer) -> Optimizer:
    """Compile the steps of an optimizer of PyTorch's, in place, and return it.

    One update then reads gradients, of other formats than the weights' too, and writes weights and the low copies that
    compiled graphs read of them. The first step of a weight is PyTorch's own, as it makes what the optimizer holds; so
    are all where one cannot be compiled, which is told once. Learning rates and momenta, betas too, may change at each
    step, and so may what was seen to change; each other change compiles anew, up to eight times. Copies and pickles
    have compiled steps of their own; the first step behind a state that was loaded or reset is PyTorch's.

    Raises InputError: it is no optimizer; a step calls its closure itself, or gradients are to pass through it.
    """
    _check_kind(optimizer)
    _give_steps(optimizer)
    return optimizer


def _give_steps(optimizer: Optimizer) -> None:
    """Put compiled steps in the place of an optimizer's own, and let its copies have such of theirs."""
    is_scheduled = hasattr(optimizer.step, _SCHEDULED)
    update = _Update(optimizer)

    def step(self: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            update.run()
        self._opt_called = True  # schedules that were there before look for it, and at the mark below
        return loss

    hooked = Optimizer.profile_hook_step(step)
    if is_scheduled:
        setattr(hooked, _SCHEDULED, True)
    optimizer.step = types.MethodType(hooked, optimizer)
    optimizer.__reduce_ex__ = types.MethodType(_reduce, optimizer)
    optimizer._step_supports_amp_scaling = False  # a GradScaler divides before the step
    COMPILED.add(optimizer)


def _reduce(optimizer: Optimizer, protocol: int) -> tuple[Any, ...]:
    """What copies and pickles are made of: that of the optimizer as it was. Its steps would go on to step this one."""
    kind: Any = type(optimizer)
    make, given, *rest = kind.__reduce_ex__(optimizer, protocol)
    if rest and isinstance(rest[0], dict):
        rest[0] = {name: one for name, one in rest[0].items() if name not in _OURS}
    return _made_again, (make, given), *rest


def _made_again(make: Callable[..., Optimizer], given: tuple[Any, ...]) -> Optimizer:
    made = make(*given)
    _give_steps(made)
    return made


def _check_kind(optimizer: Optimizer) -> None:
    name = type(optimizer).__name__
    if not isinstance(optimizer, Optimizer):
        raise InputError(f"{name} is no torch.optim.Optimizer; give the optimizer itself, before others wrap it")
    closure = inspect.signature(inspect.unwrap(type(optimizer).step)).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise InputError(f"steps of {name} call their closure themselves, which cannot be compiled; use it as it is")
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise InputError(f"gradients pass through steps of {name} (differentiable=True), compiled ones have none")


def check_masters(inputs: Sequence[object], names: Mapping[int, str]) -> None:
    """Hold weights that a graph trains to what masters are, FP32. `names` are those of the inputs, by place.

    Raises InputError: one of them is of fewer bits, and would be updated in these.
    """
    for place, one in enumerate(inputs):
        if not isinstance(one, torch.nn.Parameter) or not one.requires_grad or not one.is_floating_point():
            continue
        if one.dtype.itemsize < torch.float32.itemsize:
            raise InputError(
                f"option 'weight_update' is 'fp32', and weight {names[place]!r} is "
                f"{str(one.dtype).removeprefix('torch.')}; the module's own weights are the masters: keep them FP32 "
                "(model.float())"
            )


class _Update:
    """The updates of one optimizer, by what they were compiled for."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._plain = inspect.unwrap(type(optimizer).step)
        self._made: dict[Hashable, Callable[[Held], None]] = {}
        # What is held of each weight that was stepped, by which what was loaded or reset is told from it.
        self._started = WeakTensorKeyDictionary()
        self._options = Options(optimizer)
        self._is_plain = False

    def run(self) -> None:
        groups = [[one for one in group["params"] if one.grad is not None] for group in self.optimizer.param_groups]
        weights = [one for group in groups for one in group]
        held = self.optimizer.state
        is_started = all(self._started.get(one, self) is held.get(one) for one in weights)
        if self._is_plain or not weights or not is_started or not self._run(groups, weights):
            with in_weights_format(weights):
                self._plain(self.optimizer)
            self._started.update({one: held.get(one) for one in weights})
            SHADOWS.refresh(weights)

    def _run(self, groups: Sequence[Sequence[torch.Tensor]], weights: Sequence[torch.Tensor]) -> bool:
        """Step these weights. Whether that can be compiled."""
        shadows = SHADOWS.low_copies(weights)
        states = [self.optimizer.state.get(one, {}) for one in weights]
        self._options.read()
        held = Held(
            weights=[one.detach() for one in weights],
            gradients=[_gradient(one) for one in weights],
            states=[{name: one for name, one in state.items() if isinstance(one, torch.Tensor)} for state in states],
            lows=[[low for _, low in several] for several in shadows],
            rates=self._options.rates(),
        )
        made = self._made.get(self._key(held))
        if made is None:
            made = self._compile(groups, states, held)
            if made is None:
                return False
            self._made[self._key(held)] = made
        made(held)
        for weight, several in zip(weights, shadows, strict=True):
            for shadow, low in several:
                shadow.keep(weight, low)
        return True

    def _key(self, held: Held) -> Hashable:
        """What an update is compiled for."""
        lows = (low for several in held.lows for low in several)
        formats = [(one.dtype, one.size(), one.stride()) for one in (*held.weights, *held.gradients, *lows)]
        return self._options.key(), tuple(formats), tuple(map(tuple, held.states)), tuple(map(len, held.lows))

    def _compile(
        self, groups: Sequence[Sequence[torch.Tensor]], states: Sequence[Mapping[str, Any]], held: Held
    ) -> Callable[[Held], None] | None:
        """Compile one more update; None, and none ever after, if that cannot be done."""
        fault = f"its options, other than the learning rate, changed {_MOST} times"
        at = iter(range(len(held.weights)))
        numbers = [[next(at) for _ in group] for group in groups]
        constants = [
            {name: one for name, one in state.items() if name not in held.states[n]} for n, state in enumerate(states)
        ]
        for _ in self._options.widened() if len(self._made) < _MOST else ():
            held.rates = self._options.rates()
            steps = Steps(
                optimizer=self.optimizer,
                plain=self._plain,
                groups=numbers,
                constants=constants,
                options=self._options.filled,
                signs=self._options.signs(),
            )
            try:
                return compile_step(steps, held)
            except Exception as error:  # noqa: BLE001  # an optimizer is anybody's code
                fault = spell_raised(error, _LONGEST_FAULT)
        self._is_plain = True
        name = type(self.optimizer).__name__
        warnings.warn(f"steps of {name} are PyTorch's own from here on, not compiled: {fault}", stacklevel=7)
        return None


def _gradient(weight: torch.Tensor) -> torch.Tensor:
    assert weight.grad is not None, "weights without gradients are left out"
    return weight.grad
