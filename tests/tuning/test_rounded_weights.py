"""Replay of a plan whose weights were rounded on data, without the data: from the file that is saved next to it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from sweeps import swept

import mezzo
from mezzo.cli import main
from mezzo.common.errors import InputError
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.weight_grid import WeightGrid
from mezzo.report.views.plandiff import compare_plans

_WIDTH, _HIDDEN = 256, 272
_SIDE = ".rounded.safetensors"
_TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[n,256] x) => (float[n,256] y)
{
   [up]   h = Gemm <transB = 1> (x, up, bias)
   [tanh] t = Tanh(h)
   [down] d = MatMul(t, down)
   [sum]  y = Add(x, d)
}
"""


def _model(seed: int = 0) -> onnx.ModelProto:
    """Blocks along axis 1 of one weight, and along axis 0 of the other."""
    rng, model = np.random.default_rng(seed), onnx.parser.parse_model(_TEXT)
    for name, shape in (("up", (_HIDDEN, _WIDTH)), ("bias", (_HIDDEN,)), ("down", (_HIDDEN, _WIDTH))):
        array = rng.standard_t(4, shape).astype(np.float32) / np.float32(_WIDTH**0.5)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def _data(seed: int = 0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((_WIDTH, _WIDTH)).astype(np.float32) / np.float32(_WIDTH**0.5)
    return [{"x": rng.standard_normal((96, _WIDTH)).astype(np.float32) @ mixing} for _ in range(8)]


def _tuned(model: object, result: Path | None, to: str = "int4", target: str = "onnx") -> mezzo.Converted:
    tuned = mezzo.tune(model, result, to=to, target=target, data=_data(), max_error=0.5, check=False)  # type: ignore[arg-type]
    assert "gptq" in {storage.rounding for _, storage in tuned.plan.in_blocks}
    return tuned


@pytest.mark.parametrize("is_external", [False, True])
@pytest.mark.parametrize(
    ("to", "target"),
    [
        ("int4", "onnx"), ("int4,int8w", "onnxruntime-cpu"), ("int4,fp16", "onnx"), ("int4", "tensorrt"),
        ("int4,int8", "onnxruntime-cpu"),
    ],
)  # fmt: skip
def test_replay_writes_the_same_bytes_as_the_search(to: str, target: str, is_external: bool, tmp_path: Path) -> None:
    source, plan = tmp_path / "model.onnx", tmp_path / "plan.json"
    onnx.save(_model(), source, save_as_external_data=is_external, size_threshold=0)
    names = [f"{{}}.onnx{suffix}" for suffix in ([".data", ""] if is_external else [""])]
    _tuned(source, tmp_path / "tuned.onnx", to, target).plan.save(plan)
    expected = [(tmp_path / name.format("tuned")).read_bytes().replace(b"tuned", b"again") for name in names]
    mezzo.convert(source, tmp_path / "again.onnx", plan=plan, check=False)
    assert [(tmp_path / name.format("again")).read_bytes() for name in names] == expected


def test_every_route_saves_what_replays(tmp_path: Path) -> None:
    """The plan at hand, one that is read and saved again, and one of the command line."""
    source, plan, data = tmp_path / "model.onnx", tmp_path / "plan.json", tmp_path / "data.npz"
    onnx.save(_model(), source)
    np.savez(data, x=np.concatenate([batch["x"] for batch in _data()]))
    command = f"tune {source} {tmp_path}/tuned.onnx --to int4 --target onnx --data {data} --max-error 0.5 --no-check"
    assert main([*command.split(), "--save-plan", str(plan)]) == 0
    expected = (tmp_path / "tuned.onnx").read_bytes()
    loaded = mezzo.load_plan(plan)
    mezzo.save_plan(loaded, tmp_path / "again.json")
    replayed = mezzo.convert(source, plan=tmp_path / "again.json", check=False)
    mezzo.save_plan(replayed.plan, plan)  # over the file that it was read from
    command = f"convert {source} {tmp_path}/again.onnx --plan {plan} --no-check"
    assert main(command.split()) == 0
    assert (tmp_path / "again.onnx").read_bytes() == expected
    assert mezzo.load_plan(plan) == loaded


def test_plan_at_hand_needs_no_file() -> None:
    model = _model()
    tuned = _tuned(model, None)
    assert mezzo.convert(model, plan=tuned.plan, check=False).model == tuned.model


def test_emulation_under_the_plan_has_its_weights(tmp_path: Path) -> None:
    """Sums of products in another order differ by rounding."""
    model, feeds = _model(), _data(1)[0]
    tuned = _tuned(model, None)
    tuned.plan.save(tmp_path / "plan.json")
    under_plan = mezzo.emulate(model, feeds, plan=tmp_path / "plan.json")["y"]
    np.testing.assert_allclose(under_plan, mezzo.emulate(tuned.model, feeds)["y"], rtol=0, atol=1e-5)


def test_plans_of_other_data_differ(tmp_path: Path) -> None:
    model = _model()
    plans = [
        mezzo.tune(model, to="int4", target="onnx", data=_data(seed), max_error=0.5, check=False).plan
        for seed in (0, 1)
    ]
    assert plans[0].rounded != plans[1].rounded
    differences = compare_plans(*plans).parameters
    assert [each.name for each in differences] == ["weights rounded on data"]


# -- refused ----------------------------------------------------------------------------------------------------------


def _document(plan: Path) -> dict[str, object]:
    document: dict[str, object] = json.loads(plan.read_text())
    return document


def _name(plan: Path, file: object) -> None:
    plan.write_text(json.dumps(_document(plan) | {"rounded": {"file": file, "sha256": "0" * 64}}))


def _flip(side: Path) -> None:
    content = bytearray(side.read_bytes())
    content[-1] ^= 1
    side.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda plan, side: side.unlink(), "cannot be read: No such file or directory; put it there, or run the s"),
        (lambda plan, side: side.write_bytes(b""), "cannot be read: it is empty; put it there, or run the search"),
        (lambda plan, side: (side.unlink(), side.mkdir()), "is a folder; name a file"),
        (lambda plan, side: _flip(side), "its SHA-256 differs; copy it again, or run the search again on the data"),
        (lambda plan, side: side.write_bytes(side.read_bytes()[:-9]), "its SHA-256 differs; copy it again, or run"),
        (lambda plan, side: side.write_bytes(b"no weights"), "its SHA-256 differs; copy it again, or run the search"),
        (lambda plan, side: _name(plan, "../x"), "rounded is .*, wanted file, the name of one next to the plan, and"),
        (lambda plan, side: _name(plan, "/etc/passwd"), "rounded is .*, wanted file, the name of one next to the plan"),
        (lambda plan, side: _name(plan, ".."), "rounded is .*, wanted file, the name of one next to the plan, and"),
        (lambda plan, side: _name(plan, 3), "rounded is .*, wanted file, the name of one next to the plan, and"),
    ],
)
def test_file_that_is_missing_or_another_is_refused(
    spoil: Callable[[Path, Path], object], message: str, tmp_path: Path
) -> None:
    source, plan = tmp_path / "model.onnx", tmp_path / "plan.json"
    onnx.save(_model(), source)
    _tuned(source, None).plan.save(plan)
    spoil(plan, plan.with_name(plan.name + _SIDE))
    with pytest.raises(InputError, match=message) as caught:
        mezzo.convert(source, tmp_path / "again.onnx", plan=plan)
    assert "\n" not in str(caught.value)
    command = ["convert", str(source), str(tmp_path / "again.onnx"), "--plan", str(plan), "--save-plan"]
    assert main([*command, str(tmp_path / "new.json")]) == 2
    assert not {"again.onnx", "new.json", f"new.json{_SIDE}"} & {file.name for file in tmp_path.iterdir()}


def test_plan_and_weights_are_both_written_or_none(tmp_path: Path) -> None:
    tuned = _tuned(_model(), None)
    (tmp_path / f"plan.json{_SIDE}").mkdir()
    with pytest.raises(InputError, match=r"cannot write plan .*plan\.json\.rounded\.safetensors': it is a folder"):
        tuned.plan.save(tmp_path / "plan.json")
    assert [file.name for file in tmp_path.iterdir()] == [f"plan.json{_SIDE}"]


def test_weights_of_another_training_are_not_replaced(tmp_path: Path) -> None:
    """They have the same structure, so the plan fits otherwise."""
    plan = tmp_path / "plan.json"
    _tuned(_model(), None).plan.save(plan)
    with pytest.raises(InputError, match="weight 'weight up' of the model is not the one that was rounded on data"):
        mezzo.convert(_model(seed=1), plan=plan)


def test_plan_without_the_file_says_what_to_do(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    _tuned(_model(), None).plan.save(plan)
    document = _document(plan)
    del document["rounded"]
    plan.write_text(json.dumps(document))
    with pytest.raises(InputError, match="and the plan names no file of them; save the plan of the search again"):
        mezzo.convert(_model(), plan=plan)


def test_weight_that_an_edited_plan_rounds_by_itself_needs_no_file(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    _tuned(_model(), None).plan.save(plan)
    plan.write_text(plan.read_text().replace('"gptq"', '"nearest"'))
    plan.with_name(plan.name + _SIDE).unlink()
    assert mezzo.convert(_model(), plan=plan, check=False).plan.in_blocks


def test_file_of_a_weight_is_as_large_as_its_integers_and_grid(tmp_path: Path) -> None:
    """Four bits an element; four bytes and one a block. 4096 bytes of names."""
    plan = tmp_path / "plan.json"
    tuned = _tuned(_model(), None).plan
    tuned.save(plan)
    shapes = {"weight up": (_HIDDEN, _WIDTH), "weight down": (_HIDDEN, _WIDTH)}
    blocks = sum(int(np.prod(storage.blocks_shape(shapes[name]))) for name, storage in tuned.in_blocks)
    size = plan.with_name(plan.name + _SIDE).stat().st_size
    assert _HIDDEN * _WIDTH + 5 * blocks < size < _HIDDEN * _WIDTH + 5 * blocks + 4096


@pytest.mark.parametrize("seed", range(swept(40)))
def test_elements_on_a_grid_are_unpacked_as_they_were(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(map(int, rng.integers(1, 9, rng.integers(1, 4))))
    storage = BlockStorage(
        bits=int(rng.choice([4, 8])), block=int(rng.integers(1, 6)), axis=int(rng.integers(len(shape))),
        is_symmetric=bool(rng.integers(2)),
    )  # fmt: skip
    levels, count = 1 << storage.bits, storage.blocks_shape(shape)
    scales = rng.uniform(1e-6, 10, count).astype(np.float32)
    lowest = -levels // 2 if storage.is_symmetric else 0
    zeros = rng.integers(0, levels, count).astype(np.uint8)
    integers = rng.integers(lowest, lowest + levels, shape)

    def spread(grid: np.ndarray) -> np.ndarray:
        return np.repeat(grid, storage.block, storage.axis)[tuple(map(slice, shape))]

    steps = (integers - (0 if storage.is_symmetric else spread(zeros.astype(int)))).astype(np.float32)
    elements = (steps * spread(scales)).reshape(-1)
    grid = WeightGrid(
        storage=storage, shape=shape, scales=scales, zero_points=None if storage.is_symmetric else zeros
    )  # fmt: skip
    start = 2 * int(rng.integers(0, elements.size // 2 + 1))
    packed = grid.pack(elements, 0)
    assert len(packed) == -(-elements.size * storage.bits // 8), f"seed {seed}"
    part = memoryview(packed)[start * storage.bits // 8 :]
    np.testing.assert_array_equal(grid.unpack(part, start, elements.size), elements[start:], err_msg=f"seed {seed}")
    assert packed[start * storage.bits // 8 :] == grid.pack(elements[start:], start), f"seed {seed}"
