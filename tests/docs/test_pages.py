"""The pages say what is so: every command and every Python block on them runs, on the demo model, page by page."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import mezzo
from mezzo.cli import main

sys.path.insert(0, str(Path(__file__).parent))
from pages import PAGES, ROOT, Block, blocks_of, commands_of  # beside this file

DIGITS = ROOT / "examples" / "digits"
# Their blocks show every command with every option, on file names that say what they are; the commands have tests.
_LISTS = ("cli",)
_RUN = [page for page in PAGES if page.stem not in _LISTS and any(True for _ in blocks_of(page))]
# These search, measure and probe.
_SLOW = ("docs/how-to/tune", "docs/how-to/onnxruntime")
_MARKED = [block for page in _RUN for block in blocks_of(page) if block.needs]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix().removesuffix(".md")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the demo model, a conversion of it, data, and the examples of the checkout."""
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    Path("examples").symlink_to(ROOT / "examples", target_is_directory=True)
    Path("model.onnx").write_bytes((DIGITS / "digits.onnx").read_bytes())
    mezzo.convert("model.onnx", "model.fp16.onnx")
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as file:
        held_out = {name: array[:64] for name, array in file.items()}
    np.savez("calib.npz", image=held_out["image"])
    np.savez("labelled.npz", **held_out)
    for part in ("t5-small/onnx", "data"):  # an export by its shape; the model in it is the demo's
        Path(part).mkdir(parents=True)
    Path("t5-small", "config.json").write_text('{"model_type": "t5"}\n')
    shutil.copy("model.onnx", "t5-small/onnx/encoder_model.onnx")
    shutil.copy("calib.npz", "data/encoder_model.npz")
    yield tmp_path
    for name in set(sys.modules) - known:  # metrics that a page has written
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


class Reader:
    """Does what a page says, block after block, as a reader would."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.names: dict[str, object] = {"__name__": "__main__", "mezzo": mezzo}
        self.capsys = capsys
        self.shown = ""

    def follow(self, block: Block) -> None:
        if block.is_output:
            self._check_output(block)
        elif block.language == "python":
            self._keep_file(block)
            exec(compile(block.text, str(block), "exec"), self.names)
        elif block.language == "toml":
            tomllib.loads(block.text)
            self._keep_file(block)
        elif block.language == "sh":
            commands, self.shown = commands_of(block), ""
            for command in commands:
                wanted = block.gives if command == commands[-1] else 0
                self._run(command, wanted)

    def _keep_file(self, block: Block) -> None:
        """Write a block whose first line names a file."""
        named = re.match(r"# (\S+\.(?:toml|py))\n", block.text)
        if named:
            Path(named[1]).write_text(block.text, encoding="utf-8")

    def _run(self, command: str, wanted: int) -> None:
        line = command.partition("  # ")[0].partition(" | ")[0]
        line, _, target = line.partition(" > ")
        words = shlex.split(line)
        assert words[0] == "mezzo", f"{command!r}: a shell block runs mezzo; mark it, or make it a text block"
        self.capsys.readouterr()
        code = main(words[1:])
        printed = self.capsys.readouterr()
        self.shown += printed.out
        if target:
            Path(target).write_text(printed.out, encoding="utf-8")
        assert code == wanted, f"{command}\n{printed.out}\n{printed.err}"
        assert wanted or not printed.err, f"{command}\n{printed.err}"

    def _check_output(self, block: Block) -> None:
        shown = " ".join(self.shown.split())
        for line in block.text.splitlines():
            wanted = " ".join(line.split())
            assert wanted in shown, f"{block}: {wanted!r} is not in the output\n{self.shown}"


def _param(page: Path) -> object:
    return pytest.param(page, marks=pytest.mark.slow) if name_of(page) in _SLOW else page


@pytest.mark.parametrize("page", [_param(page) for page in _RUN], ids=[name_of(page) for page in _RUN])
def test_every_block_of_a_page_runs(folder, capsys, page):
    reader = Reader(capsys)
    for block in blocks_of(page):
        if not block.needs:
            reader.follow(block)
        elif block.language == "python":
            compile(block.text, str(block), "exec")


@pytest.mark.parametrize("marked", _MARKED, ids=str)
def test_block_that_needs_something_runs_where_it_is(folder, capsys, marked):
    if marked.missing:
        pytest.skip(f"{name_of(marked.page)}, line {marked.line} needs {', '.join(marked.missing)}")
    reader = Reader(capsys)
    for block in blocks_of(marked.page):
        if block.line > marked.line:
            return
        if block == marked and block.language == "sh":
            subprocess.run(["bash", "-euc", block.text], check=True, timeout=300)
        elif block == marked or not block.missing:
            reader.follow(block)


def test_lists_of_commands_name_commands_that_there_are():
    for page in PAGES:
        if page.stem in _LISTS:
            for block in blocks_of(page):
                for command in commands_of(block):
                    words = shlex.split(command.partition("  # ")[0].partition(" | ")[0].partition(" > ")[0])
                    assert words[0] == "mezzo" and main([words[1], "--help"]) == 0, command


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith(("http:", "https:", "#")):
            assert (page.parent / link.partition("#")[0]).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page_speaks_of_mezzo_only(page):
    """One heading of the first rank, no line that a checkout elsewhere would not have."""
    lines = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL).splitlines()
    assert len([line for line in lines if line.startswith("# ")]) == 1
    assert not [line for line in lines if re.search(r"/(?:home|tmp|work)/", line)]
