"""Compiled optimizer steps, which also update the low-precision copies of weights."""

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
from mezzo.torch.train.optimizer.update_graphs import Steps, StepTensors, compile_step
from mezzo.torch.train.optimizer.update_options import OptimizerOptions
from mezzo.torch.weights.weights import SHADOWS

COMPILED: "WeakSet[Optimizer]" = WeakSet()
_MOST = 8  # compilations per optimizer
_LONGEST_FAULT = 200
_OURS = frozenset({"step", "__reduce_ex__"})  # attributes of compiled optimizers
_SCHEDULED = "_wrapped_by_lr_sched"  # set by schedulers on the step function


def compile_update(optimizer: Optimizer) -> Optimizer:
    """Compile the steps of a PyTorch optimizer, in place, and return it.

    The compiled step reads gradients of any dtype, and writes the weights and the low-precision
    copies that compiled graphs read. The first step of a weight is PyTorch's own, which creates the
    optimizer's state; so are all steps if compilation fails, with one warning. Learning rates,
    momenta and betas may change at each step, as may options that were seen to change; any other
    change recompiles, up to eight times. Copies and pickles get compiled steps of their own; the
    first step after the state was loaded or reset is PyTorch's.

    Raises InputError: it is not an optimizer, its steps call a required closure, or it is
    differentiable.
    """
    _check_kind(optimizer)
    _give_steps(optimizer)
    return optimizer


def _give_steps(optimizer: Optimizer) -> None:
    """Replace an optimizer's step by a compiled one, also in its copies."""
    is_scheduled = hasattr(optimizer.step, _SCHEDULED)
    update = _Update(optimizer)

    def step(self: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            update.run()
        self._opt_called = True  # checked by schedulers created before
        return loss

    hooked = Optimizer.profile_hook_step(step)
    if is_scheduled:
        setattr(hooked, _SCHEDULED, True)
    optimizer.step = types.MethodType(hooked, optimizer)
    optimizer.__reduce_ex__ = types.MethodType(_reduce, optimizer)
    optimizer._step_supports_amp_scaling = False  # GradScaler unscales before the step
    COMPILED.add(optimizer)


def _reduce(optimizer: Optimizer, protocol: int) -> tuple[Any, ...]:
    """The reduction of the original optimizer: a copied step would update this one's weights."""
    kind: Any = type(optimizer)
    make, args, *rest = kind.__reduce_ex__(optimizer, protocol)
    if rest and isinstance(rest[0], dict):
        rest[0] = {name: value for name, value in rest[0].items() if name not in _OURS}
    return _made_again, (make, args), *rest


def _made_again(make: Callable[..., Optimizer], args: tuple[Any, ...]) -> Optimizer:
    optimizer = make(*args)
    _give_steps(optimizer)
    return optimizer


def _check_kind(optimizer: Optimizer) -> None:
    name = type(optimizer).__name__
    if not isinstance(optimizer, Optimizer):
        raise InputError(
            f"{name} is no torch.optim.Optimizer; give the optimizer itself, before others wrap it"
        )
    closure = inspect.signature(inspect.unwrap(type(optimizer).step)).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise InputError(
            f"steps of {name} call their closure themselves, which cannot be compiled; use it as"
            " it is"
        )
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise InputError(
            f"gradients pass through steps of {name} (differentiable=True), compiled ones have none"
        )


def check_masters(inputs: Sequence[object], names: Mapping[int, str]) -> None:
    """Check that all trained weights of a graph are FP32. `names` are input names by position.

    Raises InputError: a weight has lower precision, in which it would be updated.
    """
    for position, weight in enumerate(inputs):
        if (
            not isinstance(weight, torch.nn.Parameter)
            or not weight.requires_grad
            or not weight.is_floating_point()
        ):
            continue
        if weight.dtype.itemsize < torch.float32.itemsize:
            raise InputError(
                f"option 'weight_update' is 'fp32', and weight {names[position]!r} is"
                f" {str(weight.dtype).removeprefix('torch.')}; the module's own weights are the"
                " masters: keep them FP32 (model.float())"
            )


class _Update:
    """The compiled updates of one optimizer, by cache key."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._plain = inspect.unwrap(type(optimizer).step)
        self._made: dict[Hashable, Callable[[StepTensors], None]] = {}
        # The state of each weight at its last step: another object means that it was loaded or
        # reset.
        self._started = WeakTensorKeyDictionary()
        self._options = OptimizerOptions(optimizer)
        self._is_plain = False

    def run(self) -> None:
        groups = [
            [weight for weight in group["params"] if weight.grad is not None]
            for group in self.optimizer.param_groups
        ]
        weights = [weight for group in groups for weight in group]
        state = self.optimizer.state
        is_started = all(self._started.get(weight, self) is state.get(weight) for weight in weights)
        if self._is_plain or not weights or not is_started or not self._run(groups, weights):
            with in_weights_format(weights):
                self._plain(self.optimizer)
            self._started.update({weight: state.get(weight) for weight in weights})
            SHADOWS.refresh(weights)

    def _run(
        self, groups: Sequence[Sequence[torch.Tensor]], weights: Sequence[torch.Tensor]
    ) -> bool:
        """Step these weights with a compiled update; returns False if compilation fails."""
        shadows = SHADOWS.low_copies(weights)
        states = [self.optimizer.state.get(weight, {}) for weight in weights]
        self._options.read()
        inputs = StepTensors(
            weights=[weight.detach() for weight in weights],
            gradients=[_gradient(weight) for weight in weights],
            states=[
                {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
                for state in states
            ],
            lows=[[low for _, low in copies] for copies in shadows],
            rates=self._options.rates(),
        )
        update = self._made.get(self._key(inputs))
        if update is None:
            update = self._compile(groups, states, inputs)
            if update is None:
                return False
            self._made[self._key(inputs)] = update
        update(inputs)
        for weight, copies in zip(weights, shadows, strict=True):
            for shadow, low in copies:
                shadow.keep(weight, low)
        return True

    def _key(self, inputs: StepTensors) -> Hashable:
        """The cache key of an update: options, dtypes, shapes and strides."""
        lows = (low for copies in inputs.lows for low in copies)
        formats = [
            (tensor.dtype, tensor.size(), tensor.stride())
            for tensor in (*inputs.weights, *inputs.gradients, *lows)
        ]
        return (
            self._options.key(),
            tuple(formats),
            tuple(map(tuple, inputs.states)),
            tuple(map(len, inputs.lows)),
        )

    def _compile(
        self,
        groups: Sequence[Sequence[torch.Tensor]],
        states: Sequence[Mapping[str, Any]],
        inputs: StepTensors,
    ) -> Callable[[StepTensors], None] | None:
        """Compile an update; None if that fails, which also disables compilation from then on."""
        fault = f"its options, other than the learning rate, changed {_MOST} times"
        counter = iter(range(len(inputs.weights)))
        numbers = [[next(counter) for _ in group] for group in groups]
        constants = [
            {name: value for name, value in state.items() if name not in inputs.states[index]}
            for index, state in enumerate(states)
        ]
        for _ in self._options.widened() if len(self._made) < _MOST else ():
            inputs.rates = self._options.rates()
            steps = Steps(
                optimizer=self.optimizer,
                plain=self._plain,
                groups=numbers,
                constants=constants,
                options=self._options.filled,
                signs=self._options.signs(),
            )
            try:
                return compile_step(steps, inputs)
            except Exception as error:  # noqa: BLE001  # optimizers may be third-party code
                fault = spell_raised(error, _LONGEST_FAULT)
        self._is_plain = True
        name = type(self.optimizer).__name__
        warnings.warn(
            f"steps of {name} are PyTorch's own from here on, not compiled: {fault}", stacklevel=7
        )
        return None


def _gradient(weight: torch.Tensor) -> torch.Tensor:
    assert weight.grad is not None, "weights without gradients are left out"
    return weight.grad
