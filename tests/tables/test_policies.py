"""The presets: every operator of ONNX has a category in each, and each converts the demo model rightly."""

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.defs
import pytest
from random_models import random_model
from sweeps import swept

import mezzo
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.ir.selectors import Tier
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.session import Engine, native_session
from mezzo.onnx.schema.contrib import CONTRIB
from mezzo.plugins.discovery import policies
from mezzo.tables import oplists
from mezzo.tables.files.policyfile import check_lists
from mezzo.tables.ops import op_facts
from mezzo.tables.policy import Category, Policy, Rule

_DIGITS = Path(__file__).parents[2] / "examples" / "digits"
# What rounding after every operator may cost on the demo model, as a share of the largest logit. Measured: 0.1 % and
# 0.8 %; these are the bounds by which conversions are judged everywhere.
_TOLERANCES = {"fp16": 0.02, "bf16": 0.06}
# The presets that name operators, and the strategy of the system whose lists they are.
_LISTS = {
    "autocast": "forward",
    "graphamp-aggressive": "upstream",
    "graphamp-balanced": "upstream",
    "graphamp-conservative": "upstream",
    "mxnet": "lists",
    "paddle": "fixpoint",
    "tensorflow": "paint",
    "tvm": "forward",
}
_NESTED = ("graphamp-conservative", "graphamp-balanced", "graphamp-aggressive")
_ORDER = (Category.DENY, Category.CLEAR, Category.INFER, Category.ALLOW)

EVERY_POLICY = pytest.mark.parametrize("policy", list(policies().values()), ids=list(policies()))
EVERY_LIST = pytest.mark.parametrize("policy", [policies()[name] for name in _LISTS], ids=list(_LISTS))
EVERY_FORMAT = pytest.mark.parametrize("to", list(LOW_DTYPES))


@cache
def schema_names() -> frozenset[str]:
    """Every operator of the default domain at the newest opset, functions and sequences included."""
    return frozenset(schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == "")


def lists_of(policy: Policy, op: str, low: DType) -> list[Rule]:
    """The lists of a policy that hold an operator of the default domain, for a format."""
    return [rule for rule in policy.rules if rule.tier is Tier.TYPE and rule.fires(("onnx", op), None, low)]


def category(policy: str, op: str, low: DType) -> Category:
    return policies()[policy].judge(("onnx", op), op_facts("onnx").get(op), low).category


def unreviewed(policy: Policy, low: DType) -> Iterator[str]:
    """Operators without a category of their own. Where a preset names operators, each has to stand in a list of it. One
    that speaks of facts may leave operators to what it does otherwise, if their facts are known.
    """
    names_operators = any(rule.ops for rule in policy.rules)
    for op in sorted(schema_names()):
        verdict = policy.judge(("onnx", op), op_facts("onnx").get(op), low)
        if verdict.rule == "unlisted" or (names_operators and not lists_of(policy, op, low)):
            yield op


def families() -> dict[str, frozenset[str]]:
    """The families of the default domain, by name."""
    found = {name: held for name, held in vars(oplists).items() if isinstance(held, frozenset)}
    return {name: held for name, held in found.items() if name != "DOMAIN" and not any(":" in op for op in held)}


def test_families_part_the_default_domain() -> None:
    counts = Counter(op for family in families().values() for op in family)
    assert [op for op, count in counts.items() if count > 1] == []
    runtime_only = {op for domain, op in CONTRIB if domain == ""} - schema_names()
    assert counts.keys() - runtime_only == schema_names()
    assert counts.keys() == oplists.DOMAIN


@EVERY_FORMAT
@EVERY_POLICY
def test_no_operator_is_unreviewed(policy: Policy, to: str) -> None:
    assert list(unreviewed(policy, LOW_DTYPES[to])) == []


@EVERY_FORMAT
@EVERY_LIST
def test_each_operator_stands_in_one_list(policy: Policy, to: str) -> None:
    held = {op: [rule.name for rule in lists_of(policy, op, LOW_DTYPES[to])] for op in schema_names()}
    assert {op: names for op, names in held.items() if len(names) != 1} == {}
    check_lists(policy.name, policy.rules)


@EVERY_POLICY
def test_every_listed_operator_exists(policy: Policy) -> None:
    known = {f"{domain}:{op}" if domain else op for domain, op in CONTRIB} | schema_names()
    listed = frozenset().union(*(rule.ops for rule in policy.rules))
    # PyTorch's operators are held against PyTorch in tests/pytorch/test_autocast_lists.py: not all have facts.
    assert {op for op in listed if not op.startswith("aten:")} - known == frozenset()


@EVERY_LIST
def test_lists_of_a_system_add_nothing_of_ours(policy: Policy) -> None:
    """No structure rule and no promotion of untroubled regions: only what the lists say."""
    assert policy.findings == frozenset()
    assert not policy.promotes_untroubled
    assert not any(rule.costs or rule.risks for rule in policy.rules)


A, I, C, D = Category.ALLOW, Category.INFER, Category.CLEAR, Category.DENY  # noqa: E741  letters of the table below
_Pair = tuple[Category, Category]


# Per operator: MXNet, TVM, TensorFlow and Paddle, each in FP16 and in BF16. Sources stand in the files of the presets.
@pytest.mark.parametrize(
    ("op", "mxnet", "tvm", "tensorflow", "paddle"),
    [
        ("Add", (I, I), (I, I), (I, I), (A, A)),
        ("Attention", (D, A), (A, A), (A, D), (A, A)),
        ("AveragePool", (C, C), (I, I), (I, I), (A, A)),
        ("BatchNormalization", (C, C), (I, I), (I, I), (A, A)),
        ("Concat", (I, I), (I, I), (C, C), (A, A)),
        ("Conv", (A, A), (A, A), (A, A), (A, A)),
        ("ConvTranspose", (A, A), (A, A), (A, A), (D, D)),
        ("Cos", (C, D), (I, I), (D, D), (A, A)),
        ("Det", (D, D), (I, I), (D, D), (A, D)),
        ("Einsum", (A, D), (I, I), (A, A), (A, A)),
        ("Elu", (D, C), (D, D), (I, I), (A, A)),
        ("Erf", (C, D), (D, D), (I, I), (A, A)),
        ("Exp", (D, C), (D, D), (D, D), (D, D)),
        ("Gemm", (A, A), (A, A), (A, A), (A, A)),
        ("GlobalAveragePool", (C, C), (D, D), (D, I), (A, A)),
        ("LSTM", (A, D), (A, A), (A, D), (D, D)),
        ("LayerNormalization", (D, C), (D, D), (D, I), (A, A)),
        ("Log", (D, D), (I, I), (I, I), (D, D)),
        ("MatMul", (A, I), (A, A), (A, A), (A, A)),
        ("OneHot", (C, D), (I, I), (C, D), (C, C)),
        ("Pow", (D, D), (D, D), (D, D), (A, A)),
        ("Range", (D, D), (D, D), (D, D), (D, D)),
        ("ReduceMean", (D, C), (D, D), (D, I), (D, D)),
        ("ReduceSum", (D, C), (D, D), (D, I), (D, D)),
        ("Relu", (C, C), (I, I), (C, C), (A, A)),
        ("ScatterND", (C, D), (I, I), (D, C), (A, A)),
        ("Selu", (D, D), (D, D), (I, I), (A, A)),
        ("Softmax", (D, C), (D, D), (I, I), (A, A)),
        ("Softplus", (D, C), (D, D), (I, I), (A, A)),
        ("Sum", (I, I), (I, I), (I, I), (D, D)),
        ("TopK", (D, D), (I, I), (C, C), (A, A)),
        ("Transpose", (C, C), (I, I), (C, C), (A, A)),
        ("Where", (I, C), (I, I), (C, C), (A, A)),
    ],
)
def test_category_is_that_of_the_system(op: str, mxnet: _Pair, tvm: _Pair, tensorflow: _Pair, paddle: _Pair) -> None:
    wanted = {"mxnet": mxnet, "tvm": tvm, "tensorflow": tensorflow, "paddle": paddle}
    assert {name: tuple(category(name, op, low) for low in LOW_DTYPES.values()) for name in wanted} == wanted


@EVERY_FORMAT
def test_bolder_graphamp_preset_denies_no_more(to: str) -> None:
    ranks = [[_ORDER.index(category(name, op, LOW_DTYPES[to])) for op in sorted(schema_names())] for name in _NESTED]
    for timid, bold in pairwise(ranks):
        assert all(before <= after for before, after in zip(timid, bold, strict=True))
        assert timid != bold


@cache
def digits() -> onnx.ModelProto:
    return onnx.load(_DIGITS / "digits.onnx")


@cache
def images() -> dict[str, Any]:
    with np.load(_DIGITS / "heldout.npz", allow_pickle=False) as file:
        return {"image": file["image"][:32]}


@cache
def logits() -> np.ndarray:
    return native_session(digits(), Engine.ONNXRUNTIME).run(images())["logits"]


@EVERY_FORMAT
@pytest.mark.parametrize("own_strategy", [False, True], ids=["mincut", "own"])
@EVERY_LIST
def test_demo_model_is_valid_and_right_under_each_list(policy: Policy, to: str, own_strategy: bool) -> None:
    strategy = _LISTS[policy.name] if own_strategy else "mincut"
    result = mezzo.convert(digits(), to=to, policy=policy.name, strategy=strategy)
    assert result.summary.low_nodes > 0
    onnx.checker.check_model(result.model, full_check=True)
    got = emulated_session(result.model).run(images())["logits"]
    assert np.abs(got - logits()).max() <= _TOLERANCES[to] * np.abs(logits()).max()


def low_nodes(model: onnx.ModelProto, policy: str, to: str, strategy: str) -> set[str]:
    nodes = mezzo.convert(model, to=to, policy=policy, strategy=strategy).plan.nodes
    return {node.name for node in nodes if node.kind == "op" and node.precision.compute is LOW_DTYPES[to]}


@EVERY_FORMAT
@pytest.mark.parametrize("strategy", ["forward", "mincut", "upstream"])
def test_bolder_graphamp_preset_runs_all_low_that_a_timid_one_does(strategy: str, to: str) -> None:
    timid, middle, bold = (low_nodes(digits(), name, to, strategy) for name in _NESTED)
    assert timid <= middle < bold
    for seed in range(swept(20)):
        model = random_model(random.Random(seed), 8)
        timid, middle, bold = (low_nodes(model, name, to, strategy) for name in _NESTED)
        assert timid <= middle <= bold, f"random model of seed {seed}"


@EVERY_FORMAT
@pytest.mark.parametrize("strategy", ["mincut", *sorted(set(_LISTS.values()))])
def test_off_changes_no_byte(strategy: str, to: str) -> None:
    result = mezzo.convert(digits(), to=to, policy="off", strategy=strategy)
    assert result.model.SerializeToString(deterministic=True) == digits().SerializeToString(deterministic=True)
    assert result.summary.low_nodes == result.summary.casts == 0
