"""JUnit XML of test cases, as GitHub, GitLab, Jenkins and Azure read it.

`clean` escapes the characters that XML 1.0 cannot hold. Source: the schema of Apache Ant's JUnit
task, as Jenkins's xUnit plug-in keeps it (junit-10.xsd).
"""

from xml.etree import ElementTree as ET

from mezzo.report.layout.names import clean
from mezzo.report.records.cases import Case, CaseState, Suite

_ELEMENTS = {
    CaseState.FAILED: "failure",
    CaseState.OPEN: "failure",
    CaseState.ERROR: "error",
    CaseState.SKIPPED: "skipped",
}


def to_junit(suite: Suite) -> bytes:
    """The cases as one test suite, in UTF-8."""
    seconds = f"{sum(case.seconds for case in suite.cases):.3f}"
    counts = {
        "tests": str(len(suite.cases)),
        "failures": str(suite.count(CaseState.FAILED, CaseState.OPEN)),
        "errors": str(suite.count(CaseState.ERROR)),
        "skipped": str(suite.count(CaseState.SKIPPED)),
        "time": seconds,
    }
    name = f"mezzo {suite.command}"
    root = ET.Element("testsuites", {"name": "mezzo", **counts})
    element = ET.SubElement(root, "testsuite", {"name": name, **counts})
    for case in suite.cases:
        element.append(_spell_case(case, f"mezzo.{suite.command}"))
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _spell_case(case: Case, group: str) -> ET.Element:
    name = clean(case.name)
    element = ET.Element("testcase", classname=group, name=name, time=f"{case.seconds:.3f}")
    details = "\n".join(map(clean, (case.message, *case.details)))
    tag = _ELEMENTS.get(case.state)
    if tag is None:
        ET.SubElement(element, "system-out").text = details
        return element
    attributes = {"message": clean(case.message)}
    if tag != "skipped":
        attributes["type"] = case.state.value
    ET.SubElement(element, tag, attributes).text = details
    return element
