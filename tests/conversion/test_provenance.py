"""What a written model tells of how it was made, who heeds it, and what becomes of it when it is false."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from random_models import random_model
from sweeps import swept
from test_conversion_laws import Case, cases, law

import mezzo
from mezzo.api.convert import describe_origin
from mezzo.contracts.plans import PlannedNode
from mezzo.conversion.recall import read_record
from mezzo.conversion.results import decided_nodes
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.io.provenance import MAX_BYTES, read_text, to_text
from mezzo.onnx.opening import open_model
from mezzo.onnx.run.session import Engine, native_session
from mezzo.onnx.schema.custom_operators import with_private_domain

_KEY = "mezzo.provenance"
_MODEL = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[4,4] x) => (float[4,4] y) <float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}>
    { [mm] h = MatMul(x, w)  [sm] s = Softmax<axis=-1>(h)  [last] t = MatMul(s, w)  y = Relu(t) }"""


def _model(text: str = _MODEL) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def _told(model: onnx.ModelProto) -> str:
    """The text that a model carries."""
    texts = [entry.value for entry in model.metadata_props if entry.key == _KEY]
    assert len(texts) == 1
    return texts[0]


def _with_text(model: onnx.ModelProto, text: str) -> onnx.ModelProto:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    next(entry for entry in changed.metadata_props if entry.key == _KEY).value = text
    return changed


def _fault(model: onnx.ModelProto) -> str | None:
    """Why what a model tells is not heeded; None if it is."""
    recalled, fault = read_record(open_model(model))
    assert (recalled is None) is (fault is not None)
    return fault


# -- laws ---------------------------------------------------------------------------------------------------------


@law(120)
@given(case=cases())
def test_converting_twice_gives_the_same_bytes_as_once(case: Case) -> None:
    """With every strategy and policy, what a file tells of itself included."""
    once = case.convert(case.build())
    assert case.convert(once).SerializeToString() == once.SerializeToString()


def _lows(case: Case) -> set[DType]:
    return {LOW_DTYPES[word] for word in case.to.split(",")}


@law(120)
@given(case=cases())
def test_a_result_tells_what_was_decided_about_each_node(case: Case) -> None:
    """Rules, reasons and precisions. Of two neighbours that a node could follow, either may be named.

    The policy that leaves a model as it is tells nothing.
    """
    assume(case.policy != "off")
    done = mezzo.convert(case.build(), to=case.to, policy=case.policy, strategy=case.strategy, io=case.io)
    recalled, fault = read_record(open_model(done.model))
    assert recalled is not None, fault
    for node in done.plan.nodes:
        told = recalled.planned.get(node.name)
        if told is None:  # a cast that the model had, or what computes no floats
            assert node.kind in ("cast", "input", "output")
            continue
        assert (told.category, told.op) == (node.category, node.op)
        assert told.precision.compute is node.precision.compute or _lows(case).isdisjoint(
            (told.precision.compute, node.precision.compute)
        )
        if mezzo.explain(done.plan, node.name)[-1].kind == "cast":
            continue  # it goes back to a cast of the model, which may be gone
        assert told.rule == node.rule
        assert told.because == node.because or node.rule == "follows"


@law(60)
@given(case=cases(), other=st.sampled_from(["keep", "low", "follow"]))
def test_nodes_decided_fp32_stay_so_whatever_the_interface_becomes(case: Case, other: str) -> None:
    assume(case.policy != "off")
    once = mezzo.convert(case.build(), to=case.to, policy=case.policy, strategy=case.strategy, io=case.io).model
    recalled, _ = read_record(open_model(once))
    assert recalled is not None
    try:
        again = mezzo.convert(once, to=case.to, policy=case.policy, strategy=case.strategy, io=other)
    except mezzo.InputError as error:  # an input that is an output too cannot follow where it may not go
        assume("is an input or a weight and an output as well" not in str(error))
        raise
    by_name = again.plan.by_name
    kept = [node for node in recalled.planned.values() if node.kind in ("op", "tie")]
    for node in kept:
        dtypes = node.precision.compute, by_name[node.name].precision.compute
        assert dtypes[0] is dtypes[1] or _lows(case).isdisjoint(dtypes)
    onnx.checker.check_model(with_private_domain(again.model) or again.model, full_check=not case.has_unknown)
    assert _fault(again.model) is None


@pytest.mark.parametrize("seed", range(swept(40)))
def test_a_changed_file_is_never_believed_where_it_differs(seed: int) -> None:
    """Types, names and nodes are changed at random: what is still heeded agrees with the file in every dtype."""
    rng = random.Random(seed)
    model = mezzo.convert(random_model(random.Random(seed), 8)).model
    node = rng.choice(model.graph.node)
    match seed % 4:
        case 0:
            node.name = "another"
        case 1:
            model.graph.node.remove(node)
        case 2:
            for attribute in node.attribute:
                attribute.i = {1: 10, 10: 1}.get(attribute.i, attribute.i)
        case 3:
            entry = next(entry for entry in model.metadata_props if entry.key == _KEY)
            place = rng.randrange(len(entry.value))
            entry.value = entry.value[:place] + rng.choice('0123456789"x[]{},f:') + entry.value[place + 1 :]
    try:
        recalled, fault = read_record(open_model(model))
    except mezzo.ModelError:
        return  # the file itself cannot be read any more
    assert (recalled is None) == (fault is not None), f"seed {seed}"
    if recalled is not None:
        graph = open_model(model).read(recalled.provenance.low).graph
        for told in recalled.planned.values():
            assert graph.nodes[graph.by_name[told.name]].signature.dtype is told.precision.compute, f"seed {seed}"


# -- what it tells ------------------------------------------------------------------------------------------------


def test_a_result_tells_version_options_and_plan() -> None:
    document = json.loads(_told(mezzo.convert(_model(), exclude=("last",)).model))
    assert document["format"] == "mezzo-provenance/1"
    assert document["made"] == [
        {
            "mezzo": mezzo.__version__,
            "command": "convert",
            "options": {
                "to": "fp16",
                "policy": "balanced",
                "strategy": "mincut",
                "target": "onnxruntime-cpu",
                "exclude": '["last"]',
            },
        }
    ]


def test_a_result_tells_no_path(tmp_path: Path) -> None:
    """Neither of the model, nor of files that options name; those have their names and a digest of what they say."""
    source, policy, target = tmp_path / "secret.onnx", tmp_path / "mine.toml", tmp_path / "box.toml"
    onnx.save(_model(), source)
    np.savez(tmp_path / "hidden.npz", x=np.ones((4, 4), np.float32))
    policy.write_text('base = "balanced"\n')
    target.write_text('base = "onnxruntime-cpu"\n')
    for data in (None, tmp_path / "hidden.npz"):
        done = mezzo.convert(source, tmp_path / "out.onnx", policy=policy, target=target, data=data, overwrite=True)
        text = _told(done.model)
        options = json.loads(text)["made"][0]["options"]
        assert options["policy"].startswith("mine (") and options["target"].startswith("box (")
        assert options.get("data") == (None if data is None else "given")
        assert not any(word in text for word in ("secret", "hidden", ".toml", ".npz", str(tmp_path)))


def test_policies_of_one_name_and_different_rules_are_told_apart(tmp_path: Path) -> None:
    texts = []
    for rules in ("", 'deny = ["Relu"]\n'):
        (tmp_path / "mine.toml").write_text(f'base = "balanced"\n{rules}')
        texts.append(json.loads(_told(mezzo.convert(_model(), policy=tmp_path / "mine.toml").model)))
    assert texts[0]["made"][0]["options"]["policy"] != texts[1]["made"][0]["options"]["policy"]


def test_nothing_is_told_where_it_is_not_wanted() -> None:
    model = mezzo.convert(_model()).model
    assert not mezzo.convert(_model(), provenance=False).model.metadata_props
    assert not mezzo.convert(model, provenance=False).model.metadata_props  # but what it told is kept


def test_metadata_of_the_source_is_kept_and_what_it_told_is_replaced() -> None:
    model = _model()
    model.metadata_props.add(key="author", value="somebody")
    once = mezzo.convert(model).model
    again = mezzo.convert(once, policy="conservative").model
    for result in (once, again):
        assert [entry.key for entry in result.metadata_props] == ["author", _KEY]
        onnx.checker.check_model(result, full_check=True)
        native_session(result, Engine.ONNXRUNTIME)
    assert _told(once) != _told(again)


@pytest.mark.parametrize("save_as_external_data", [False, True])
def test_files_with_large_weights_tell_and_are_the_same_after_a_second_conversion(
    tmp_path: Path, save_as_external_data: bool
) -> None:
    """Weights stay in their files while a model is converted: past 16 MiB in one file, or as external data."""
    model = _model(_MODEL.replace("float[4,4]", "float[2100,2100]").replace("{1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}", "{1}"))
    weight = np.random.default_rng(0).standard_normal((2100, 2100)).astype(np.float32)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=save_as_external_data, location="m.bin")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    once, again = tmp_path / "a" / "out.onnx", tmp_path / "b" / "out.onnx"
    mezzo.convert(tmp_path / "m.onnx", once)
    mezzo.convert(once, again)
    assert describe_origin(once)
    assert [p.name for p in sorted((tmp_path / "a").iterdir())] == [p.name for p in sorted((tmp_path / "b").iterdir())]
    for path in sorted((tmp_path / "a").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_a_repeated_block_costs_few_bytes_a_node() -> None:
    """Blocks alike share their rows, so that a node takes a number of two or three digits and a blank."""
    steps = "".join(
        f"[mm{i}] a{i} = MatMul({f'd{i - 1}' if i else 'x'}, w)  [sm{i}] b{i} = Softmax(a{i})  "
        f"[add{i}] c{i} = Add(b{i}, a{i})  [relu{i}] d{i} = Relu(c{i})\n"
        for i in range(250)
    )
    model = _model(_MODEL[: _MODEL.index("{ [mm]")] + f"{{ {steps} y = Relu(d249) }}")
    assert len(_told(mezzo.convert(model).model)) < 2000 + 4 * 1000


# -- who heeds it -------------------------------------------------------------------------------------------------


_WIDTH = 256


def _data(seed: int) -> list[dict[str, np.ndarray]]:
    return [{"x": np.random.default_rng(seed).standard_normal((16, _WIDTH)).astype(np.float32)}]


def _tuned() -> onnx.ModelProto:
    """A model that tuning left FP32, for a budget that FP16 cannot hold; its products are worth their casts."""
    model = _model("""
        <ir_version: 10, opset_import: ["": 21]>
        g (float[N,256] x) => (float[N,256] y) <float[256,256] w = {1}, float[256,256] v = {1}>
        { [first] h = MatMul(x, w)  [second] y = MatMul(h, v) }""")
    rng = np.random.default_rng(1)
    for place, name in enumerate(("w", "v")):
        array = rng.standard_normal((_WIDTH, _WIDTH)).astype(np.float32)
        model.graph.initializer[place].CopyFrom(onnx.numpy_helper.from_array(array, name))
    done = mezzo.tune(model, data=_data(1), held_out=_data(2), max_error=1e-5)
    told = {node.name: (str(node.precision.compute), node.rule) for node in _ops(done.plan)}
    assert told == {"first": ("f32", "error-budget"), "second": ("f32", "error-budget")}
    return done.model


def test_what_tuning_decided_is_kept_when_the_file_is_converted_again() -> None:
    tuned = _tuned()
    again = mezzo.convert(tuned)
    assert again.model.SerializeToString() == tuned.SerializeToString()
    first = again.plan.by_name["first"]
    assert first.precision.compute is DType.FLOAT32 and first.rule == "error-budget"
    assert first.because.startswith("kept, as decided when this file was made (tune --max-error 1e-05 with data): in")
    note = "2 nodes are kept in f32, as decided when this file was made (tune --max-error 1e-05 with data)"
    assert note in again.summary.notes
    assert all(node.precision.compute is DType.FLOAT16 for node in _ops(mezzo.convert(_stripped(tuned)).plan))


def _stripped(model: onnx.ModelProto) -> onnx.ModelProto:
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.metadata_props[:]
    return bare


def _ops(plan: mezzo.Plan) -> list[PlannedNode]:
    return [node for node in plan.nodes if node.kind == "op"]


def test_options_about_single_nodes_come_on_top_of_what_is_kept() -> None:
    again = mezzo.convert(_tuned(), include=("second",))
    precisions = {node.name: str(node.precision.compute) for node in _ops(again.plan)}
    assert precisions == {"first": "f32", "second": "f16"}
    assert [step["command"] for step in json.loads(_told(again.model))["made"]] == ["tune", "convert"]
    told = {node.name: node for node in decided_nodes(again.model)}
    assert told["first"].rule == "error-budget" and told["first"].because.startswith("in f16 it costs")
    assert told["second"].rule == "include"
    assert mezzo.convert(again.model).model.SerializeToString() == again.model.SerializeToString()


@pytest.mark.parametrize(
    ("options", "because"),
    [
        ({"to": "bf16"}, "--to bf16 is another format than the f16 that it was made for"),
        ({"policy": "conservative"}, "--policy conservative asks for something else"),
        ({"strategy": "fixpoint"}, "--strategy fixpoint asks for something else"),
        ({"target": "any"}, "--target any asks for something else"),
        ({"out_of_range": "clamp"}, "--out-of-range clamp asks for something else"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_question_is_decided_anew_with_a_note(options: dict[str, str], because: str) -> None:
    again = mezzo.convert(_tuned(), **options)  # type: ignore[arg-type]  # the names are those of `convert`
    assert any(note.endswith(because) for note in again.summary.notes)
    low = LOW_DTYPES[options.get("to", "fp16")]
    assert any(node.precision.compute is low for node in _ops(again.plan))
    assert _fault(again.model) is None


def test_a_file_of_one_format_converted_to_the_other_keeps_what_is_low() -> None:
    """What runs in FP16 stays so, only FP32 is decided anew; what it tells afterwards fits the mixture."""
    once = mezzo.convert(_model(), exclude=("last",)).model
    again = mezzo.convert(once, to="bf16")
    listing = mezzo.show(again.model)
    assert "h: f16[4,4] = MatMul" in listing and "t: bf16[4,4] = MatMul" in listing
    assert _fault(again.model) is None
    assert mezzo.convert(again.model, to="bf16").model.SerializeToString() == again.model.SerializeToString()


def test_tuning_decides_a_tuned_model_anew() -> None:
    done = mezzo.tune(_tuned(), data=_data(1), held_out=_data(2), max_error=0.1)
    assert all(node.precision.compute is DType.FLOAT16 for node in _ops(done.plan))


def test_conversion_on_data_keeps_too() -> None:
    again = mezzo.convert(_tuned(), data=_data(3))
    assert all(node.precision.compute is DType.FLOAT32 for node in _ops(again.plan))


def test_a_replayed_plan_is_told(tmp_path: Path) -> None:
    plan = mezzo.plan(_model(), exclude=("sm", "last"))
    mezzo.save_plan(plan, tmp_path / "p.json")
    result = mezzo.convert(_model(), plan=tmp_path / "p.json").model
    told = {node.name: node for node in decided_nodes(result)}
    assert told["last"].rule == "exclude" and told["last"].precision.compute is DType.FLOAT32
    assert result.SerializeToString() == mezzo.convert(_model(), exclude=("sm", "last")).model.SerializeToString()
    assert mezzo.convert(result).model.SerializeToString() == result.SerializeToString()


# -- what is false ------------------------------------------------------------------------------------------------


def _retype(model: onnx.ModelProto) -> None:
    """As a hand would: the Casts around the softmax go, and it runs in FP16."""
    casts = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "Cast"}
    softmax = next(node for node in model.graph.node if node.name == "sm")
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if node is softmax and name in casts:
                node.input[place] = casts[name]
            elif casts.get(name) == softmax.output[0]:
                node.input[place] = softmax.output[0]


def _rename(model: onnx.ModelProto) -> None:
    next(node for node in model.graph.node if node.name == "last").name = "renamed"


def _drop(model: onnx.ModelProto) -> None:
    last = next(node for node in model.graph.node if node.op_type == "Relu")
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name == last.output[0]:
                node.input[place] = last.input[0]
    model.graph.node.remove(last)


def _add(model: onnx.ModelProto) -> None:
    model.graph.node.add(op_type="Relu", name="more", input=["y"], output=["z"])


def _carry_over(model: onnx.ModelProto) -> None:
    other = mezzo.convert(_model(_MODEL.replace("[mm]", "[other]"))).model
    next(entry for entry in model.metadata_props if entry.key == _KEY).value = _told(other)


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (_retype, "node 'sm' is f16 in the file and f32 in what it tells"),
        (_rename, "the file's nodes have other names, operators or places than those it tells of"),
        (_drop, "it tells of 6 nodes, and the file has 5"),
        (_add, "it tells of 6 nodes, and the file has 7"),
        (_carry_over, "the file's nodes have other names, operators or places than those it tells of"),
    ],
    ids=["retyped", "renamed", "dropped", "added", "of another model"],
)
def test_what_a_changed_file_tells_is_not_heeded(change: Callable[[onnx.ModelProto], None], because: str) -> None:
    model = mezzo.convert(_model()).model
    change(model)
    wanted = f"what the file tells of how it was made is not heeded: {because}"
    assert _fault(model) == wanted
    done = mezzo.convert(model)
    assert wanted in done.summary.notes
    assert done.model.SerializeToString() != model.SerializeToString()
    assert _fault(done.model) is None


_GOOD = _told(mezzo.convert(_model()).model)


def _swapped(**fields: object) -> str:
    return json.dumps(json.loads(_GOOD) | fields)


@pytest.mark.parametrize(
    ("text", "because"),
    {
        "empty": ("", "it is not JSON: Expecting value at character 0"),
        "no JSON": ("eJwrSS0uAQAEXQHB", "it is not JSON: Expecting value at character 0"),
        "cut": (_GOOD[:-9], "it is not JSON: "),
        "nested": ("[" * 1_000_000, "it is nested more than 64 levels deep"),
        "long number": (_swapped().replace('"low"', f'"n":{"9" * 5000},"low"'), ""),
        "of no object": ("[]", "its format is not mezzo-provenance/1"),
        "of another format": (_swapped(format="mezzo-provenance/2"), "its format is not mezzo-provenance/1"),
        "field twice": (_GOOD.replace('"low"', '"low":"bf16","low"'), "it says a field twice"),
        "without rows": (_GOOD.replace('"rows"', '"sows"'), "it lacks 'rows'"),
        "rows of numbers": (_swapped(rows=[1]), "a field of it is no list"),
        "rows too short": (_swapped(rows=[[]]), "a field of it is of another type than it should be"),
        "strange dtype": (_swapped(low="f64"), "its low format is f64"),
        "no dtype": (_swapped(low="f17"), "'f17' is not a valid DType"),
        "steps of text": (_swapped(made="x"), "a field of it is no list"),
        "no steps": (_swapped(made=[]), "it tells of 0 steps"),
        "row that is not there": (_swapped(nodes="0x6 99"), "it tells of rows or nodes that are not there"),
        "bomb": (_swapped(nodes="0x9999999"), "it tells of rows or nodes that are not there"),
        "bombs": (_swapped(nodes="0x999999 " * 100_000), "it tells of rows or nodes that are not there"),
        "negative": (_swapped(nodes="-1"), "its nodes are no numbers"),
        "unprintable": (_swapped(names="\x1b[2J"), "a field of it is no printable text of at most 1000 characters"),
        "half a sign": (_swapped(names="\ud800"), "a field of it is no printable text of at most 1000 characters"),
        "long text": (_swapped(follows="x" * 9999), "a field of it is no printable text of at most 1000 characters"),
        "huge": ("x" * 100_000_000, "it takes 1000000"),
    }.values(),
    ids=lambda value: value[:12] if isinstance(value, str) else None,
)
def test_a_text_that_mezzo_did_not_write_is_not_heeded(text: str, because: str) -> None:
    model = _with_text(mezzo.convert(_model()).model, text)
    begin = time.process_time()
    fault = _fault(model)
    assert fault is not None and fault.startswith("what the file tells of how it was made is not heeded: ")
    assert because in fault and len(fault) < 300
    assert fault in mezzo.convert(model).summary.notes
    assert time.process_time() - begin < 60, "reading it is bounded"  # a bomb would take hours or all memory


def test_two_texts_are_not_heeded_and_do_not_pile_up() -> None:
    model = mezzo.convert(_model()).model
    model.metadata_props.add(key=_KEY, value=_GOOD)
    assert (_fault(model) or "").endswith("the model has 2 of them")
    assert [entry.key for entry in mezzo.convert(model).model.metadata_props] == [_KEY]


def test_a_text_that_is_not_utf8_is_not_heeded(tmp_path: Path) -> None:
    data = _with_text(mezzo.convert(_model()).model, "ABCDEFGH").SerializeToString().replace(b"ABCDEFGH", b"\xff" * 8)
    (tmp_path / "m.onnx").write_bytes(data)
    done = mezzo.convert(tmp_path / "m.onnx")
    assert "what the file tells of how it was made is not heeded: it is not UTF-8" in done.summary.notes


def test_a_text_reads_back_as_what_was_written() -> None:
    assert to_text(read_text(_GOOD)) == _GOOD
    assert _GOOD.isascii() and len(_GOOD) < MAX_BYTES
