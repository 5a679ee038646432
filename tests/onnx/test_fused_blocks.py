"""Weights in blocks whose readers are MatMulNBits and GatherBlockQuantized: against ONNX Runtime's own runs."""

import itertools
import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from random_models import random_feeds, random_model

import mezzo
from mezzo.common.errors import ContractError
from mezzo.contracts.plans import Plan
from mezzo.formats.block_storage import BlockForm, BlockStorage
from mezzo.formats.dtypes import DType

F16, F32 = DType.FLOAT16, DType.FLOAT32
FUSED = BlockStorage(bits=4, block=16, axis=0, form=BlockForm.FUSED)


def read(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    """A model from ONNX text, with these initializers before its own."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "local": 1]>\n{text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.checker.check_model(model, full_check=True)
    return model


def drawn(*shape: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def plan_with(model: onnx.ModelProto, storages: dict[str, BlockStorage], **options: str) -> Plan:
    plan = mezzo.plan(model, **{"to": "fp16", **options})
    return replace(plan, in_blocks=tuple((f"weight {name}", storage) for name, storage in storages.items()))


def stored_by(model: onnx.ModelProto, storages: dict[str, BlockStorage], **options: str) -> onnx.ModelProto:
    result = mezzo.convert(model, plan=plan_with(model, storages, **options)).model
    assert result is not None
    return result


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([port.name for port in session.get_outputs()], session.run(None, feeds), strict=True))


_ALL = """g (int64[n] i) => (float[n, 24] p, float[n, 24] g, float[n, 20] l) {
    [emb] e = Gather (W, i)
    [mm] p = MatMul (e, P)
    [relu] r = Relu (e)
    [gemm] g = Gemm (r, G, b)
    [head] l = Gemm <transB = 1> (r, W)
}"""


@pytest.mark.parametrize(
    ("bits", "block", "is_symmetric", "scales", "width"),
    [*itertools.product((4, 8), (16, 32), (True, False), (F32, F16), (64, 70)), (4, 128, False, F32, 256)],
)
def test_written_form_computes_what_its_emulation_says(
    bits: int, block: int, is_symmetric: bool, scales: DType, width: int
) -> None:
    """Both products, a table, and a table that is its own head; at widths of whole blocks, and others."""
    model = read(_ALL, W=drawn(20, width), P=drawn(width, 24), G=drawn(width, 24, seed=6), b=drawn(24))
    storage = replace(FUSED, bits=bits, block=block, is_symmetric=is_symmetric, scale_dtype=scales)
    storages = {"W": replace(storage, axis=1), "P": storage, "G": storage}
    plan = plan_with(model, storages, **({"policy": "off"} if scales is F32 else {}))
    result = mezzo.convert(model, plan=plan).model
    assert result is not None
    onnx.checker.check_model(result)
    readers = {node.name: node.op_type for node in result.graph.node if node.domain == "com.microsoft"}
    assert readers == {
        "emb": "GatherBlockQuantized", "mm": "MatMulNBits", "gemm": "MatMulNBits", "head": "MatMulNBits"
    }  # fmt: skip
    is_shared = width % block == 0
    integers = [t.name for t in result.graph.initializer if t.name.startswith("W_quantized")]
    assert integers == (["W_quantized"] if is_shared else ["W_quantized", "W_quantized_table"])
    feeds = {"i": np.array([3, -1, 0, 19, 7])}
    ran, emulated, emulated_file = run(result, feeds), mezzo.emulate(model, feeds, plan=plan), mezzo.emulate(
        result, feeds
    )  # fmt: skip
    for name, numbers in emulated.items():
        # FP32: the order of the sums alone differs, by at most half an eps for each of the products of about 1. FP16:
        # such a sum may round to the next number.
        eps, k = (2**-23, width / 2) if scales is F32 else (2**-10, 1)
        bound = k * eps * np.abs(numbers).max()
        np.testing.assert_allclose(np.float32(ran[name]), numbers, rtol=0, atol=bound)
        np.testing.assert_allclose(emulated_file[name], numbers, rtol=0, atol=bound)


def test_nodes_keep_their_names_and_what_is_between_them() -> None:
    model = read(_ALL, W=drawn(20, 64), P=drawn(64, 24), G=drawn(64, 24, seed=6), b=drawn(24))
    for node in model.graph.node:
        node.metadata_props.add(key="namespace", value=f"of {node.name}")
    storages = {"W": replace(FUSED, axis=1), "P": replace(FUSED, accuracy_level=4)}
    result = stored_by(model, storages, policy="off")
    lines = [line.strip() for line in onnx.printer.to_text(result).splitlines()]
    assert [line for line in lines if line.startswith("[")] == [
        "[W_quantized_table] W_quantized_table = Reshape (W_quantized, W_shape)",
        "[emb] e = com.microsoft.GatherBlockQuantized <gather_axis: int = 0, quantize_axis: int = 1, bits: int = 4, "
        "block_size: int = 16> (W_quantized_table, i, W_scale, W_zero_point)",
        "[mm] p = com.microsoft.MatMulNBits <K: int = 64, N: int = 24, bits: int = 4, block_size: int = 16, "
        "accuracy_level: int = 4> (e, P_quantized, P_scale, P_zero_point)",
        "[relu] r = Relu (e)",
        "[gemm] g = Gemm (r, G, b)",
        "[head] l = com.microsoft.MatMulNBits <K: int = 64, N: int = 20, bits: int = 4, block_size: int = 16, "
        "accuracy_level: int = 0> (r, W_quantized, W_scale, W_zero_point)",
    ]
    assert [node.metadata_props[0].value for node in result.graph.node] == [
        "of emb", "of emb", "of mm", "of relu", "of gemm", "of head"
    ]  # fmt: skip
    assert not {"W", "P"} & {tensor.name for tensor in result.graph.initializer}
    assert {(o.domain, o.version) for o in result.opset_import} >= {("com.microsoft", 1), ("", 17)}


_ONE = "g (float[3, 32] x) => (float[3, 8] y) {{ {} }}"


@pytest.mark.parametrize(
    ("nodes", "changes", "problem"),
    [
        ("[m] y = MatMul (x, W)", {"block": 24}, "its blocks are of 24, wanted a power of two from 16"),
        ("[m] y = MatMul (x, W)", {"block": 8}, "its blocks are of 8, wanted a power of two from 16"),
        ("[m] y = MatMul (x, W)", {"axis": 1}, "MatMul 'm' reads it, along axis 0, and its blocks are along axis 1"),
        ("[m] y = MatMul (x, W)", {"scale_dtype": F16}, "MatMul 'm' reads it, as f32, and its scales are f16"),
        ("[a] V = Abs (W) [m] y = MatMul (x, V)", {}, "Abs 'a' reads it, which is no MatMul, Gemm or Gather"),
        ("[m] y = Gemm <alpha = 2.0> (x, W)", {}, "Gemm 'm' reads it, with others than alpha=1.0, beta=1.0, transA=0"),
        ("[m] y = Gemm <beta = 2.0> (x, W)", {}, "Gemm 'm' reads it, with others than alpha=1.0, beta=1.0, transA=0"),
        ("[m] y = Gemm (x, W, b)", {}, "Gemm 'm' reads it, with a bias that is no vector of 8"),
        ("[a] V = MatMul (W, c) [m] y = MatMul (x, V)", {}, "MatMul 'a' reads it, not as operand 1 alone"),
        ("[g] V = Gather (W, i) [m] y = MatMul (x, V)", {}, "Gather 'g' reads it, and GatherBlockQuantized reads rows"),
        ("[g] V = Gather <axis = 1> (W, j) [m] y = MatMul (x, V)", {"axis": 1}, "and GatherBlockQuantized reads rows"),
        ("[m] y = MatMul (x, U)", {}, "nothing reads it"),
    ],
)  # fmt: skip
def test_what_no_such_operator_reads_is_refused_in_one_line(
    nodes: str, changes: dict[str, object], problem: str
) -> None:
    model = read(
        _ONE.format(nodes), W=drawn(32, 8), U=drawn(32, 8), b=drawn(1, 8), c=drawn(8, 8),
        i=np.arange(32), j=np.arange(8),
    )  # fmt: skip
    begin = "weight 'W' cannot be stored in blocks of form 'fused': "
    end = "; take form 'dequantize' or leave it out"
    storage = replace(FUSED, **changes)  # type: ignore[arg-type]
    with pytest.raises(ContractError, match=f"^{begin}.*{re.escape(problem)}.*{end}$"):
        stored_by(model, {"W": storage}, policy="off")


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ((2, 32, 8), "its shape is [2, 32, 8], and the operators read matrices"),
        ((32, 7), "Gather 'm' reads it, and its rows of 7 elements end in half a byte"),
    ],
)
def test_shapes_that_no_such_operator_reads_are_refused(shape: tuple[int, ...], problem: str) -> None:
    ports = helper.make_tensor_value_info("i", 7, [3]), helper.make_tensor_value_info("y", 1, [3, *shape[1:]])
    weight = numpy_helper.from_array(drawn(*shape), "W")
    graph = helper.make_graph([helper.make_node("Gather", ["W", "i"], ["y"], "m")], "g", ports[:1], ports[1:], [weight])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(ContractError, match=re.escape(problem)):
        stored_by(model, {"W": replace(FUSED, axis=1)}, policy="off")


def test_weights_of_bodies_and_functions_are_read_where_they_are() -> None:
    numbers = ", ".join(f"{number:.3f}" for number in drawn(64))
    model = read(
        """g (float[3, 32] x, bool c) => (float[3, 8] y, float[3, 8] z) {
    [if] y = If (c) <
        then_branch = a () => (float[3, 8] p) { [outer] p = MatMul (x, W) },
        else_branch = b () => (float[3, 8] q) { [own] q = Gemm (x, W) }
    >
    [call] z = local.f (x)
}
<domain: "local", opset_import: ["": 17]>
f (x) => (y) {
    v = Constant <value = float[2, 32] {NUMBERS}> ()
    [inside] s = Gemm <transB = 1> (x, v)
    [wide] y = Concat <axis = 1> (s, s, s, s)
}""".replace("NUMBERS", numbers),
        W=drawn(32, 8),
    )
    plan = mezzo.plan(model, policy="off", to="fp16")
    inside = replace(FUSED, axis=1, is_symmetric=True)
    plan = replace(plan, in_blocks=(("weight W", FUSED), ("call/weight v", inside)))
    result = mezzo.convert(model, plan=plan).model
    assert result is not None
    onnx.checker.check_model(result)
    (function,) = result.functions
    assert [node.op_type for node in function.node].count("MatMulNBits") == 1
    assert "com.microsoft" in [entry.domain for entry in function.opset_import]
    for condition in (True, False):
        feeds = {"x": drawn(3, 32), "c": np.array(condition)}
        emulated, ran = mezzo.emulate(model, feeds, plan=plan), run(result, feeds)
        for name, numbers in emulated.items():
            # Sums of 32 products of about 1 in another order: half an eps each.
            np.testing.assert_allclose(ran[name], numbers, rtol=0, atol=16 * 2**-23 * np.abs(numbers).max())


_PRODUCT = "g (float[N, {length}] x) => (float[N, 24] y) {{ [m] y = {op} (x, W) }}"


@pytest.mark.parametrize(
    ("bits", "block", "is_symmetric", "scales", "length", "rows", "op"),
    [
        (4, 32, False, F32, 256, 9, "MatMul"),
        (4, 32, True, F32, 250, 1, "MatMul"),
        (8, 128, False, F32, 256, 9, "Gemm"),
        (4, 16, True, F16, 256, 9, "MatMul"),
        (8, 32, False, F16, 250, 9, "Gemm"),
        (8, 256, True, F16, 300, 1, "Gemm"),
    ],
)
def test_activations_are_rounded_to_int8_as_the_kernel_does(
    bits: int, block: int, is_symmetric: bool, scales: DType, length: int, rows: int, op: str
) -> None:
    """At accuracy level 4: of a plan and of a file, within a tenth of what the rounding itself changes."""
    model = read(_PRODUCT.format(length=length, op=op), W=drawn(length, 24))
    exact = replace(FUSED, bits=bits, block=block, is_symmetric=is_symmetric, scale_dtype=scales)
    options = {"policy": "off"} if scales is F32 else {}
    plan = plan_with(model, {"W": replace(exact, accuracy_level=4)}, **options)
    rounded = mezzo.convert(model, plan=plan).model
    assert rounded is not None
    feeds = {"x": drawn(rows, length)}
    feeds["x"][-1, :block] = 0  # a block without a scale
    without = np.float64(run(stored_by(model, {"W": exact}, **options), feeds)["y"])
    native = np.float64(run(rounded, feeds)["y"])
    own = np.sqrt(np.mean((native - without) ** 2))
    assert own > 1e-3 * np.sqrt(np.mean(without**2)), "the kernel rounds"
    for emulated in (mezzo.emulate(model, feeds, plan=plan)["y"], mezzo.emulate(rounded, feeds)["y"]):
        assert np.sqrt(np.mean((emulated - native) ** 2)) <= 0.1 * own


def test_rows_of_a_table_are_not_rounded_to_int8() -> None:
    model = read(_ALL, W=drawn(20, 64), P=drawn(64, 24), G=drawn(64, 24, seed=6), b=drawn(24))
    plan = plan_with(model, {"W": replace(FUSED, axis=1, accuracy_level=4)}, policy="off")
    result = mezzo.convert(model, plan=plan).model
    assert result is not None
    feeds = {"i": np.arange(20)}
    ran, emulated = run(result, feeds), mezzo.emulate(model, feeds, plan=plan)
    for name, numbers in emulated.items():
        # Sums of 64 products of about 1 in another order: half an eps each.
        np.testing.assert_allclose(ran[name], numbers, rtol=0, atol=32 * 2**-23 * np.abs(numbers).max())


@pytest.mark.parametrize("opset", [9, 17, 22])
@pytest.mark.parametrize("rows", [0, 3])
def test_activations_are_rounded_at_any_opset_and_in_bodies(opset: int, rows: int) -> None:
    model = read(
        """g (float[N, 40] x, bool c) => (float[N, 24] y) {
    y = If (c) <
        then_branch = a () => (float[N, 24] p) { [m] p = MatMul (x, W) },
        else_branch = b () => (float[N, 24] q) { [n] q = Gemm (x, W, b) }
    >
}""",
        W=drawn(40, 24),
        b=drawn(24),
    )
    model.opset_import[0].version = opset
    plan = plan_with(model, {"W": replace(FUSED, accuracy_level=4)}, policy="off")
    result = mezzo.convert(model, plan=plan).model
    assert result is not None
    for condition in (True, False):
        feeds = {"x": drawn(rows, 40), "c": np.array(condition)}
        native, emulated = run(result, feeds)["y"], mezzo.emulate(model, feeds, plan=plan)["y"]
        # Sums of 40 products of about 1 in another order: half an eps each.
        atol = 20 * 2**-23 * np.abs(native).max(initial=0)
        np.testing.assert_allclose(emulated, native, rtol=0, atol=atol)


def test_random_models_compute_what_their_emulation_says() -> None:
    """Every weight of a random model that some fused storage takes, and all of them together."""
    count = 0
    for seed in range(40):
        rng = random.Random(seed)
        model = random_model(rng, 20, opset=17, is_tame=True)
        storages: dict[str, BlockStorage] = {}
        plan = plan_with(model, {})
        for tensor in model.graph.initializer:
            if tensor.data_type != onnx.TensorProto.FLOAT or len(tensor.dims) != 2 or tensor.name == "default":
                continue
            tried = [
                replace(FUSED, bits=rng.choice([4, 8]), axis=axis, is_symmetric=rng.random() < 0.5, scale_dtype=scales)
                for axis, scales in itertools.product((0, 1), (F16, F32))
            ]
            for storage in tried:
                try:
                    mezzo.convert(model, plan=replace(plan, in_blocks=((f"weight {tensor.name}", storage),)))
                except ContractError as error:
                    if "which is no MatMul, Gemm or Gather" in str(error) or "not as operand 1 alone" in str(error):
                        break  # whatever the storage
                    continue
                storages[tensor.name] = storage
                break
        count += len(storages)
        if not storages:
            continue
        plan = replace(plan, in_blocks=tuple((f"weight {name}", storage) for name, storage in storages.items()))
        result = mezzo.convert(model, plan=plan).model
        assert result is not None
        onnx.checker.check_model(result)
        feeds = random_feeds(model, rng)
        ran, emulated = mezzo.emulate(result, feeds), mezzo.emulate(model, feeds, plan=plan)
        for name, numbers in emulated.items():
            # Sums in another order may round a result to the next FP16 number: one eps of it, which operators that
            # follow pass on.
            np.testing.assert_allclose(np.float32(ran[name]), np.float32(numbers), rtol=2 * 2**-10, atol=2**-20)
    assert count > 10, "the random models have such weights"


@pytest.fixture
def converted(tmp_path: Path) -> Path:
    """A folder with a model, a plan of it as a file, and what a replay of the plan wrote."""
    model = read(_ALL, W=drawn(20, 64), P=drawn(64, 24), G=drawn(64, 24, seed=6), b=drawn(24))
    onnx.save(model, tmp_path / "m.onnx")
    storage = replace(FUSED, bits=8, scale_dtype=F16)
    plan = plan_with(model, {"W": replace(storage, axis=1), "P": storage, "G": storage})
    mezzo.save_plan(plan, tmp_path / "plan.json")
    mezzo.convert(tmp_path / "m.onnx", tmp_path / "out.onnx", plan=tmp_path / "plan.json")
    np.savez(tmp_path / "data.npz", i=np.arange(20).repeat(4))
    return tmp_path


def test_replayed_file_is_what_the_plan_in_memory_gives(converted: Path) -> None:
    plan = mezzo.load_plan(converted / "plan.json")
    expected = mezzo.convert(onnx.load(converted / "m.onnx"), plan=plan).model
    assert expected is not None
    written = onnx.load(converted / "out.onnx")
    assert written.graph.node == expected.graph.node and written.graph.initializer == expected.graph.initializer


def test_comparison_with_the_source_sees_what_rounded_activations_lose(converted: Path) -> None:
    plan = mezzo.load_plan(converted / "plan.json")
    rounded = tuple((name, replace(storage, accuracy_level=4)) for name, storage in plan.in_blocks)
    mezzo.convert(converted / "m.onnx", converted / "int8.onnx", plan=replace(plan, in_blocks=rounded))
    exact, int8 = (
        mezzo.compare(converted / "m.onnx", converted / name, data=converted / "data.npz").verdict.error.estimate
        for name in ("out.onnx", "int8.onnx")
    )
    assert int8 > 1.1 * exact


def test_plan_and_result_explain_a_product(converted: Path) -> None:
    for plan in (mezzo.load_plan(converted / "plan.json"), mezzo.plan(converted / "out.onnx", to="fp16")):
        (line,) = mezzo.explain(plan, "mm")
        assert (line.name, line.precision.compute) == ("mm", F16)


def test_result_is_read_again(converted: Path) -> None:
    shown = mezzo.show(converted / "out.onnx")
    assert "weight P_quantized: u8[24,4,16]" in shown and "accuracy_level=0" in shown
    plan = mezzo.plan(converted / "out.onnx", to="fp16")
    low = [node.name for node in plan.nodes if node.kind == "op" and node.precision.compute is F16]
    assert low == ["emb", "mm", "relu", "gemm", "head"]


def test_file_in_fp32_with_integers_is_lowered_like_any_other(converted: Path) -> None:
    """Scales of MatMulNBits follow the activations' type."""
    model = onnx.load(converted / "m.onnx")
    result = stored_by(model, {"W": replace(FUSED, axis=1), "P": FUSED}, policy="off")
    low = mezzo.convert(result, to="fp16").model
    assert low is not None
    onnx.checker.check_model(low)
    types = {tensor.name: tensor.data_type for tensor in low.graph.initializer}
    assert types["P_scale"] == types["W_scale"] == onnx.TensorProto.FLOAT16
    feeds = {"i": np.arange(20)}
    for name, numbers in run(low, feeds).items():
        # Two roundings to FP16 of results of about 1: of the embedding and of the result; and one of each scale.
        expected = run(result, feeds)[name]
        np.testing.assert_allclose(np.float32(numbers), expected, rtol=0, atol=3 * 2**-10 * np.abs(expected).max())
