"""Every option of a conversion is one field of a request, and no place that speaks of options forgets one."""

import inspect
import shlex
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from pathlib import Path

import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.api.folders import converting
from mezzo.cli.options import options as cli
from mezzo.cli.options.words import Written, spelled
from mezzo.contracts.options import keywords
from mezzo.contracts.options.keyword_types import ConvertOptions, PlanOptions
from mezzo.contracts.options.option import NAMING_NODES, Form, OptionScope, about
from mezzo.contracts.options.request import Request, options_about, usual_settings
from mezzo.planner.recording import describe_step
from mezzo.report.text.conversion import settings_line

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2,4] x) => (float[2,4] y)
<float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}>
{
   [mm] h = MatMul(x, w)
   [sm] y = Softmax<axis=-1>(h)
}
"""
# For each option another value than its default, as Python and as the command line spell it. A new one needs a line
# where its form does not tell a value.
_LISTED: Mapping[str, tuple[object, Written]] = {
    "to": ("bf16", "bf16"),
    "policy": ("aggressive", "aggressive"),
    "strategy": ("forward", "forward"),
    "target": ("any", "any"),
    "include": (("sm",), ("sm",)),
    "exclude": (("mm",), ("mm",)),
    "keep_region": (("mm",), ("mm",)),
    "fix_region": ({"mm": "fp32"}, ("mm=fp32",)),
    "io": ({"y": "fp32"}, ("y=fp32",)),
    "out_of_range": ("clamp", "clamp"),
    "opset": ("keep", "keep"),
    "calibrator": ("entropy", "entropy"),
    "assume": ({"x": "0..1"}, ("x=0..1",)),
    "feedback": (("y=x",), ("y=x",)),
    "correct": ("smooth,bias", "smooth,bias"),
    "decode": ("0.5", "0.5"),
}


def _sample(option: Field[object]) -> tuple[object, Written]:
    """Another value of an option than its default."""
    if option.name in _LISTED:
        return _LISTED[option.name]
    if about(option).form is Form.FLAG:
        return not option.default, not option.default
    other = next(choice for choice in about(option).choices if choice != option.default)
    return other, other


SAMPLES = {option.name: _sample(option) for option in fields(Request)}
NAMES = [option.name for option in fields(Request)]
OF_RESULT = {option.name for option in fields(Request) if about(option).is_of_result}
SETTINGS = list(usual_settings())
each_option = pytest.mark.parametrize("name", NAMES)
each_setting = pytest.mark.parametrize("name", SETTINGS)


@pytest.mark.parametrize("to", ["bf16", ["bf16"], ("bf16",)])
def test_format_may_stand_in_a_sequence(to: str | list[str] | tuple[str, ...]) -> None:
    plan = mezzo.plan(onnx.parser.parse_model(MODEL), to=to)
    assert (str(plan.low), dict(plan.settings)["to"]) == ("bf16", "bf16")
    assert mezzo.convert(onnx.parser.parse_model(MODEL), to=to, plan=plan).plan.settings == plan.settings


@pytest.mark.parametrize(
    ("to", "words"),
    [
        (
            "int5",
            "to is 'int5'; of integers a conversion takes int8, and for weights alone int8w and int4; choose one of "
            "fp16, bf16, int8, fp8, fp8-e5m2, int4, int8w, fp16w, bf16w",
        ),
        ("", "to is ''; choose one of fp16, bf16, int8, fp8, fp8-e5m2, int4, int8w, fp16w, bf16w"),
        ((), "to is (); choose one of fp16, bf16, int8, fp8, fp8-e5m2, int4, int8w, fp16w, bf16w"),
        ("bf16,", "to is ''; choose one of fp16, bf16, int8, fp8, fp8-e5m2, int4, int8w, fp16w, bf16w"),
        (["fp16", "fp16"], "to is ['fp16', 'fp16'], which says a format twice; say each once"),
        (
            ("fp16", "int8", "bf16"),
            "to is ('fp16', 'int8', 'bf16'), a format that takes scales with two floats, and a plan has one of them "
            'with it; write to="int8,fp16" or to="int8,bf16"',
        ),
    ],
)
def test_formats_that_cannot_be_had_are_refused(to: str | tuple[str, ...], words: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(MODEL)
    onnx.save(model, tmp_path / "model.onnx")
    for attempt in (
        lambda: mezzo.plan(model, to=to),
        lambda: mezzo.convert(model, tmp_path / "out.onnx", to=to),
        lambda: converting.convert_folder(tmp_path, to=to),
    ):
        with pytest.raises(mezzo.InputError) as caught:
            attempt()
        assert str(caught.value) == words
    assert [place.name for place in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(("to", "read"), [("int8", "int8"), (["bf16", "i8"], "int8,bf16")])
def test_format_with_scales_is_refused_without_data(to: str | list[str], read: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(MODEL)
    onnx.save(model, tmp_path / "model.onnx")
    remedy = "none is given; give some with data: an .npz file, a folder of them, or 'random' to try it out"
    late = '; or let ranges be found at run time, with calibrator="none"' if read == "int8" else ""
    assert dict(mezzo.plan(model, to=to).settings)["to"] == read
    with pytest.raises(mezzo.InputError) as caught:
        mezzo.convert(model, tmp_path / "out.onnx", to=to)
    assert str(caught.value) == f"to is {read!r}, which takes scales from data, and {remedy}{late}"
    with pytest.raises(mezzo.InputError) as caught:
        converting.convert_folder(tmp_path, to=to)
    assert str(caught.value) == f"'model.onnx': to is {read!r}, which takes scales from data, and {remedy}{late}"
    assert [place.name for place in tmp_path.iterdir()] == ["model.onnx"]


class Asked(Exception):
    """Ends a verb where it has made its request."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], Request]:
    """Run a verb as far as its request, and give that."""

    def stop(**given: object) -> None:
        raise Asked(Request(**given))  # type: ignore[arg-type]

    monkeypatch.setattr(keywords, "Request", stop)
    monkeypatch.setattr(keywords, "fields", lambda _: fields(Request))

    def run(verb: Callable[[], object]) -> Request:
        with pytest.raises(Asked) as caught:
            verb()
        request = caught.value.args[0]
        assert isinstance(request, Request)
        return request

    return run


def model() -> onnx.ModelProto:
    return onnx.parser.parse_model(MODEL)


def test_samples_are_of_every_option_and_differ_from_the_default() -> None:
    assert _LISTED.keys() <= set(NAMES)
    assert all(value != getattr(Request(), name) for name, (value, _) in SAMPLES.items())


@each_option
def test_verbs_hand_every_option_on(
    name: str, asked: Callable[[Callable[[], object]], Request], tmp_path: Path
) -> None:
    value = SAMPLES[name][0]
    given = {name: value}
    verbs: list[Callable[[], object]] = [
        lambda: mezzo.convert(model(), **given),  # type: ignore[arg-type]
        lambda: mezzo.convert_folder(tmp_path, **given),  # type: ignore[arg-type]
    ]
    deciding: list[Callable[[], object]] = [
        lambda: mezzo.plan(model(), **given),  # type: ignore[arg-type]
        lambda: mezzo.compare_strategies(model(), **given),  # type: ignore[arg-type]
    ]
    assert name in ConvertOptions.__annotations__ and (name in PlanOptions.__annotations__) == (name not in OF_RESULT)
    if name in OF_RESULT:  # of a file, which these do not write
        for verb in deciding:
            with pytest.raises(
                TypeError, match=f"^got an unexpected keyword argument '{name}', which is about a result"
            ):
                verb()
        deciding = []
    verbs += deciding
    for verb in verbs:
        request = asked(verb)
        assert getattr(request, name) == value
        assert {o for o in NAMES if getattr(request, o) != getattr(Request(), o)} == {name}


@each_option
def test_command_line_has_every_option_with_help_and_hands_it_on(name: str) -> None:
    value, words = SAMPLES[name]
    assert cli.describe(name).help
    options = cli.CommandOptions({name: words})
    assert options.to_writing()[name] == value  # type: ignore[literal-required]
    word = spelled(next(option for option in fields(Request) if option.name == name))
    parts = () if isinstance(words, bool) else (shlex.quote(words if isinstance(words, str) else words[0]),)
    assert options.words("convert") == [word, *parts]
    assert options.words("plan") == ([] if name in OF_RESULT else [word, *parts])


def test_follow_up_commands_repeat_everything_in_one_order() -> None:
    words = cli.CommandOptions({name: words for name, (_, words) in SAMPLES.items()}).words("convert")
    flags = [o for o in fields(Request) if about(o).form is Form.FLAG]
    single = [o for o in fields(Request) if isinstance(SAMPLES[o.name][1], str)]
    repeated = [o for o in fields(Request) if isinstance(SAMPLES[o.name][1], tuple)]
    assert [word for word in words if word.startswith("--")] == list(map(spelled, (*single, *repeated, *flags)))
    assert words[-3:] == ["--trust-external-paths", "--no-provenance", "--no-check"] and words[:2] == ["--to", "bf16"]
    assert cli.CommandOptions().words("convert") == []
    assert cli.CommandOptions({"opset": "auto"}).words("plan") == []


@each_setting
def test_plan_metadata_and_reports_tell_every_option(name: str) -> None:
    plan = mezzo.plan(model(), **{name: SAMPLES[name][0]})  # type: ignore[arg-type]
    usual = dict(mezzo.plan(model()).settings)
    assert list(usual) == SETTINGS
    told = dict(plan.settings)
    assert {option for option in SETTINGS if told[option] != usual[option]} - {"target"} == {name} - {"target"}
    assert name in dict(describe_step(plan.settings, {}).options)
    assert f"{name.replace('_', '-')} " in settings_line(plan).plain


@each_setting
def test_replay_forgets_no_option(name: str, tmp_path: Path) -> None:
    value = SAMPLES[name][0]
    usual, other = mezzo.plan(model()), mezzo.plan(model(), **{name: value})  # type: ignore[arg-type]
    with pytest.raises(mezzo.InputError, match=rf"^{name} .* contradicts the plan, which was made with"):
        mezzo.convert(model(), plan=usual, **{name: value})  # type: ignore[arg-type]
    mezzo.convert(model(), plan=other, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", options_about(OptionScope.EVERY_NODE))
def test_model_is_decided_anew_where_an_option_about_every_node_is_another(name: str) -> None:
    converted = mezzo.convert(model()).model
    plan = mezzo.plan(converted, **{name: SAMPLES[name][0]})  # type: ignore[arg-type]
    assert any(f"--{name.replace('_', '-')} " in note and "asks for something else" in note for note in plan.notes)


@pytest.mark.parametrize("given", [{"tto": "bf16"}, {"out_of_rang": "clamp"}])
def test_keyword_that_is_no_option_is_refused(given: dict[str, object], tmp_path: Path) -> None:
    (name,) = given
    close = {"tto": "to", "out_of_rang": "out_of_range"}[name]
    for verb in (mezzo.convert, mezzo.plan, mezzo.tune, mezzo.convert_folder):
        more = {"data": {}} if verb is mezzo.tune else {}
        source = tmp_path if verb is mezzo.convert_folder else model()
        with pytest.raises(TypeError, match=f"^got an unexpected keyword argument '{name}'; did you mean '{close}'"):
            verb(source, **given, **more)  # type: ignore[operator]


@each_option
def test_option_that_is_none_is_as_good_as_left_out(name: str) -> None:
    assert keywords.request_of({name: None}) == Request()


def test_help_of_verbs_tells_every_option() -> None:
    for verb in (mezzo.convert, mezzo.convert_folder):
        parameters = inspect.signature(verb).parameters
        assert {name: parameters[name].default for name in NAMES} == {n: getattr(Request(), n) for n in NAMES}
        assert all(f"{name}" in (verb.__doc__ or "") for name in NAMES)
    assert set(inspect.signature(mezzo.plan).parameters) == {"src", "progress", *NAMES} - OF_RESULT


def test_forms_that_name_nodes_are_those_of_options_about_single_nodes() -> None:
    """What a folder fits to each of its models: patterns that match nowhere in one are left out there."""
    of_nodes = {o.name for o in fields(Request) if about(o).form in NAMING_NODES}
    assert of_nodes == set(options_about(OptionScope.SINGLE_NODES)) - {
        o.name for o in fields(Request) if about(o).form is Form.PORT_DTYPES
    }
