"""Type solver: actual and legal dtypes of an operator's ports, from its schema and input types.

It needs no shapes and no shape inference. Results are cached per operator and types, so a model of
any size needs a few dozen.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

import onnx.defs

from mezzo.formats.dtypes import FLOATING, HIGH, QUANTIZED, STORED_AS, DType
from mezzo.ir.nodes import Role, Signature
from mezzo.onnx.protos.attributes import decode, find
from mezzo.onnx.schema.contrib import CONTRIB, home_of
from mezzo.onnx.schema.domains import canonical
from mezzo.onnx.schema.special import AGGREGATES, Special, special
from mezzo.onnx.schema.types import (
    UNKNOWN,
    Aggregate,
    ValueType,
    element_dtype,
    from_type_proto,
    parse_type_string,
    type_string,
    with_element,
)

_LOW = (DType.FLOAT16, DType.BFLOAT16)
# The first opset with per-axis scales in QuantizeLinear and DequantizeLinear.
_SLICES_FROM = 13
# Operators that convert between floats and integers keep their types.
_QUANTIZERS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})


class Schema(NamedTuple):
    """An operator's ports at one version: the type string of each (a variable or a concrete type),
    and the types that each variable admits (`allowed`).
    """

    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_is_variadic: bool
    output_is_variadic: bool
    allowed: dict[str, frozenset[str]]
    attributes: Mapping[str, object]  # every attribute with its default, None where it has none

    def input(self, index: int) -> str | None:
        return _port(self.inputs, self.input_is_variadic, index)

    def output(self, index: int) -> str | None:
        return _port(self.outputs, self.output_is_variadic, index)

    def admits(self, variable: str, value_type: DType | Aggregate) -> bool:
        """Whether a port with this type string admits the type."""
        text = type_string(value_type)
        return text in self.allowed[variable] if variable in self.allowed else text == variable


def _port(ports: tuple[str, ...], is_variadic: bool, index: int) -> str | None:
    if index < len(ports):
        return ports[index]
    return ports[-1] if is_variadic and ports else None


@cache
def home_of_operator(domain: str, op: str, opset: int) -> str:
    """The domain that registers an operator: ONNX Runtime's for some written in ONNX's."""
    if find_schema(domain, op, opset) is not None:
        return domain
    home = home_of(domain, op)
    return domain if home is None else home


@cache
def find_schema(domain: str, op: str, opset: int) -> Schema | None:
    """The schema of an operator at an opset, of ONNX or ONNX Runtime; None if there is none."""
    try:
        schema = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        row = CONTRIB.get((domain, op))
        if row is None:
            return None
        return Schema(
            1,
            tuple(port.rstrip("*") for port in row.inputs),
            tuple(port.rstrip("*") for port in row.outputs),
            any(port.endswith("*") for port in row.inputs[-1:]),
            any(port.endswith("*") for port in row.outputs[-1:]),
            row.allowed(),
            {},  # the schemas of contrib operators are not published
        )
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    return Schema(
        schema.since_version,
        tuple(port.type_str for port in schema.inputs),
        tuple(port.type_str for port in schema.outputs),
        bool(schema.inputs) and schema.inputs[-1].option == variadic,
        bool(schema.outputs) and schema.outputs[-1].option == variadic,
        {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints},
        {name: decode(attribute.default_value) for name, attribute in schema.attributes.items()},
    )


def schema_of(node: onnx.NodeProto, opsets: Mapping[str, int]) -> Schema | None:
    """The schema of a node under a model's or function's imports; None if there is none."""
    domain = canonical(node.domain)
    opset = opsets.get(domain, 1)
    return find_schema(home_of_operator(domain, node.op_type, opset), node.op_type, opset)


@cache
def can_convert(low: DType, opset: int | None) -> bool:
    """Whether an opset (None: none imported) can convert FP32 to a low dtype and back."""
    if low in QUANTIZED:
        return opset is not None and low in quantized_formats(opset)
    schema = None if opset is None else find_schema("", "Cast", opset)
    return schema is not None and schema.admits("T2", low) and schema.admits("T1", low)


@cache
def quantized_formats(opset: int) -> frozenset[DType]:
    """The output formats of QuantizeLinear with per-axis scales at an opset."""
    schema = find_schema("", "QuantizeLinear", opset)
    if schema is None or opset < _SLICES_FROM:
        return frozenset()
    output_type = schema.outputs[0]
    return frozenset(
        dtype
        for dtype, stored in STORED_AS.items()
        if all(schema.admits(output_type, storage) for storage in stored)
    )


def quantized_since(dtype: DType) -> int:
    """The first opset at which QuantizeLinear supports a quantized format."""
    return next(
        opset
        for opset in range(_SLICES_FROM, onnx.defs.onnx_opset_version() + 1)
        if dtype in quantized_formats(opset)
    )


class Solved(NamedTuple):
    """A node's signature and the types of its outputs."""

    signature: Signature
    outputs: tuple[ValueType, ...]


@lru_cache(maxsize=65_536)
def solve(
    domain: str,
    op: str,
    opset: int,
    inputs: tuple[ValueType, ...],
    outputs: int,
    attribute_dtype: DType | None,
) -> Solved:
    """Derive a node's types. `attribute_dtype` is that of its dtype attribute, if any."""
    schema = find_schema(domain, op, opset)
    if schema is None:
        return Solved(custom_signature(domain, op, inputs, (UNKNOWN,) * outputs), (None,) * outputs)
    row = special(domain, op)
    bound = _bind(schema, inputs)
    types = tuple(
        _output_type(schema, row, (domain, op), bound, inputs, i, attribute_dtype)
        for i in range(outputs)
    )
    for index, value_type in enumerate(types):
        variable = schema.output(index)
        if value_type is not None and variable is not None and index not in row.fixed_outputs:
            bound.setdefault(variable, value_type)
    signature = _signature(domain, op, schema, row, bound, inputs, types)
    # A quantized operator keeps its float types, and has dequantized operands (Q/DQ format).
    if signature.dtype is HIGH and not domain and op not in _QUANTIZERS:
        signature = replace(signature, legal=signature.legal | quantized_formats(opset))
    return Solved(signature, types)


@lru_cache(maxsize=4096)
def custom_signature(
    domain: str, op: str, inputs: tuple[ValueType, ...], outputs: tuple[ValueType, ...]
) -> Signature:
    """The signature of an operator without schema, from the types of its ports.

    Its FP32 tensors form one dtype group, which may change to FP16 or BF16 if all types are known.
    If it has none, its low-precision tensors form the group.
    """
    dtype = next(
        (value_type for value_type in (HIGH, *_LOW) if value_type in (*inputs, *outputs)), None
    )
    is_known = UNKNOWN not in (*inputs, *outputs)

    def roles(ports: tuple[ValueType, ...]) -> tuple[Role, ...]:
        return tuple(Role.GROUP if kind is dtype is not None else Role.FIXED for kind in ports)

    return Signature(
        dialect=domain or "onnx",
        op=op,
        version=0,
        inputs=roles(inputs),
        outputs=roles(outputs),
        dtype=dtype,
        legal=frozenset({dtype, *(_LOW if is_known and dtype is HIGH else ())} - {None}),
        is_custom=True,
    )


def _bind(schema: Schema, inputs: tuple[ValueType, ...]) -> dict[str, DType | Aggregate]:
    bound: dict[str, DType | Aggregate] = {}
    for index, value_type in enumerate(inputs):
        variable = schema.input(index)
        if value_type is not None and value_type is not UNKNOWN and variable in schema.allowed:
            bound.setdefault(variable, value_type)
    return bound


def _output_type(
    schema: Schema,
    row: Special,
    key: tuple[str, str],
    bound: dict[str, DType | Aggregate],
    inputs: tuple[ValueType, ...],
    index: int,
    attribute_dtype: DType | None,
) -> ValueType:
    variable = schema.output(index)
    if variable is None:
        return None
    if variable not in schema.allowed:
        return parse_type_string(variable)
    if key in AGGREGATES:
        element = element_dtype(inputs[0]) if inputs else attribute_dtype or row.absent
        return _aggregate(AGGREGATES[key], inputs[0] if inputs else None, element)
    if row.dtype_attribute is not None and (
        index in row.fixed_outputs or (not row.fixed_outputs and index == 0)
    ):
        if attribute_dtype is not None:
            return attribute_dtype
        if variable in bound:
            return bound[variable]
        if row.absent is not None:
            return row.absent
        # DequantizeLinear returns its scale's type, *Like operators their input's.
        source = 1 if key == ("", "DequantizeLinear") else 0
        return inputs[source] if source < len(inputs) else None
    if variable in bound:
        return bound[variable]
    if row.unbound_like_first and inputs:
        return inputs[0]
    only = schema.allowed[variable]
    return parse_type_string(next(iter(only))) if len(only) == 1 else None


def _aggregate(shape: str, source: ValueType, element: DType | None) -> ValueType:
    if element is None:
        return None
    if shape == "tensor":
        return element
    if shape == "same":
        return source
    if shape == "unwrap":
        if not isinstance(source, Aggregate) or not source.shape.startswith("optional("):
            return source
        inner = source.shape.removeprefix("optional(").removesuffix(")")
        return element if inner == "tensor({})" else Aggregate(inner, element)
    inner = source.shape if isinstance(source, Aggregate) else "tensor({})"
    return Aggregate(f"{shape}({inner})", element)


def _signature(
    domain: str,
    op: str,
    schema: Schema,
    row: Special,
    bound: dict[str, DType | Aggregate],
    inputs: tuple[ValueType, ...],
    outputs: tuple[ValueType, ...],
) -> Signature:
    dtype = _group_dtype(schema, row, bound)
    holding = {
        v for v, value_type in bound.items() if element_dtype(value_type) is dtype is not None
    }
    if row.group is None:
        # A variable that admits no low float (such as statistics) keeps its type if others admit
        # one.
        group = {
            v for v in holding if any(schema.admits(v, with_element(bound[v], low)) for low in _LOW)
        } or holding
    else:
        group = {v for v in holding if v in row.group}

    def role(variable: str | None, value_type: ValueType) -> Role:
        is_grouped = element_dtype(value_type) is dtype and variable in group
        return Role.GROUP if is_grouped else Role.FIXED

    input_roles = [role(schema.input(i), value_type) for i, value_type in enumerate(inputs)]
    output_roles = [role(schema.output(i), value_type) for i, value_type in enumerate(outputs)]
    for index in row.any_inputs:
        variable = schema.input(index)
        if index < len(inputs) and variable and all(schema.admits(variable, low) for low in _LOW):
            input_roles[index] = Role.ANY
    for index in row.fixed_outputs:
        if index < len(outputs):
            output_roles[index] = Role.FIXED
    if Role.GROUP not in input_roles and Role.GROUP not in output_roles:
        dtype = None
    legal = frozenset(() if dtype is None else (dtype,))
    if dtype is not None and row.is_retypable and UNKNOWN not in inputs:
        legal |= {
            low for low in _LOW if all(schema.admits(v, with_element(bound[v], low)) for v in group)
        }
    return Signature(
        dialect=domain or "onnx",
        op=op,
        version=schema.version,
        inputs=tuple(input_roles),
        outputs=tuple(output_roles),
        dtype=dtype,
        legal=legal,
        attributes=schema.attributes,
    )


def _group_dtype(schema: Schema, row: Special, bound: dict[str, DType | Aggregate]) -> DType | None:
    """The floating dtype of the compute group's first variable with one, in the order of ports."""
    for variable in (*schema.inputs, *schema.outputs):
        if variable in bound and (row.group is None or variable in row.group):
            dtype = element_dtype(bound[variable])
            if dtype in FLOATING:
                return dtype
    return None


def first_legal_opset(
    domain: str,
    op: str,
    since: int,
    until: int,
    inputs: tuple[ValueType, ...],
    outputs: int,
    attribute_dtype: DType | None,
    low: DType,
) -> int | None:
    """The smallest opset in [since, until] at which the compute group admits `low`, or None."""
    for opset in range(since, until + 1):
        if low in solve(domain, op, opset, inputs, outputs, attribute_dtype).signature.legal:
            return opset
    return None


def stated_type(proto: onnx.NodeProto) -> ValueType:
    """The type in an empty Optional's attribute."""
    if proto.op_type != "Optional" or len(proto.input):
        return None
    attribute = find(proto, "type")
    inner = None if attribute is None else from_type_proto(attribute.tp)
    if inner is None:
        return None
    shape = inner.shape if isinstance(inner, Aggregate) else "tensor({})"
    return Aggregate(f"optional({shape})", element_dtype(inner))


@cache
def frozen(signature: Signature) -> Signature:
    """The signature without a dtype group: FP64 or the other 16-bit type is not planned."""
    return replace(
        signature,
        inputs=(Role.FIXED,) * len(signature.inputs),
        outputs=(Role.FIXED,) * len(signature.outputs),
        dtype=None,
        legal=frozenset(),
    )
