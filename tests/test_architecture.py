"""The layers of the package, held by reading its imports. A new module takes its place in `_LAYERS`."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from package_graph import cycles, graph_of, parsed, without_inits

_ROOT = Path(__file__).parents[1] / "src" / "mezzo"

# Packages that put the planner, numbers and a front end together.
_UNITING = ("conversion", "clusters", "evaluate", "quantize", "tuning", "api")
# Lowest first. A package imports itself and lower layers, and never another one of its own layer but in the last.
_LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"common"}),
    frozenset({"formats"}),
    frozenset({"ir"}),
    frozenset({"tables"}),
    frozenset({"contracts"}),
    frozenset({"analysis", "io", "reference"}),
    frozenset({"plugins"}),
    frozenset({"planner"}),
    frozenset({"numerics"}),
    frozenset({"onnx", "aten"}),  # front ends
    frozenset({"report"}),
    *(frozenset({package}) for package in _UNITING),
    frozenset({""}),  # the package itself: its public names
    frozenset({"torch"}),  # drivers of PyTorch: public, and imported by whoever wants them
    frozenset({"cli", "__main__"}),
)
_UNITED = frozenset({len(_LAYERS) - 1})
_FRONT_ENDS = ("onnx", "aten")
# Folders whose files are many of one kind: no file imports another of them.
_PLUG_INS = (
    "tables.ops",
    "tables.policies",
    "tables.targets",
    "planner.strategies",
    "analysis.structure",
    "analysis.fusion.patterns",
    "quantize.calibrators",
    "quantize.rounding",
    "io.exports",
    "reference",
)
# Libraries, and where they may be imported. Elsewhere their types may be named, under TYPE_CHECKING.
_HOMES = {
    "onnx": ("onnx",),
    "onnx_ir": ("onnx",),
    "onnxruntime": ("onnx.run.runtime_libraries",),
    "openvino": ("onnx.run.runtime_libraries",),
    "torch": ("aten", "torch"),
    "ray": ("clusters",),
    "typer": ("cli",),
    "rich": ("cli", "report"),
}
_NAMED_ELSEWHERE = {*_UNITING, ""}
# Names of targets that are words of other things too: a dialect, and plain English.
_OTHER_MEANINGS = {"onnx", "any"}
# Who may name a target in a string, and why.
_TARGETS_NAMED = {
    "cli.hints.examples": "examples are commands as people write them",
    "common.file_kinds": "TensorRT's package, which makes such files, has the name of its target",
    "common.packages": "TensorRT's package has the name of its target",
    "cli.options.trtexec_words": "trtexec's lines are for this target alone",
    "io.exports.coremltools": "the tool's alias is the name of a target",
    "io.exports.trt": "the tool has the name of its target",
    "io.trtexec": "trtexec's lines are for this target alone",
}
# Who may import a front end by name, and why; discovery finds them for all others.
_ABOUT_ONE_FRONTEND = {
    "cli.commands.doctor": "looks at the runtimes of ONNX and at nothing else",
    "torch": "hands PyTorch's graphs to its front end, and to no other",
}
# Libraries that load nothing until a model of theirs is there: the folders that import them are imported late.
_LATE_LIBRARIES = ("onnxruntime", "torch", "ray")
# Imports inside functions, by room: how many at most, and why they are late. A new one has to be worth its reason.
_LATE = {
    "analysis": (4, "discovery imports every rule to list it; numpy is loaded when arrays are looked at"),
    "api": (26, "`import mezzo` and errors in options come at once; a verb loads what it works with when it starts"),
    "aten": (1, "PyTorch is loaded when a program of its own comes in"),
    "cli": (185, "help, errors and completion come at once; what a command works with is loaded when it runs"),
    "clusters": (2, "Ray takes a second to load: it is loaded when a cluster is asked for"),
    "common": (8, "what only one system has, what is read when asked for, what is worked out for a misspelled word"),
    "contracts": (18, "problems are named everywhere; numpy is loaded when one is planned"),
    "conversion": (9, "results are named by all verbs; the front end and what shows one are loaded when one is there"),
    "ir": (2, "graphs are named everywhere; numpy is loaded when one is planned"),
    "numerics": (2, "Pillow and tokenizers are optional, and loaded when images or text are read"),
    "onnx": (25, "runtimes, laboratories, test cases and onnx-ir are loaded where a model or a verb needs them"),
    "planner": (13, "discovery imports every strategy to list it; numpy is loaded when one assigns"),
    "plugins": (2, "metadata of other packages is read when plug-ins are listed"),
    "report": (
        3,
        "a chain asks the estimates' rules for their names alone; a picture's arrays are loaded when it is drawn",
    ),
}
_MOST_BY_PLACE = 4  # fields of a record; named tuples are made by the thousand, and unpacked
_LONGEST = 520  # lines of a file, of 100 columns
_MOST_PACKAGES = 26  # in mezzo itself
_MOST_FILES = 16  # of a folder, beside its `__init__`
_FAMILIES = "tables/ops"  # has a file for each family of operators, however many a dialect has
# Attributes that hold sentences for people, and what takes a text apart.
_SENTENCES = frozenset({"because", "message", "effect", "said", "fault"})
_TAKING_APART = frozenset(
    {"startswith", "endswith", "partition", "rpartition", "removeprefix", "removesuffix", "find", "index", "replace"}
)
# Modules that read sentences all the same: in how many places, and why.
_PROSE_READ = {
    "common.memory": (1, "runtimes say in their messages alone that they were refused memory"),
    "io.provenance": (3, "a name inside a text is stored once; the text is put together again as it was"),
    "api.folders.deciding": (
        1,
        "what opens a file names it or does not; an error that names it already is not named twice",
    ),
    "onnx.edit.checking": (1, "the ONNX checker says in its message alone that it means sparse weights"),
    "onnx.model": (4, "the ONNX checker says in its message alone which node it refuses"),
}
# What named tuples call their public names.
_OF_TUPLES = frozenset({"_replace", "_asdict", "_fields", "_make"})
# The modules that name what is private to PyTorch, and attributes of its objects that others read, with the reason.
_TORCH_INTERNALS = ("aten.torch_internals", "torch.torch_internals")
_TORCH_ATTRIBUTES = {
    "_active_ddp_module": "the DistributedDataParallel around the running call",
    "_comm_hooks": "communication hooks that a DistributedDataParallel has",
    "_compiled_call_impl": "what a module compiled in place calls",
    "_dynamic": "the option of torch.compile, for copies and pickles",
    "_dynamo_source": "where Dynamo found an input: every placeholder needs one",
    "_get_fsdp_state": "the policy of a module under fully_shard",
    "_modules": "ten times faster than children()",
    "_parameters": "ten times faster than parameters()",
    "_step_supports_amp_scaling": "whether GradScaler leaves unscaling to the step",
    "_version": "how often a tensor was written",
}
# Where a statement holds other statements.
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")


@dataclass(frozen=True)
class Import:
    """One module reads another. Ours are spelled without "mezzo."; "" is the package itself."""

    reader: str
    read: str
    is_ours: bool
    is_for_types: bool  # under TYPE_CHECKING
    is_late: bool  # inside a function

    def __str__(self) -> str:
        return f"mezzo.{self.reader} imports {'mezzo.' if self.is_ours else ''}{self.read}"


def _inside(module: str, homes: tuple[str, ...]) -> bool:
    return any(module == home or module.startswith(f"{home}.") for home in homes)


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its name without "mezzo.", parsed."""
    return parsed(_ROOT)


@cache
def walk(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a module."""
    return tuple(ast.walk(tree))


@cache
def imports() -> tuple[Import, ...]:
    """Every import of the package, those inside functions included."""
    return tuple(found for reader, tree in modules().items() for found in _imports(reader, tree))


def _found_below(
    tree: ast.AST, *, is_for_types: bool = False, is_late: bool = False
) -> Iterator[tuple[ast.stmt, bool, bool]]:
    """The imports below a node, whether under TYPE_CHECKING and inside a function. Expressions hold none."""
    is_late = is_late or isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
    for block in _BLOCKS:
        # What stands under `else` of a question for types is for running.
        is_asked = block == "body" and isinstance(tree, ast.If) and ast.unparse(tree.test).endswith("TYPE_CHECKING")
        for node in getattr(tree, block, ()):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node, is_for_types or is_asked, is_late
            else:
                yield from _found_below(node, is_for_types=is_for_types or is_asked, is_late=is_late)


def _imports(reader: str, tree: ast.Module) -> Iterator[Import]:
    for node, is_for_types, is_late in _found_below(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            # `from mezzo import planfile` reads the module; `from mezzo import convert` reads the package.
            inner = [f"{base}.{alias.name}" for alias in node.names]
            names = [name if name.removeprefix("mezzo.") in modules() else base for name in inner]
        for name in dict.fromkeys(names):
            is_ours = name == "mezzo" or name.startswith("mezzo.")
            short = name.removeprefix("mezzo").removeprefix(".") if is_ours else name
            yield Import(reader, short, is_ours, is_for_types, is_late)


def _rooms_and_modules() -> set[str]:
    return {*modules(), *(name.partition(".")[0] for name in modules())}


def _loaded_by(names: Iterable[str]) -> set[str]:
    """The modules that Python loads with these: what each imports at once, and the packages they stand in."""
    reads: dict[str, set[str]] = {name: set() for name in modules()}
    for found in imports():
        if found.is_ours and not found.is_late and not found.is_for_types:
            reads[found.reader].add(found.read)
    loaded: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in reads and name not in loaded:
            loaded.add(name)
            waiting += [*reads[name], name.rpartition(".")[0]]
    return loaded


def _layer(component: str) -> int:
    return next(rank for rank, components in enumerate(_LAYERS) if component in components)


def test_every_module_has_a_layer() -> None:
    strangers = {name.partition(".")[0] for name in modules()} - frozenset().union(*_LAYERS)
    assert not strangers, f"{sorted(strangers)} stand in no layer; put them into _LAYERS and ARCHITECTURE.md"


def test_lower_layers_never_import_higher_ones() -> None:
    faults = []
    for found in imports():
        reader, read = found.reader.partition(".")[0], found.read.partition(".")[0]
        if not found.is_ours or reader == read:
            continue
        above, below = _layer(reader), _layer(read)
        if below > above or (below == above and above not in _UNITED):
            faults.append(str(found))
    assert not faults


@pytest.mark.parametrize("folder", _PLUG_INS)
def test_plug_ins_never_import_each_other(folder: str) -> None:
    faults = [
        str(found)
        for found in imports()
        if found.is_ours
        and found.reader.startswith(f"{folder}.")
        and found.read.startswith(f"{folder}.")
        and _plug_in(found.read, folder) != _plug_in(found.reader, folder)
    ]
    assert not faults


def _plug_in(module: str, folder: str) -> str:
    """The plug-in that a module belongs to: one that exceeds a file is a folder."""
    return module.removeprefix(f"{folder}.").partition(".")[0]


def test_nobody_imports_a_preset_a_target_or_a_strategy_by_name() -> None:
    plug_ins = ("tables.policies", "tables.targets", "planner.strategies", "quantize.calibrators", "quantize.rounding")
    faults = [
        str(found)
        for found in imports()
        for folder in (*plug_ins, "reference")
        if found.is_ours
        and found.read.startswith(f"{folder}.")
        and _plug_in(found.read, folder) != _plug_in(found.reader, folder)
    ]
    assert not faults, "discovery finds them; a name in code would make adding one an edit of two files"


def _texts(tree: ast.Module) -> Iterator[str]:
    """The strings of a module, without its docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_name_of_a_target_stands_in_its_own_file_alone() -> None:
    """What is true of a target is a field of it, so that one more is one file more."""
    folder = "tables.targets."
    targets = {name.removeprefix(folder) for name in modules() if name.startswith(folder)}
    names = {name.replace("_", "-") for name in targets if "." not in name} - _OTHER_MEANINGS
    named = re.compile(rf"(?<![\w-])({'|'.join(sorted(names))})(?![\w-])")
    faults = [
        f"mezzo.{module} says {text!r}"
        for module, tree in modules().items()
        if not module.startswith(folder) and module not in _TARGETS_NAMED
        for text in _texts(tree)
        if named.search(text)
    ]
    assert not faults, "make it a field of the target (tables/target.py)"


def test_nobody_imports_a_front_end_by_name() -> None:
    faults = {
        found.reader: str(found)
        for found in imports()
        if found.is_ours
        and _inside(found.read, _FRONT_ENDS)
        and not _inside(found.reader, (*_FRONT_ENDS, *_ABOUT_ONE_FRONTEND))
    }
    assert not faults, "discovery picks the front end by the source; mezzo.contracts.frontend is what it is asked"
    readers = {found.reader for found in imports() if found.is_ours and _inside(found.read, _FRONT_ENDS)}
    idle = {name for name in _ABOUT_ONE_FRONTEND if not any(_inside(reader, (name,)) for reader in readers)}
    assert not idle & _rooms_and_modules(), "an exception that nobody needs any more"


def test_dialects_know_nothing_of_each_other() -> None:
    faults = [
        str(found)
        for found in imports()
        if found.is_ours
        and _inside(found.reader, _FRONT_ENDS)
        and _inside(found.read, _FRONT_ENDS)
        and found.read.partition(".")[0] != found.reader.partition(".")[0]
    ]
    assert not faults


@pytest.mark.parametrize(
    "library",
    sorted(_HOMES),
)
def test_library_is_imported_only_where_it_belongs(library: str) -> None:
    faults = [
        str(found)
        for found in imports()
        if not found.is_ours
        and found.read.partition(".")[0] == library
        and not _inside(found.reader, _HOMES[library])
        and not (found.is_for_types and found.reader.partition(".")[0] in _NAMED_ELSEWHERE)
    ]
    assert not faults


def test_modules_do_not_know_each_other_in_a_circle() -> None:
    """Imports for types count; those inside functions run when all is loaded, and are counted below."""
    reads: dict[str, set[str]] = {name: set() for name in modules()}
    for found in imports():
        if found.is_ours and not found.is_late and found.read in reads:
            reads[found.reader] |= {found.read} - {found.reader}
    while reads:
        ends = {name for name, needed in reads.items() if not needed & reads.keys()}
        assert ends, f"a circle among {sorted(reads)}"
        reads = {name: needed for name, needed in reads.items() if name not in ends}


def test_files_do_not_know_each_other_in_a_circle_by_late_imports_either() -> None:
    """Packages' faces load late what they hand on; all else that they import, the test before holds."""
    assert not cycles(without_inits(graph_of("mezzo", modules())))


def test_late_imports_are_few_and_have_a_reason() -> None:
    counts = Counter(found.reader.partition(".")[0] for found in imports() if found.is_late)
    for room, count in sorted(counts.items()):
        most, because = _LATE.get(room, (0, "no reason is given yet"))
        assert count <= most, (
            f"{room} has {count} imports inside functions, {most} are allowed ({because}); import at the top, or raise "
            "the number in _LATE with its reason"
        )


def _records(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """The dataclasses of a module: name, number of fields, and whether all behind the fourth are given by name."""
    for node in walk(tree):
        made = [ast.unparse(each) for each in node.decorator_list] if isinstance(node, ast.ClassDef) else []
        if not isinstance(node, ast.ClassDef) or not any(each.startswith("dataclass") for each in made):
            continue
        held = [each for each in node.body if isinstance(each, ast.AnnAssign) and "ClassVar" not in ast.unparse(each)]
        by_place = next((n for n, each in enumerate(held) if ast.unparse(each.annotation) == "KW_ONLY"), len(held))
        yield node.name, len(held), any("kw_only=True" in each for each in made) or by_place <= _MOST_BY_PLACE


def test_records_past_four_fields_are_built_by_keyword() -> None:
    """A field that is added later must not shift another's value."""
    faults = [
        f"{module}.{name}" for module, tree in modules().items() for name, _, is_safe in _records(tree) if not is_safe
    ]
    assert not faults, "add kw_only=True and name the fields where one is made"


def test_records_are_counted_as_they_are_built() -> None:
    code = "@dataclass(frozen=True)\nclass A:\n    {0}\n@dataclass(kw_only=True)\nclass B:\n    {0}"
    tree = ast.parse(code.format("a: int; b: int; c: int; d: int; e: int"))
    assert list(_records(tree)) == [("A", 5, False), ("B", 5, True)]


def _private_reads(reader: str, tree: ast.Module) -> Iterator[str]:
    """Private names that a module takes from another one of ours: imported, or as an attribute of what was imported."""
    imported = set()
    for node in walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "mezzo":
            imported |= {alias.asname or alias.name for alias in node.names}
            yield from (f"{reader} imports {a.name} of {node.module}" for a in node.names if _is_private(a.name))
    for node in walk(tree):
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported):
            continue
        if _is_private(node.attr) and node.attr not in _OF_TUPLES:
            yield f"{reader} line {node.lineno} reads {node.value.id}.{node.attr}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _is_private_path(path: str) -> bool:
    """Whether a dotted path of PyTorch has a private part; names of operators are public, underscore or not."""
    parts = path.split(".")
    return parts[0] == "torch" and parts[1:2] != ["ops"] and any(map(_is_private, parts[1:]))


def _torch_internals(tree: ast.Module) -> Iterator[str]:
    """Private names of PyTorch that a module imports or reads, and private attributes of objects other than itself."""
    for node in walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _is_private_path(alias.name))
        elif isinstance(node, ast.ImportFrom):
            paths = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (path for path in paths if _is_private_path(path))
        elif isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in _OF_TUPLES:
            path = ast.unparse(node)
            is_operator = path.startswith(("torch.ops.", "_ATEN.", "_ONEDNN."))
            if not is_operator and path.partition(".")[0] not in ("self", "cls"):
                yield path


def test_private_names_of_pytorch_are_in_one_place() -> None:
    faults = [
        f"mezzo.{name} reads {path}; take it from mezzo.{' or mezzo.'.join(_TORCH_INTERNALS)}"
        for name, tree in modules().items()
        if name.partition(".")[0] in _HOMES["torch"] and name not in _TORCH_INTERNALS
        for path in _torch_internals(tree)
        if _is_private_path(path) or path.rpartition(".")[2] not in _TORCH_ATTRIBUTES
    ]
    assert not faults


@pytest.mark.parametrize(
    "code",
    [
        "import torch._dynamo.config",
        "from torch._ops import OpOverload",
        "from torch import _C",
        "from torch.utils import _pytree as pytree",
        "isinstance(x, torch._ops.OpOverload)",
        "torch.autograd._get_sequence_nr()",
        "target._schema.name",
    ],
)
def test_a_private_name_of_pytorch_is_found(code: str) -> None:
    assert list(_torch_internals(ast.parse(code)))
    public = ast.parse("torch.ops.aten._to_copy.default, self._x, _ATEN._unsafe_view, x.__class__")
    assert not list(_torch_internals(public))


def test_no_module_takes_a_private_name_of_another() -> None:
    assert not [fault for reader, tree in modules().items() for fault in _private_reads(reader, tree)]


def test_private_names_are_found_however_they_are_taken() -> None:
    tree = ast.parse(
        "from mezzo.contracts import plans, _one\nplans._two, plans.three, plans.Plan._replace, other._four"
    )
    assert list(_private_reads("reader", tree)) == [
        "reader imports _one of mezzo.contracts",
        "reader line 2 reads plans._two",
    ]


def test_files_are_short_enough_for_one_idea() -> None:
    lines = {str(path.relative_to(_ROOT)): path.read_text(encoding="utf-8").count("\n") for path in _ROOT.rglob("*.py")}
    long = {name: count for name, count in lines.items() if count > _LONGEST}
    assert not long, f"{long}: a file of more than {_LONGEST} lines holds two ideas; split it by what it holds"


def test_folders_hold_few_files() -> None:
    packages = {name.partition(".")[0] for name in modules()} - {""}
    assert len(packages) <= _MOST_PACKAGES
    counts = Counter(
        path.parent.relative_to(_ROOT).as_posix() for path in _ROOT.rglob("*.py") if path.stem != "__init__"
    )
    large = {folder: n for folder, n in counts.items() if n > _MOST_FILES and not folder.startswith(_FAMILIES)}
    assert not large, f"{large}: put files that belong together into a folder of their own"


def test_every_package_says_what_is_in_it() -> None:
    folders = {path.parent for path in _ROOT.rglob("*.py")}
    texts = {folder: ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) for folder in folders}
    assert not [folder for folder, text in texts.items() if not text]


def test_every_package_has_its_tests_in_a_folder_of_its_name() -> None:
    """`mezzo.torch` alone has another: a folder called torch would be taken for PyTorch where that is not installed."""
    packages = {path.parent.name for path in _ROOT.glob("*/__init__.py")} - {"torch"} | {"pytorch"}
    folders = {path.parent.name for path in Path(__file__).parent.glob("*/test_*.py")}
    assert not packages - folders


@pytest.mark.parametrize("package", ["", "torch"])
def test_no_module_is_called_as_a_public_name_is(package: str) -> None:
    """Python makes a module that was imported an attribute of its package, where it would hide the public name."""
    (public,) = (
        ast.literal_eval(node.value)
        for node in modules()[package].body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    inside = {name.removeprefix(f"{package}.").partition(".")[0] for name in modules() if name.startswith(package)}
    assert not inside & set(public)


def _prose_reads(tree: ast.Module) -> Iterator[int]:
    """Lines that take a sentence for people apart, or look for words in one: of an error, or of a reason."""
    errors = {node.name for node in walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}

    def is_prose(node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str":
            return any(isinstance(each, ast.Name) and each.id in errors | {"error"} for each in node.args)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("lower", "strip"):
            return is_prose(node.func.value)
        if isinstance(node, ast.Name):
            return node.id in ("fault", "because", "message")
        return isinstance(node, ast.Attribute) and node.attr in _SENTENCES

    for node in walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            parts = [each for each in node.comparators if not isinstance(each, ast.Tuple)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_regex = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
            is_taking_apart = node.func.attr in _TAKING_APART or (node.func.attr == "split" and node.args)
            parts = node.args if is_regex else [node.func.value] if is_taking_apart else []
        if any(is_prose(part) for part in parts):
            yield parts[0].lineno


def test_sentences_for_people_are_never_read_by_code() -> None:
    reads = {module: len(list(_prose_reads(tree))) for module, tree in modules().items()}
    assert {module: count for module, count in reads.items() if count} == {m: n for m, (n, _) in _PROSE_READ.items()}


@pytest.mark.parametrize(
    "code",
    [
        "try: pass\nexcept E as fault: fault_is = 'x' in str(fault)",
        "str(error).startswith('no')",
        "node.because.removeprefix('cannot tell: ')",
        "re.sub('x', '', line.because)",
        "str(error).strip().lower().partition(':')",
        "'word' in verdict.because",
    ],
)
def test_code_that_reads_a_sentence_is_found(code: str) -> None:
    assert len(list(_prose_reads(ast.parse(code)))) == 1
    assert not list(
        _prose_reads(ast.parse("' '.join(str(error).split()), line.because in (a, b), {**note}, 'x' in names"))
    )


@pytest.mark.parametrize("library", _LATE_LIBRARIES)
def test_library_is_loaded_when_a_model_of_its_own_is_there(library: str) -> None:
    """Nothing imports it but its home; what `import mezzo` and discovery load at once is at home nowhere."""
    homes = _HOMES[library]
    found_by_discovery = [name for name in modules() if name in _FRONT_ENDS]
    at_once = _loaded_by([*(name for name in modules() if not _inside(name, homes)), *found_by_discovery])
    faults = [
        str(found)
        for found in imports()
        if found.read.partition(".")[0] == library
        and not found.is_ours
        and not found.is_late
        and not found.is_for_types
        and found.reader in at_once
    ]
    assert not faults, "import the module that imports it inside a function"


def test_runtimes_are_loaded_where_their_telemetry_is_turned_off() -> None:
    """Nobody else asks for them by a text either."""
    faults = [
        f"mezzo.{name} calls {ast.unparse(node)}; take it from mezzo.onnx.run.runtime_libraries"
        for name, tree in modules().items()
        if name not in _HOMES["onnxruntime"]
        for node in walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__"))
        if any(ast.unparse(word).startswith(("'onnxruntime", "'openvino")) for word in node.args)
    ]
    assert not faults


def test_without_pytorch_its_integration_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from mezzo.aten import torch_versions as versions\n"
        "versions.find_version = lambda name: None\ntry: import mezzo.torch\nexcept Exception as error: print(error)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.startswith(
        "mezzo.torch needs PyTorch, which is not installed; install it: pip install torch=="
    )


def test_importing_the_package_loads_no_heavy_library() -> None:
    code = "import sys, mezzo; print(*sorted(m for m in sys.modules if '.' not in m))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(answer.stdout.split())
    assert "mezzo" in loaded
    assert not loaded & {"torch", "onnxruntime", "onnx", "onnx_ir", "scipy", "numpy", "ml_dtypes", "rich", "typer"}
