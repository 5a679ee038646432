"""Verdicts for continuous integration: whole documents, and names that come from anyone's files."""

from xml.etree import ElementTree as ET

from mezzo.report.records.cases import Case, CaseState, Suite
from mezzo.report.text.junit import to_junit
from mezzo.report.text.markdown import to_markdown

_SUITE = Suite(
    "convert",
    "a -> b",
    (
        Case(name="bad.onnx", state=CaseState.ERROR, message="'bad.onnx' is empty"),
        Case(name="m.onnx", state=CaseState.PASSED, message="right", details=("no risk", "size 2"), seconds=1.5),
        Case(name="w.onnx", state=CaseState.FAILED, message="wrong: error 2", details=("risky",), seconds=0.25),
        Case(name="o.onnx", state=CaseState.OPEN, message="cannot tell"),
        Case(name="low.onnx", state=CaseState.SKIPPED, message="is low already"),
    ),
)
# What a file's name may hold: markup, a mention, a link, control characters, half of a surrogate pair, a non-character.
_HOSTILE = "<b>&\"'`|*_]]>@all #1 [x](http://y) \x1b[31m\x00\n\r\ud800\uffff\u202e.onnx"


def test_junit_has_a_case_per_model() -> None:
    assert (
        to_junit(_SUITE).decode()
        == """<?xml version='1.0' encoding='utf-8'?>
<testsuites name="mezzo" tests="5" failures="2" errors="1" skipped="1" time="1.750">
  <testsuite name="mezzo convert" tests="5" failures="2" errors="1" skipped="1" time="1.750">
    <testcase classname="mezzo.convert" name="bad.onnx" time="0.000">
      <error message="'bad.onnx' is empty" type="error">'bad.onnx' is empty</error>
    </testcase>
    <testcase classname="mezzo.convert" name="m.onnx" time="1.500">
      <system-out>right
no risk
size 2</system-out>
    </testcase>
    <testcase classname="mezzo.convert" name="w.onnx" time="0.250">
      <failure message="wrong: error 2" type="failed">wrong: error 2
risky</failure>
    </testcase>
    <testcase classname="mezzo.convert" name="o.onnx" time="0.000">
      <failure message="cannot tell" type="cannot tell">cannot tell</failure>
    </testcase>
    <testcase classname="mezzo.convert" name="low.onnx" time="0.000">
      <skipped message="is low already">is low already</skipped>
    </testcase>
  </testsuite>
</testsuites>
"""
    )


def test_markdown_shows_what_failed_and_folds_the_rest() -> None:
    assert (
        to_markdown(_SUITE)
        == """### mezzo convert: 1 passed, 1 failed, 1 cannot tell, 1 error, 1 skipped

<code>a -&#62; b</code>

| | model | |
|---|---|---|
| ❌ error | <code>bad.onnx</code> | <code>&#39;bad.onnx&#39; is empty</code> |
| ❌ failed | <code>w.onnx</code> | <code>wrong&#58; error 2</code><br><code>risky</code> |
| ⚠️ cannot tell | <code>o.onnx</code> | <code>cannot tell</code> |

<details>
<summary>2 other models</summary>

| | model | |
|---|---|---|
| ✅ | <code>m.onnx</code> | <code>right</code> |
| ⏭️ skipped | <code>low.onnx</code> | <code>is low already</code> |

</details>
"""
    )


def test_hostile_names_are_text_in_both() -> None:
    suite = Suite("convert", _HOSTILE, (Case(name=_HOSTILE, state=CaseState.ERROR, message=_HOSTILE),))
    case = ET.fromstring(to_junit(suite))[0][0]
    name = "<b>&\"'`|*_]]>@all #1 [x](http://y) \\x1b[31m\\x00\\n\\r\\ud800\\uffff\\u202e.onnx"
    assert case.get("name") == case[0].get("message") == case[0].text == name
    text = to_markdown(suite).encode().decode()  # no surrogate is left
    row = text.splitlines()[-1]
    inner = row.removeprefix("| ❌ error | <code>").removesuffix("</code> |").replace("</code> | <code>", "")
    assert not set(inner) & set("<>`|*_[]()@\"'\\:") and text.count("\n") == 7


def test_markdown_is_short_enough_for_a_comment() -> None:
    cases = tuple(Case(name=f"{n}.onnx", state=CaseState.ERROR, message="x" * 5000) for n in range(1000))
    text = to_markdown(Suite("convert", "t", cases))
    assert len(text) < 65_536 and text.endswith("| | and 900 more | |\n")
