"""The commands in examples/neighbours name files and targets that are there."""

import re

import pytest
from neighbours import EXAMPLES, ROOT

READMES = sorted(EXAMPLES.rglob("README.md"))


def test_every_example_has_its_readme():
    folders = {path.parent for path in EXAMPLES.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert folders - {readme.parent for readme in READMES} == {EXAMPLES / "shared"}


@pytest.mark.parametrize("readme", READMES, ids=lambda readme: readme.parent.name)
def test_commands_name_what_is_there(readme):
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)).splitlines()
    assert lines
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for words in map(str.split, lines):
        assert [word for word in words if word.startswith("examples/") and not (ROOT / word).exists()] == []
        assert words[0] != "make" or words[1] in targets
    for link in re.findall(r"\]\(([^)#]+)\)", readme.read_text(encoding="utf-8")):
        assert (readme.parent / link).exists(), link
