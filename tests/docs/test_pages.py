"""The pages say what is so: every block on them runs, on the demo model, and every output is what is printed."""

import ast
import re
import shlex
import sys
from collections import Counter
from pathlib import Path

import pytest
from command_lines import ask_once

from mezzo.cli import main

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "pages"))
from page_blocks import LISTS, PAGES, PROMPT, ROOT, Block, blocks_of, commands_of, name_of, spelled
from page_figures import uncited_numbers
from page_names import missing_in_block, missing_in_quotes
from page_outputs import NoSuchPart, is_alike, parts_of, put
from page_reader import difference, outdated_of

_RUN = [page for page in PAGES if page.stem not in LISTS and any(True for _ in blocks_of(page))]
# These search, measure and probe.
_SLOW = ("README", "docs/how-to/tune", "docs/how-to/onnxruntime")
_NAMED = [*PAGES, *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "ARCHITECTURE", "SECURITY"))]
# What runs nowhere, or only where something is installed, by the reason that stands above it.
# So nobody leaves one out unseen.
_UNRUN = {
    "the files of the commands above, and eight minutes of a quiet machine": 1,
    "the files of the commands above, openvino, and two minutes": 1,
    "a search over a model of yours": 3,
    "a script of the repository": 4,
    "it installs packages": 9,
    "it is the call of another tool": 13,
    "it is the command of another tool": 4,
    "it needs the data that the text names, and looks at memory from outside": 1,
    "it takes exports of PyTorch, and minutes": 1,
    "it is made of broken files": 1,
    "it times models": 1,
    "such a folder is not at hand": 7,
    "half an hour, and needs torch": 2,
    "minutes to hours, on the machine that is named": 74,
    "needs CUDA": 1,
    "needs TensorRT": 1,
    "needs a transformer": 2,
    "needs onnxconverter_common": 1,
    "needs openvino": 2,
    "needs networks of other packages": 12,
    "needs openvino, the files of the commands above, and twelve minutes of a quiet machine": 1,
    "needs torch, nncf and openvino, each in an environment of its own, and an hour": 3,
    "needs what int8_training.py makes, and minutes": 1,
    "needs what int8_training.py makes, nncf and openvino, and minutes": 1,
    "needs torch, nncf, amd-quark, openvino, each in an environment of its own, and minutes": 1,
    "an hour, and needs torch, transformers, torchvision and timm": 4,
    "needs torch and transformers": 7,
    "hours, and needs torch": 1,
    "seven minutes, and needs torch": 1,
    "needs torch, transformers and a CPU with AVX512-BF16": 6,
    "needs torch, transformers, hours, and a CPU with AMX or AVX512-BF16, or a GPU": 1,
    "needs torch, onnxscript": 4,
    "needs PIL": 2,
    "needs ray": 2,
    "needs tokenizers": 2,
    "needs torch, transformers, onnxscript, onnxruntime and openvino": 1,
    "needs torch and scikit-learn": 1,
    "needs torch, scikit-learn, nncf and openvino, and ten minutes": 1,
    "needs torch, transformers, torchao and a CPU with AVX2": 3,
    "needs torch and what the first lines of torch_tasks.py name": 1,
    "needs torch": 70,
    "needs AVX512, torch": 2,
    "needs accelerate, torch": 4,
    "needs accelerate, torch, transformers": 2,
    "needs lightning, torch": 4,
    "needs trtexec": 3,
}
# Sessions that are written from golden files; the tests of these hold every line.
_GOLDEN = ("answers",)
_LANGUAGES = {"console", "js", "json", "python", "sh", "text", "toml", "yaml", "{include}", "{toctree}"}


def _param(page: Path) -> object:
    return pytest.param(page, marks=pytest.mark.slow) if name_of(page) in _SLOW else page


@pytest.mark.parametrize("page", [_param(page) for page in _RUN], ids=[name_of(page) for page in _RUN])
def test_every_block_of_a_page_runs_and_shows_what_is_printed(page, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")  # as where no terminal is
    monkeypatch.setattr("mezzo.onnx.doctor.examine.ask", ask_once)
    if "torch._dynamo" in sys.modules:  # it compiles modules of torch.nn up to eight times in a process, of all pages
        sys.modules["torch._dynamo"].reset()
    outdated = outdated_of(page)
    shown = "\n".join(difference(block, text) for block, text in outdated.items())
    assert not outdated, f"run python tools/pages {page.relative_to(ROOT)}\n{shown}"


def test_blocks_that_do_not_run_everywhere_are_counted():
    reasons = Counter()
    for page in PAGES:
        for block in blocks_of(page):
            if block.needs or block.unrun:
                reasons[block.unrun or f"needs {', '.join(block.needs)}"] += 1
    assert reasons == _UNRUN


@pytest.mark.parametrize("page", _NAMED, ids=name_of)
def test_what_a_page_names_is_there(page):
    """Commands, options, modules, files, targets of make and extras, in words and in blocks that never run."""
    blocks = [block for block in blocks_of(page) if block.unrun and block.language == "sh"]
    faults = [fault for block in blocks for fault in missing_in_block(block)]
    assert faults + missing_in_quotes(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_block_has_a_language_and_no_command_hides_in_a_text(page):
    """A command that stands in a text is run by nobody; a session without a prompt says nothing."""
    for block in blocks_of(page):
        assert block.language in _LANGUAGES, str(block)
        assert block.language != "console" or block.text.startswith(PROMPT), str(block)
        if block.language == "text" and not block.is_output and page.stem not in _GOLDEN:
            assert not re.search(r"^(\$|mezzo |make |pip |python )", block.text, re.MULTILINE), str(block)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_number_that_a_page_takes_from_the_figures_stands_there(page):
    assert uncited_numbers(page.read_text(encoding="utf-8")) == []


def test_number_that_the_figures_do_not_have_is_found_in_words_and_in_tables():
    section = "figures/casts-and-strategies.md#casts"
    text = f"Casts ([Figures]({section})): 141, not 98,765:\n\n| tool | casts |\n|---|---|\n| it | 4321 |\n"
    assert uncited_numbers(text) == [f"{section} has no 98765", f"{section} has no 4321"]


def test_lists_of_commands_name_commands_that_there_are():
    for page in PAGES:
        if page.stem in LISTS:
            for command in (spelled(command) for block in blocks_of(page) for command in commands_of(block)):
                words = shlex.split(re.split(r" \| | > ", command)[0])
                assert words[0] == "mezzo" and main([words[1], "--help"]) == 0, command


@pytest.mark.parametrize("page", _NAMED, ids=name_of)
def test_links_between_pages_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith(("http:", "https:", "#")):
            assert (page.parent / link.partition("#")[0]).exists(), link


def test_every_page_is_reached_by_links_from_the_first_ones():
    reached, left = set(), {ROOT / "README.md", ROOT / "CONTRIBUTING.md"}
    while left:
        page = left.pop()
        reached.add(page)
        links = re.findall(r"\]\(([^)#\s]+\.md)", page.read_text(encoding="utf-8"))
        left |= {(page.parent / link).resolve() for link in links if "://" not in link} - reached
    assert sorted(map(name_of, set(PAGES) - reached)) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page_speaks_of_mezzo_only(page):
    """One heading of the first rank, no line that a checkout elsewhere would not have."""
    lines = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL).splitlines()
    assert len([line for line in lines if line.startswith("# ")]) == 1
    assert not [line for line in lines if re.search(r"/(?:home|tmp|work)/", line)]


def test_page_of_mezzo_torch_has_its_names_and_no_others():
    """Its page is written by hand, as PyTorch is not installed wherever pages are made."""
    tree = ast.parse((ROOT / "src" / "mezzo" / "torch" / "__init__.py").read_text(encoding="utf-8"))
    (names,) = (
        ast.literal_eval(line.value)
        for line in tree.body
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "__all__"
    )
    page = (ROOT / "docs" / "reference" / "pytorch.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^### mezzo\.torch\.(\w+)$", page, re.MULTILINE)) == sorted(names)


PAGE = """\
# A page

```console
$ mezzo --version
mezzo 9.9.9
```

```python
print("two", 1 + 1)
```

<!-- output -->
```text
two 3
```
"""


def test_outdated_output_is_found_and_mended_and_then_nothing_is_left_to_mend(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    outdated = outdated_of(page)
    assert [block.line for block in outdated] == [4, 14]
    put(page, outdated)
    assert "two 2\n" in page.read_text() and "onnxruntime" in page.read_text()
    assert outdated_of(page) == {}


def test_command_that_ends_otherwise_than_the_page_says_is_an_error(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```sh\nmezzo plan gone.onnx\n```\n")
    with pytest.raises(AssertionError, match=r"gone\.onnx"):
        outdated_of(page)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("took 4.8 s", "took 12 s"),
        ("size  209 KB", "size  212 KB"),
        ("error 5.27e-04  x", "error 5.31e-04 x"),
        ("onnx 1.23.2", "onnx 1.24.0"),
    ],
)
def test_outputs_are_alike_up_to_what_no_two_machines_share(shown, printed):
    assert is_alike(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("2 of 82 nodes", "3 of 82 nodes"),
        ("the same: 0.0005", "not the same: 0.0005"),
        ("size 209 KB", "size 309 KB"),
        ("error 5.27e-04", "error 5.27e-03"),
        ("took 4.8 s", "took 4.8 KB"),
        ("a\nb", "a"),
        ("/head/Gemm", "/head/Gemm_1"),
        ("f16", "f32"),
        ("-0.5", "0.5"),
    ],
)
def test_outputs_that_say_something_else_are_not_alike(shown, printed):
    assert not is_alike(shown, printed)


def test_part_of_an_output_is_shown_with_a_sign_for_what_is_left_out():
    printed = "head\n\nnotes\n  one\n  two\n\ntail\n"
    assert parts_of(printed, ("notes",)) == "...\nnotes\n  one\n  two\n..."
    assert parts_of(printed, ("head", "notes (2 lines)")) == "head\n\nnotes\n  one\n..."
    with pytest.raises(NoSuchPart, match="begins with 'gone'"):
        parts_of(printed, ("gone",))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("`mezzo convrt a b`", "mezzo convrt: no such command"),
        ("`mezzo plan a --nodez`", "mezzo plan --nodez: no such option"),
        ("`mezzo.onnx.gone`", "mezzo.onnx.gone: no such name"),
        ("`mezzo.torch.keep` and `mezzo.torch.gone`", "mezzo.torch.gone: no such name"),
        (
            "`mezzo.torch.compiler.regions.marking`, `mezzo.torch.compiler.regions.gone`",
            "mezzo.torch.compiler.regions.gone: no such name",
        ),
        ("`tests/test_gone.py`", "tests/test_gone.py: no such file"),
        ("`onnx/read/gone.py`", "onnx/read/gone.py: no such file"),
        ("`make gone`", "make gone: no such target"),
        ("`python benchmarks/units.py --gone`", "benchmarks/units.py --gone: no such option"),
    ],
)
def test_names_that_lead_nowhere_are_found(text, fault):
    assert missing_in_quotes(text) == [fault]


def test_extra_that_is_none_is_found():
    block = Block(page=ROOT / "README.md", line=1, language="sh", text="pip install '.[gone]'", unrun="a reason")
    assert missing_in_block(block) == ["pip install '.[gone]': no such extra"]
