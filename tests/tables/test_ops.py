"""The tables of operator facts: complete, sorted, sourced, and free of any front end."""

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import ModuleType

import onnx.defs
import pytest

import mezzo.tables.ops
from mezzo.tables import oplists
from mezzo.tables.facts import HEAVY, Cost, Function, OpFacts, Risk, Transfer
from mezzo.tables.ops import dialects, op_facts

# The default domain's dialect has a name of its own; every other dialect is its domain.
DIALECT_OF_DOMAIN = {"": "onnx"}

# Compiled code of one device: retyping what surrounds it would break it, so unlisted (deny) is right.
OPAQUE = {"EPContext", "Snpe"}

# Registered in the default domain by ONNX Runtime alone.
RUNTIME_ONLY = {
    "Affine",
    "Crop",
    "DisentangledAttention_TRT",
    "DynamicSlice",
    "EfficientNMS_TRT",
    "GRUUnit",
    "GivenTensorFill",
    "ImageScaler",
    "MemcpyFromHost",
    "MemcpyToHost",
    "MultilevelCropAndResize_TRT",
    "ParametricSoftplus",
    "PyramidROIAlign_TRT",
    "Scale",
    "ScaledTanh",
    "SimplifiedLayerNormalization",
}


def tables() -> Iterator[ModuleType]:
    """Import every table, in name order."""
    for package in pkgutil.iter_modules(mezzo.tables.ops.__path__, "mezzo.tables.ops."):
        for entry in pkgutil.iter_modules(importlib.import_module(package.name).__path__, f"{package.name}."):
            yield importlib.import_module(entry.name)


def schema_names(domain: str) -> set[str]:
    """List every operator that ever had a schema in a domain, deprecated ones included."""
    return {schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == domain}


def all_rows() -> list[tuple[str, OpFacts]]:
    return [(dialect, row) for dialect in dialects() for row in op_facts(dialect).values()]


def ops_where(dialect: str, **wanted: object) -> set[str]:
    """Select the operators of a dialect whose row has the wanted fields."""
    rows = op_facts(dialect).values()
    return {row.op for row in rows if all(getattr(row, field) == value for field, value in wanted.items())}


def test_every_onnx_domain_has_exactly_its_operators() -> None:
    domains = {schema.domain for schema in onnx.defs.get_all_schemas_with_history()}
    found = {domain: set(op_facts(DIALECT_OF_DOMAIN.get(domain, domain))) for domain in domains}
    found[""] -= RUNTIME_ONLY
    assert found == {domain: schema_names(domain) for domain in domains}


def test_every_contributed_operator_of_onnxruntime_has_a_row() -> None:
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state", reason="onnxruntime is not installed")
    names = {schema.name for schema in state.get_all_operator_schema() if schema.domain == "com.microsoft"}
    assert names - set(op_facts("com.microsoft")) == OPAQUE


@pytest.mark.parametrize("table", list(tables()), ids=lambda table: table.__name__)
def test_table_is_sorted_and_has_a_source(table: ModuleType) -> None:
    for names in ([row.op for row in table.FACTS], list(equivalents(table))):
        assert names == sorted(set(names))
    assert table.__doc__
    assert table.SOURCE


def test_no_operator_is_in_two_tables() -> None:
    for dialect in dialects():
        package = f"mezzo.tables.ops.{dialect.replace('.', '_')}."
        of_dialect = [table for table in tables() if table.__name__.startswith(package)]
        names = [name for table in of_dialect for name in (*equivalents(table), *(row.op for row in table.FACTS))]
        assert sorted(names) == list(op_facts(dialect))


def equivalents(table: ModuleType) -> Mapping[str, str]:
    """The operators of a table that have all facts of an ONNX operator, with that one."""
    names: Mapping[str, str] = getattr(table, "EQUIVALENTS", {})
    return names


def test_row_that_repeats_an_onnx_operator_is_written_as_its_equivalent() -> None:
    rows = op_facts("onnx")
    repeated = [
        row.op
        for table in tables()
        for row in table.FACTS
        if row.like in rows and replace(rows[row.like], op=row.op, like=row.like, source="") == row
    ]
    assert not repeated


def test_joined_rows_have_a_source_and_their_own_key() -> None:
    assert all(row.source for _, row in all_rows())
    assert all(key == row.op for dialect in dialects() for key, row in op_facts(dialect).items())


def test_unknown_dialect_has_no_facts() -> None:
    assert not op_facts("com.example.unknown")


def test_a_second_row_of_an_operator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = importlib.import_module("mezzo.tables.ops.onnx.linear")
    pointwise = importlib.import_module("mezzo.tables.ops.onnx.pointwise")
    monkeypatch.setattr(pointwise, "FACTS", (*pointwise.FACTS, linear.FACTS[0]))
    mezzo.tables.ops._join_tables.cache_clear()
    with pytest.raises(AssertionError, match=r"'CausalConvWithState' has two rows: in \S*linear and in \S*pointwise"):
        op_facts("onnx")


def test_tables_load_no_front_end() -> None:
    code = (
        "import sys; from mezzo.tables.ops import dialects, op_facts; [op_facts(d) for d in dialects()]; "
        "print({'onnx', 'onnx_ir', 'onnxruntime', 'torch', 'numpy'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_value_keeping_excludes_arithmetic_risks() -> None:
    """An operator that keeps values makes no new ones, so no risk of growth or rounding can be its own."""
    own = {Risk.STEP, Risk.POSITION, Risk.QUANTIZED}
    assert [(dialect, row.op) for dialect, row in all_rows() if row.keeps_values and row.risks - own] == []


def test_growth_risks_exclude_a_bound_outside_normalization() -> None:
    growing = {Risk.EXPONENTIAL, Risk.POWER, Risk.RECIPROCAL, Risk.SUM, Risk.PRODUCT}
    assert [(dialect, row.op) for dialect, row in all_rows() if row.is_bounded and row.risks & growing] == []


def test_each_function_has_one_cost_and_the_arithmetic_ones_exist_in_onnx() -> None:
    absent = {Function.RSQRT, Function.SQUARE, Function.VARIANCE}  # ONNX writes them with other operators
    assert {row.function for row in op_facts("onnx").values()} == set(Function) - absent
    for function in set(Function) - {Function.NONE}:
        assert len({row.cost for _, row in all_rows() if row.function is function}) <= 1, function


def test_a_function_has_the_laws_that_it_has_in_onnx() -> None:
    """What rules take for one arithmetic is estimated as one, whatever it is called."""
    laws: dict[Function, set[Transfer | None]] = {}
    for row in op_facts("onnx").values():
        laws.setdefault(row.function, {None}).add(row.transfer)  # None: a variant that no law follows
    laws |= {
        Function.RSQRT: {Transfer.RECIPROCAL_ROOT},
        Function.SQUARE: {Transfer.SQUARE},
        Function.VARIANCE: {Transfer.VARIANCE},
    }
    strangers = [
        (dialect, row.op)
        for dialect in ("aten", "prims")
        for row in op_facts(dialect).values()
        if row.function is not Function.NONE and row.transfer not in laws[row.function]
    ]
    assert strangers == []


# Special functions, complex numbers, statistics of many variables: no list of operators speaks of anything like them.
UNLIKE_ANY = {
    "aten": {
        "complex", "corrcoef", "cov", "digamma", "erfinv", "i0", "igamma", "igammac", "lgamma", "mvlgamma", "polar",
        "polygamma", "special_digamma", "special_erfcx", "special_erfinv", "special_gammainc", "special_gammaincc",
        "special_gammaln", "special_i0", "special_i0e", "special_i1", "special_i1e", "special_multigammaln",
        "special_ndtri", "special_polygamma", "special_psi", "special_zeta",
    },
    "higher_order": set(),
    "prims": {
        "bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e", "bessel_j0", "bessel_j1", "digamma", "erf_inv", "erfcx",
        "igamma", "igammac", "lgamma", "ndtri", "spherical_bessel_j0", "zeta",
    },
}  # fmt: skip


def test_operators_of_pytorch_are_like_one_of_onnx_that_every_list_has() -> None:
    assert {dialect: ops_where(dialect, like=None) for dialect in UNLIKE_ANY} == UNLIKE_ANY
    others = [dialect for dialect in dialects() if dialect not in UNLIKE_ANY]
    assert [(dialect, row.op) for dialect in others for row in op_facts(dialect).values() if row.like is not None] == []
    named = {row.like for dialect in UNLIKE_ANY for row in op_facts(dialect).values()} - {None}
    assert named - oplists.DOMAIN == set()


def test_what_multiplies_is_like_what_multiplies() -> None:
    onnx_rows = op_facts("onnx")
    strangers = [
        (dialect, row.op, row.like)
        for dialect in UNLIKE_ANY
        for row in op_facts(dialect).values()
        if row.like is not None and (row.cost in HEAVY) != (onnx_rows[row.like].cost in HEAVY)
    ]
    assert strangers == []


def test_linear_operators_of_onnx() -> None:
    assert ops_where("onnx", cost=Cost.LINEAR) == {
        "CausalConvWithState",
        "Conv",
        "ConvTranspose",
        "DeformConv",
        "Einsum",
        "Gemm",
        "MatMul",
    }


def test_softmax_risk_of_onnx() -> None:
    rows = op_facts("onnx").values()
    assert {row.op for row in rows if Risk.SOFTMAX in row.risks} == {
        "LogSoftmax",
        "ReduceLogSumExp",
        "Softmax",
        "SoftmaxCrossEntropyLoss",
    }


def test_operators_that_run_a_body_cost_nothing_themselves() -> None:
    bodies = {
        schema.name
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.domain == ""
        and any(attribute.type == onnx.defs.OpSchema.AttrType.GRAPH for attribute in schema.attributes.values())
    }
    assert ops_where("onnx", cost=Cost.CONTROL) == bodies
