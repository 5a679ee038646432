"""Options of other tools: every row leads to a command line that mezzo's own parser takes."""

import shlex

import pytest
from test_terminal import run_in_terminal

from mezzo.cli.app import COMMANDS as OWN
from mezzo.cli.hints.correction import correct
from mezzo.cli.hints.other_tools import COMMANDS, OPTIONS, OtherOption, Part, Values
from mezzo.common.name_matching import fold

_VALUES = {Part.FORMATS: "float16", Part.TARGET: "CUDAExecutionProvider", Part.PRECISIONS: "/a/b:fp32,c:fp16"}


def _parses(line: str) -> bool:
    _, *words = shlex.split(line)
    command = OWN[words[0]].load()
    with command.make_context(words[0], words[1:]):
        return True


@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: row.names[0])
def test_every_option_of_another_tool_leads_to_a_command_that_parses(row: OtherOption) -> None:
    is_file = row.part in (Part.MODEL, Part.RESULT)
    words = ["convert", *(["a.onnx"] if is_file else ["a.onnx", "b.onnx"]), f"--{row.names[0]}"]
    if row.values is not Values.NONE:
        words.append(_VALUES.get(row.part, "c.onnx" if is_file else "1") if row.part else "1")
    correction = correct([*words, "--data", "calib.npz"])
    assert correction is not None and correction.unknown == []
    assert _parses(correction.spell())


@pytest.mark.parametrize(("ours", "others"), COMMANDS.items())
def test_every_command_of_another_tool_leads_to_a_command_that_parses(ours: str, others: tuple[str, ...]) -> None:
    if ours.startswith("--"):
        return
    for other in others:
        correction = correct([other, "a.onnx", "b.onnx", "--data", "calib.npz"])
        assert correction is not None and correction.spell().startswith(f"mezzo {ours.split()[0]}")
        assert _parses(correction.spell())


def test_no_name_has_two_meanings() -> None:
    names = [fold(name) for row in OPTIONS for name in row.names]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize(
    ("typed", "corrected"),
    [
        (
            'convert a.onnx b.onnx --fp16 --policy off --quiet',
            'mezzo convert a.onnx b.onnx --to fp16 --policy off --quiet',
        ),
        (
            "convert 'my model.onnx' -o 'a b.onnx' --half",
            "mezzo convert 'my model.onnx' 'a b.onnx' --to fp16",
        ),
        (
            'convert a.onnx b.onnx --to fp16 --int8 --calib c.npz',
            'mezzo convert a.onnx b.onnx --to int8,fp16 --data c.npz',
        ),
        (
            'convert --op_block_list Softmax Exp a.onnx b.onnx',
            'mezzo convert a.onnx b.onnx --exclude op:Softmax --exclude op:Exp',
        ),
        (
            'convert a.onnx b.onnx --Policy off',
            'mezzo convert a.onnx b.onnx --policy off',
        ),
        (
            "convert a.onnx --exclude '$(touch x)' --fp16",
            "mezzo convert a.onnx --to fp16 --exclude '$(touch x)'",
        ),
        (
            'plan a.onnx --fp16 --dry-run',
            'mezzo plan a.onnx --to fp16',
        ),
        (
            'compare a.onnx b.onnx --rtol 0.1 --atol 0.1',
            'mezzo compare a.onnx b.onnx --max-error 0.1 --data DATA',
        ),
    ],
)  # fmt: skip
def test_own_words_of_the_user_are_kept(typed: str, corrected: str) -> None:
    correction = correct(shlex.split(typed))
    assert correction is not None and correction.spell() == corrected


def test_command_is_one_line_in_a_narrow_terminal() -> None:
    shown = run_in_terminal(
        "convert", "a.onnx", "b.onnx", "--stronglyTyped", "--op_block_list", "Exp", "LpNormalization"
    )
    *_, command = shown.splitlines()
    assert command == "  mezzo convert a.onnx b.onnx --target tensorrt --exclude op:Exp --exclude op:LpNormalization"
