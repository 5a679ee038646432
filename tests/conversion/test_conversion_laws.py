"""Laws of whole conversions of random models, for every strategy, policy and low dtype. A failure prints its case."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.inliner
import onnx.parser
import onnxruntime
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from random_models import random_feeds, random_model
from sweeps import swept

import mezzo
from mezzo.formats.dtypes import FORMATS, LOW_DTYPES
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.session import native_session
from mezzo.onnx.schema.custom_operators import with_private_domain
from mezzo.onnx.schema.value_types import TypedScope, value_types
from mezzo.plugins.discovery import policies, strategies

_BOTH = "fp16,bf16"
_LOW_NUMBERS = {_BOTH: onnx.TensorProto.FLOAT16, "fp16": onnx.TensorProto.FLOAT16, "bf16": onnx.TensorProto.BFLOAT16}


@dataclass(frozen=True)
class Case:
    """A random model and the options it is converted with."""

    seed: int
    size: int
    to: str
    policy: str
    strategy: str
    io: str = "keep"
    has_unknown: bool = False

    def build(self) -> onnx.ModelProto:
        return random_model(random.Random(self.seed), self.size, has_unknown=self.has_unknown)

    def convert(self, model: onnx.ModelProto) -> onnx.ModelProto:
        return mezzo.convert(model, to=self.to, policy=self.policy, strategy=self.strategy, io=self.io).model


def cases(*, has_unknown: bool = True, to: tuple[str, ...] = (*LOW_DTYPES, _BOTH)) -> "st.SearchStrategy[Case]":
    return st.builds(
        Case,
        seed=st.integers(0, 2**32 - 1),
        size=st.integers(1, 14),
        to=st.sampled_from(to),
        policy=st.sampled_from(sorted(policies())),
        strategy=st.sampled_from(["mincut", *strategies()]),
        io=st.sampled_from(["keep", "keep", "low"]),
        has_unknown=st.sampled_from([False, False, False, has_unknown]),
    )


def law(examples: int) -> settings:
    """The same examples on every run. A failure prints its case, and a smaller seed is no simpler one: no shrinking."""
    return settings(
        max_examples=swept(examples), derandomize=True, deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def _scopes(scope: TypedScope, graph: onnx.GraphProto) -> Iterator[tuple[TypedScope, onnx.GraphProto]]:
    yield scope, graph
    for index, node in enumerate(graph.node):
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _scopes(scope.bodies[index, attribute.name], attribute.g)


def _reads(graph: onnx.GraphProto) -> set[str]:
    """Names that a graph and its bodies read, their outputs included."""
    found = {info.name for info in graph.output}
    for node in graph.node:
        found.update(node.input)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found |= _reads(attribute.g)
    return found


@law(80)
@given(case=cases())
def test_result_is_clean_for_the_checker_and_the_source_is_unchanged(case: Case) -> None:
    model = case.build()
    before = model.SerializeToString(deterministic=True)
    result = case.convert(model)
    assert model.SerializeToString(deterministic=True) == before
    onnx.checker.check_model(with_private_domain(result) or result, full_check=True)
    names = [node.name for node in result.graph.node if node.name]
    assert len(names) == len(set(names))


@law(30)
@given(case=cases())
def test_two_runs_give_the_same_bytes(case: Case) -> None:
    results = [case.convert(case.build()).SerializeToString(deterministic=True) for _ in range(2)]
    assert results[0] == results[1]


@law(400)
@given(cases())
def test_opset_rises_only_where_a_node_that_runs_low_needs_it(case: Case) -> None:
    converted = mezzo.convert(
        case.build(), to=case.to, policy=case.policy, strategy=case.strategy, io=case.io, fuse="none"
    )
    before, after = converted.summary.opset_before, converted.summary.opset_after
    if after == before:
        return
    low = [n.op for n in converted.plan.nodes if n.kind == "op" and n.precision.compute in converted.plan.lows]
    texts = {f"tensor({'float16' if to == 'fp16' else 'bfloat16'})" for to in case.to.split(",")}

    def knows(op: str, opset: int) -> dict[tuple[str, str], bool]:
        schema = onnx.defs.get_schema(op, opset, "")
        return {
            (c.type_param_str, text): text in c.allowed_type_strs for c in schema.type_constraints for text in texts
        }

    known = {op: (knows(op, before), knows(op, after)) for op in {*low, "Cast"} if onnx.defs.has(op, before, "")}
    gained = {op for op, (old, new) in known.items() if any(new[port] and not old.get(port) for port in new)}
    assert low and gained, f"opset {before} became {after}, and {before} knows {sorted(set(low))} in {case.to}"
    smaller = [n for n in range(before, after) if all(knows(op, n) == knows(op, after) for op in known)]
    assert not smaller, f"opset {smaller[0]} suffices for {sorted(known)}"


@law(80)
@given(case=cases())
def test_second_conversion_changes_nothing(case: Case) -> None:
    once = case.convert(case.build())
    twice = case.convert(once)
    assert twice.graph == once.graph
    assert twice.functions == once.functions
    assert twice.opset_import == once.opset_import


@law(60)
@given(case=cases())
def test_interface_has_the_types_that_were_asked_for(case: Case) -> None:
    model = case.build()
    result = case.convert(model)
    low = _LOW_NUMBERS[case.to]
    for old, new in zip(
        (*model.graph.input, *model.graph.output), (*result.graph.input, *result.graph.output), strict=True
    ):
        held = old.type.tensor_type.elem_type
        is_lowered = case.io == "low" and held == onnx.TensorProto.FLOAT
        assert (new.name, new.type.tensor_type.elem_type) == (old.name, low if is_lowered else held)
        assert new.type.tensor_type.shape == old.type.tensor_type.shape


@law(60)
@given(case=cases(has_unknown=True))
def test_operators_that_nobody_defines_keep_the_types_at_their_borders(case: Case) -> None:
    result = case.convert(case.build())
    for scope, graph in _scopes(value_types(result), result.graph):
        for node in graph.node:
            if node.op_type == "Mystery":
                assert {scope.types[name] for name in (*node.input, *node.output)} == {"tensor(float)"}


@law(60)
@given(case=cases(has_unknown=False))
def test_result_has_no_idle_cast(case: Case) -> None:
    """No Cast to the type that its operand has, no low to f32 to low, and none of mezzo's own that nobody reads."""
    # A policy that asks for results in FP32 gets them, at the border of a body or a call too.
    assume(not any(rule.output for rule in policies()[case.policy].rules))
    model = case.build()
    result = case.convert(model)
    old = {name for graph in _graphs(model) for node in graph.node for name in node.output}
    has_functions = bool(result.functions)
    if has_functions:  # the judge types what is called only once it is inlined, under names of its own
        result = onnx.inliner.inline_local_functions(result)
    for scope, graph in _scopes(value_types(result), result.graph):
        read = _reads(graph)
        casts = {node.output[0]: node for node in graph.node if node.op_type == "Cast"}
        for name, node in casts.items():
            held = scope.types[node.input[0]]
            # A model's own may stay where its name is an output's.
            names_output = name in old and any(info.name == name for info in result.graph.output)
            assert names_output or scope.types[name] != held, f"{name}: {held} to itself"
            before = casts.get(node.input[0])
            if before is not None and {name, before.output[0]} <= old:
                continue  # the model's own, around a float that is none of the conversion's
            if before is not None and scope.types[name] == scope.types[before.input[0]]:
                assert scope.types[node.input[0]] != "tensor(float)", f"{name} undoes {before.output[0]}"
            assert has_functions or name in read or name in old, f"nobody reads {name}"


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    waiting = [model.graph]
    while waiting:
        graph = waiting.pop()
        yield graph
        waiting += [a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]


@law(60)
@given(case=cases(has_unknown=False, to=("fp16",)))
def test_fp16_result_loads_in_onnxruntime_where_the_source_does(case: Case) -> None:
    """Its layer-norm fusion is switched off: where the cast before a decomposed norm has other users too, ONNX Runtime
    1.31 fuses operands of two types into one operator and then refuses its own graph.
    """
    model = case.build()
    if _loads(model):
        assert _loads(case.convert(model))


def _loads(model: onnx.ModelProto) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, ["CPUExecutionProvider"], disabled_optimizers=["LayerNormFusion"]
        )
    except Exception:  # noqa: BLE001  ONNX Runtime's errors share no base of their own
        return False
    return True


@pytest.mark.parametrize("policy", ["balanced", "conservative"])
@pytest.mark.parametrize("to", [*LOW_DTYPES, _BOTH])
@law(20)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 6))
def test_answers_stay_close_in_true_rounding(to: str, policy: str, seed: int, size: int) -> None:
    """Every value is within [-1, 1] and a step of the model at most doubles the error of its operands.

    A step is one or two operators, each of which rounds once, and a weight is rounded once: a step adds at most 3 eps.
    So `size` steps stay within 3 eps (1 + 2 + ... + 2**(size - 1)), which is less than 2**size * 3 eps; one more eps
    for the input's own rounding, doubled as often.
    """
    model = random_model(random.Random(seed), size, is_tame=True)
    feeds = random_feeds(model, random.Random(seed))
    wanted = native_session(model).run(feeds)
    got = emulated_session(mezzo.convert(model, to=to, policy=policy).model).run(feeds)
    eps = max(FORMATS[LOW_DTYPES[word]].eps for word in to.split(","))
    for name, answer in wanted.items():
        assert float(np.max(np.abs(got[name] - answer))) <= 4 * 2**size * eps


def test_model_that_a_target_does_not_load_is_noted() -> None:
    """TensorRT's newest opset is 24: a newer model keeps its own, and the plan says what to do."""
    text = '<ir_version: 11, opset_import: ["": %d]> g (float[2, 2] x) => (float[2, 2] y) { y = MatMul(x, x) }'
    note = "tensorrt loads models up to opset 24, and this one is at opset 25; export it at opset 24"
    for opset, expected in ((24, []), (25, [note])):
        plan = mezzo.plan(onnx.parser.parse_model(text % opset), to="fp16", target="tensorrt")
        assert [line for line in plan.notes if "loads models" in line] == expected
