"""Regions, one by one: where they may stand, what they may be put around, and what they leave alone."""

import asyncio
import copy
import inspect
import pickle
import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs mezzo[torch]")

import torch
import torch.nn.functional as functional
import torch.utils.checkpoint
from region_programs import functional_graphs_of, graphs_of
from torch import Tensor, nn
from torch._higher_order_ops import scan, while_loop
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import get_current_meta
from torch.overrides import _get_current_function_mode_stack

from mezzo.aten.marks import Mark, marks_in
from mezzo.common.errors import InputError
from mezzo.formats.dtypes import DType
from mezzo.torch import keep, precision
from mezzo.torch.compiler.regions import Region, marking

_KEPT, _FP32 = Mark(None, is_exact=True), Mark(DType.FLOAT32)
_BF16, _FP16 = Mark(DType.BFLOAT16), Mark(DType.FLOAT16)


def _x() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 4)


def _told(graph: torch.fx.GraphModule) -> list[tuple[str, Mark | None]]:
    """Operators by their names and marks, without what packs and unpacks results."""
    return [
        (str(getattr(node.target, "__name__", node.target)), mark)
        for _, node, mark in marks_in(graph)
        if node.op.startswith("call") and "getitem" not in str(node.target)
    ]


def _compiled(function: Callable[..., Any], *inputs: Tensor) -> list[list[tuple[str, Mark | None]]]:
    with torch.no_grad():
        return [_told(graph) for graph in graphs_of(function, *(inputs or (_x(),)))]


def test_region_goes_on_behind_a_graph_break() -> None:
    def function(x: Tensor) -> Tensor:
        with keep():
            x = x.sin()
            torch._dynamo.graph_break()
            with precision("bf16"):
                x = x.cos()
                torch._dynamo.graph_break()
                x = x.tan()
            x = x.exp()
        return x.abs()

    assert _compiled(function) == [
        [("sin", _KEPT)],
        [("cos", _BF16)],
        [("tan", _BF16), ("exp", _KEPT), ("abs", None)],
    ]


def test_region_around_a_compiled_function_compiles_it_once_more_for_each_word() -> None:
    graphs: list[Any] = []
    torch._dynamo.reset()
    function = torch.compile(lambda x: x.sin(), backend=lambda graph, _: (graphs.append(graph), graph)[1])
    for _ in range(3):
        function(_x())
        for region in (keep(), precision("bf16"), precision("fp16")):
            with region:
                function(_x())
        with keep(), precision("bf16"):
            function(_x())
    assert [_told(graph)[0][1] for graph in graphs] == [None, _KEPT, _BF16, _FP16, _BF16]


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        return self.linear(x).relu() * scale


def test_module_in_a_region_is_the_same_module() -> None:
    block = _Block()
    names, answer = [*block.state_dict()], block(_x())
    assert keep()(block) is block
    assert [*block.state_dict()] == names
    assert torch.equal(block(_x()), answer)
    assert str(inspect.signature(block.forward)) == "(x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor"
    assert _compiled(block) == [[("linear", _KEPT), ("relu", _KEPT), ("mul", _KEPT)]]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda block: pickle.loads(pickle.dumps(block))])
def test_copy_of_a_module_in_a_region_is_in_it_with_its_own_weights(copied: Callable[[nn.Module], nn.Module]) -> None:
    block = keep()(precision("fp16")(_Block()))
    other = copied(block)
    with torch.no_grad():
        other.linear.weight.zero_()
        other.linear.bias.zero_()
    assert not other(_x()).any() and block(_x()).any()
    assert _compiled(other) == [[("linear", _FP16), ("relu", _FP16), ("mul", _FP16)]]


def test_region_of_a_module_inside_beats_that_around_it() -> None:
    block = keep()(_Block())
    precision("bf16")(block.linear)
    assert _compiled(block) == [[("linear", _BF16), ("relu", _KEPT), ("mul", _KEPT)]]


def test_region_of_a_class_is_that_of_its_modules() -> None:
    @keep()
    class Doubling(nn.Module):
        @precision("bf16")
        def half(self, x: Tensor) -> Tensor:
            return x.sin()

        @fp16  # type: ignore[name-defined]
        @staticmethod
        def other(x: Tensor) -> Tensor:
            return x.cos()

        def forward(self, x: Tensor) -> Tensor:
            return self.other(self.half(x)) * 2

    assert _compiled(Doubling()) == [[("sin", _BF16), ("cos", _FP16), ("mul", _KEPT)]]


fp16 = precision("fp16")


def test_module_that_is_compiled_already_may_be_put_in_a_region() -> None:
    graphs: list[Any] = []
    torch._dynamo.reset()
    block = torch.compile(_Block(), backend=lambda graph, _: (graphs.append(graph), graph)[1])
    keep()(block)(_x())
    assert {mark for _, mark in _told(graphs[0])} == {_KEPT}


def test_module_in_a_region_keeps_its_path() -> None:
    model = nn.Sequential(_Block(), keep()(_Block()))
    (graph,) = graphs_of(model, _x())
    paths = [[*node.meta["nn_module_stack"].values()][-1][0] for node in graph.graph.nodes if node.target == "relu"]
    assert [path[-1:] for path in paths] == ["0", "1"]


def test_region_may_be_put_around_a_function_where_it_is_called() -> None:
    block = _Block()
    assert _compiled(lambda x: keep()(torch.sin)(x) + precision("bf16")(block.forward)(x)) == [
        [("sin", _KEPT), ("linear", _BF16), ("relu", _BF16), ("mul", _BF16), ("add", None)]
    ]


# -- control flow ---------------------------------------------------------------------------------------------------


def _sine(x: Tensor) -> Tensor:
    with precision("bf16"):
        x = x.sin()
    return x.exp()


def _cond(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, _sine, lambda x: x.cos(), (x,))


def _while(x: Tensor) -> Tensor:
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, _sine(x)), (torch.zeros((), dtype=torch.int64), x))[1]


def _scan(x: Tensor) -> Tensor:
    return scan(lambda carry, one: ((made := _sine(carry * one)), made.cos()), x, torch.stack([x, x]))[1]


def _checkpoint(x: Tensor) -> Tensor:
    return torch.utils.checkpoint.checkpoint(_sine, x, use_reentrant=False)


@pytest.mark.parametrize("called", [_cond, _while, _scan, _checkpoint])
def test_region_may_be_opened_in_a_body_alone(called: Callable[[Tensor], Tensor]) -> None:
    for told in (_compiled(called)[0], [each for graph in _functional(called) for each in _told(graph)]):
        marks = {name.partition(".")[0]: mark for name, mark in told}
        assert marks["sin"] == _BF16
        assert marks["exp"] is None


def _functional(function: Callable[[Tensor], Tensor]) -> list[Any]:
    with torch.no_grad():
        return functional_graphs_of(function, _x())[0]


@pytest.mark.parametrize("called", [_cond, _while, _scan, _checkpoint])
def test_region_in_a_body_beats_several_around_its_caller(called: Callable[[Tensor], Tensor]) -> None:
    def function(x: Tensor) -> Tensor:
        with keep(), precision("fp16"), precision("fp32"):
            return called(x)

    for told in (_compiled(function)[0], [each for graph in _functional(function) for each in _told(graph)]):
        marks = {name.partition(".")[0]: mark for name, mark in told}
        assert marks["sin"] == _BF16
        assert marks["exp"] == _FP32


@torch.compiler.nested_compile_region
def _shared(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, _sine, lambda x: x.cos(), (x,)) * 2


def test_body_that_calls_share_is_in_the_region_of_each() -> None:
    def function(x: Tensor) -> Tensor:
        with keep():
            x = _shared(x)
        x = _shared(x)
        with precision("fp32"), precision("fp16"):
            return _shared(x)

    for graph in (graphs_of(function, _x())[0], _functional(function)[0]):
        told = [(name.partition(".")[0], mark) for name, mark in _told(graph)]
        assert [mark for name, mark in told if name == "mul"] == [_KEPT, None, _FP16]
        assert [mark for name, mark in told if name == "exp"] == [_KEPT, None, _FP16]
        assert [mark for name, mark in told if name == "sin"] == [_BF16] * 3


def test_modules_of_different_regions_share_no_body() -> None:
    layers = [nn.Linear(4, 4), keep()(nn.Linear(4, 4)), precision("bf16")(nn.Linear(4, 4)), nn.Linear(4, 4)]
    called = [torch.compiler.nested_compile_region(layer) for layer in layers]

    def function(x: Tensor) -> Tensor:
        for layer in called:
            x = layer(x)
        return x

    (told,) = _compiled(function)
    assert [mark for name, mark in told if name == "linear"] == [None, _KEPT, _BF16, None]


# -- what runs while a region is open ---------------------------------------------------------------------------------


def test_region_is_left_by_an_exception() -> None:
    with pytest.raises(ValueError, match="enough"), keep(), precision("bf16"):
        raise ValueError("enough")
    assert _get_current_function_mode_stack() == []
    assert _compiled(torch.sin) == [[("sin", None)]]


def test_region_is_that_of_its_thread() -> None:
    entered, done = threading.Event(), threading.Event()

    def waiting() -> None:
        with keep():
            entered.set()
            while not done.wait(0.001):
                _x().sin()

    thread = threading.Thread(target=waiting)
    thread.start()
    try:
        assert entered.wait(10)
        assert _compiled(lambda x: x.sin().cos()) == [[("sin", None), ("cos", None)]]
        with marking():
            assert _told(make_fx(lambda x: x.sin())(_x())) == [("sin.default", None)]
    finally:
        done.set()
        thread.join()


def test_eager_code_is_left_alone() -> None:
    seen: list[object] = []

    class Looking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(dict(get_current_meta()))
            return x @ x

    x, before = _x(), dict(get_current_meta())
    with precision("bf16"), precision("fp16"):
        assert torch.equal(Looking()(x), x @ x)
        assert (x @ x).dtype is torch.float32
    assert seen == [before]


def test_generator_is_in_its_region_only_while_it_runs() -> None:
    @keep()
    def generating(x: Tensor) -> Generator[Tensor, Tensor, str]:
        assert _get_current_function_mode_stack()[-1].word == "keep"
        try:
            x = yield x.sin()
        except ValueError:
            x = x.cos()
        yield x.exp()
        return "end"

    for throws in (False, True):
        stepping = generating(_x())
        next(stepping)
        assert _get_current_function_mode_stack() == []
        made = stepping.throw(ValueError()) if throws else stepping.send(_x())
        assert torch.equal(made, (_x().cos() if throws else _x()).exp())
        with pytest.raises(StopIteration, match="end"):
            next(stepping)
    left = generating(_x())
    next(left)
    left.close()
    with marking():
        assert _told(make_fx(lambda x: next(generating(x)).cos())(_x())) == [
            ("sin.default", _KEPT),
            ("cos.default", None),
        ]


def test_coroutines_in_different_regions_take_turns() -> None:
    stacks: list[list[Any]] = []

    async def waiting(count: int) -> int:
        for _ in range(count):
            stacks.append(_get_current_function_mode_stack())
            await asyncio.sleep(0)
        return count

    async def all_of_them() -> list[int]:
        return await asyncio.gather(keep()(waiting)(1), precision("bf16")(waiting)(3), waiting(2))

    assert inspect.iscoroutinefunction(keep()(waiting))
    assert asyncio.run(all_of_them()) == [1, 3, 2]
    assert [[mode.word for mode in stack] for stack in stacks] == [["keep"], ["bf16"], [], ["bf16"], [], ["bf16"]]
    assert _get_current_function_mode_stack() == []


def test_regions_of_others_stay_as_they_are() -> None:
    class Counting(torch.overrides.TorchFunctionMode):
        count = 0

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            self.count += 1
            return func(*args, **(kwargs or {}))

    counting = Counting()
    with marking(), keep(), counting, precision("bf16"):
        graph = make_fx(lambda x: x.sin())(_x())
        count = counting.count
        assert count
    assert _told(graph) == [("sin.default", _BF16)]


# -- operators of all kinds -------------------------------------------------------------------------------------------


@torch.library.custom_op("mezzo_tests::twice", mutates_args=())
def _twice(x: Tensor) -> Tensor:
    return x * 2


_twice.register_autograd(lambda context, gradient: gradient * 2)


@_twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class _Squaring(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return gradient * context.saved_tensors[0] * 2


def test_custom_operators_and_functions_with_a_backward_are_marked() -> None:
    def function(x: Tensor) -> Tensor:
        with keep():
            return _Squaring.apply(_twice(x)).sin()

    forward, backward = functional_graphs_of(function, _x().requires_grad_())
    assert {mark for graph in (*forward, *backward) for name, mark in _told(graph)} == {_KEPT}


def test_casts_of_a_users_own_autocast_are_marked() -> None:
    def function(x: Tensor) -> Tensor:
        with keep(), torch.autocast("cpu", torch.bfloat16):
            return functional.linear(x, x)

    told = _told(_functional(function)[0])
    assert "mm.default" in dict(told) and {mark for _, mark in told} == {_KEPT}


def test_lstm_is_marked_whole() -> None:
    lstm = keep()(nn.LSTM(4, 4, batch_first=True))
    with torch.no_grad(), marking():
        exported = torch.export.export(lstm, (_x()[None],), strict=False).run_decompositions()
    told = _told(exported.graph_module)
    assert told and {mark for _, mark in told} == {_KEPT}


def test_views_by_attribute_have_no_mark_under_dynamo() -> None:
    """PyTorch asks no mode for them there. They hold the same numbers, so it decides nothing."""

    def function(x: Tensor) -> Tensor:
        with keep():
            return x.T.sin()

    assert _compiled(function) == [[("getattr", None), ("sin", _KEPT)]]


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "word"),
    [("bf16", "bf16"), ("Half", "fp16"), (torch.float32, "fp32"), (torch.bfloat16, "bf16"), (DType.FLOAT16, "fp16")],
)
def test_format_is_read_in_any_spelling_traced_or_not(given: Any, word: str) -> None:
    assert precision(given).word == word

    def function(x: Tensor) -> Tensor:
        with precision(given):
            return x.sin()

    assert _compiled(function) == [[("sin", {"bf16": _BF16, "fp16": _FP16, "fp32": _FP32}[word])]]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            "int8",
            "precision is 'int8'; int8 is what operators are quantized to, with scales from data, and no type for "
            "this; choose one of fp16, bf16, fp32",
        ),
        ("bf61", "precision is 'bf61'; did you mean 'bf16'? choose one of fp16, bf16, fp32"),
        ("auto", "precision is 'auto'; leave precision out for the usual one, or choose one of fp16, bf16, fp32"),
        ("keep", "precision is 'keep'; choose one of fp16, bf16, fp32"),
        (torch.float64, "precision is torch.float64; that is wider than FP32, and a low format is asked for; "
                        "choose one of fp16, bf16, fp32"),
        (None, "precision is None; write its name, or give a dtype; choose one of fp16, bf16, fp32"),
    ],
)  # fmt: skip
def test_what_is_no_precision_is_refused_traced_or_not(given: Any, line: str) -> None:
    def function(x: Tensor) -> Tensor:
        with precision(given):
            return x.sin()

    for run in (function, torch.compile(function, backend="eager")):
        with pytest.raises(InputError) as error:
            run(_x())
        assert str(error.value) == line


async def _each() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("target", "told"), [(3, "3"), (int, "<class 'int'>"), (_each, repr(_each))], ids=["number", "type", "generator"]
)
def test_what_no_region_is_put_around_is_refused(target: Any, told: str) -> None:
    with pytest.raises(InputError) as error:
        precision("bf16")(target)
    assert str(error.value) == (
        f'precision("bf16") is put around {told}, which is no function, method, module or class of modules; write '
        "'with precision(\"bf16\"):' inside it, around what it computes"
    )


def test_region_is_copied_and_shown_as_it_is_written() -> None:
    for region, text in ((keep(), "keep()"), (precision("bf16"), 'precision("bf16")')):
        assert repr(region) == text
        for other in (copy.deepcopy(region), pickle.loads(pickle.dumps(region))):
            assert isinstance(other, Region) and repr(other) == text
