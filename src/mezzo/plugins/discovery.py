"""Plug-in discovery: policies, targets, strategies, calibrators, roundings, exporters of plans and
front ends of mezzo and of other packages. Adding one adds a file, or a package, and edits none.

A plug-in is imported when requested by name, or when all are listed, not before. A built-in module
has the name of its plug-in, with "_" for "-".
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from types import MappingProxyType, ModuleType
from typing import Any, Generic, TypeVar

from mezzo.common.errors import InputError
from mezzo.common.name_matching import settle
from mezzo.common.packages import PACKAGES
from mezzo.contracts.calibrator import NO_CALIBRATOR, Calibrator
from mezzo.contracts.frontend import Frontend
from mezzo.contracts.rounding import Rounding
from mezzo.contracts.strategy import Strategy
from mezzo.formats.dtypes import DType
from mezzo.formats.format_words import WEIGHT_BITS
from mezzo.io.plan_export import PlanExporter
from mezzo.plugins.built_in import BuiltIn, built_in, import_and_read
from mezzo.plugins.entries import BUILT_IN, Origin, PluginEntry, entries
from mezzo.tables.facts import OpFacts
from mezzo.tables.files.policyfile import read_policy
from mezzo.tables.files.targetfile import read_target
from mezzo.tables.ops import op_facts as built_in_facts
from mezzo.tables.policy import Policy
from mezzo.tables.policy_function import policy_of
from mezzo.tables.target import Target

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
# Looks up a plug-in of the same kind by name.
_Find = Callable[[str], _T]


@dataclass(frozen=True, eq=False)
class Table(Mapping[str, _T]):
    """All plug-ins of one kind by name. `origins`: their packages; `broken`: one line for each that
    failed to load.
    """

    things: Mapping[str, _T]
    origins: Mapping[str, Origin]
    broken: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> _T:
        return self.things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.things)

    def __len__(self) -> int:
        return len(self.things)


@dataclass(frozen=True, slots=True)
class _Kind(Generic[_T]):
    """How plug-ins of one kind are loaded: built-in ones, and those of other packages. `file`:
    what else is accepted in place of a name; `words`: accepted names without a plug-in.
    """

    name: str
    built_in: Mapping[str, _T]
    load: Callable[[PluginEntry, _Find[_T]], _T]
    file: str = ""
    _: KW_ONLY
    words: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """All accepted names, without imports."""
        return tuple(
            sorted({*self.words, *self.built_in, *(entry.name for entry in entries(self.name))})
        )

    def find(self, name: str, trail: tuple[str, ...] = ()) -> _T:
        """The plug-in of a name. Raises InputError: no such name, two of that name, or a broken
        plug-in. `trail`: the plug-ins that build on this one (`base` of a file), to detect cycles.
        """
        name = self.settle(name)
        if name in trail:
            raise InputError(
                f"{self.name} {name!r} depends on itself ({' on '.join((*trail, name))}); mend its"
                " base"
            )
        declared = [entry for entry in entries(self.name) if entry.name == name]
        self._check_unique(declared)
        if declared:
            return self.load(declared[0], lambda base: self.find(base, (*trail, name)))
        return self.built_in[name]

    def settle(self, word: str, what: str | None = None) -> str:
        """The name that a word means, by name or alias; for aliases the built-in plug-ins are
        imported.

        Raises InputError: no match, or several. `what`: the name of the argument, for the message.
        """
        names = self.names()
        if word in names:
            return word
        aliases = {
            name: getattr(self.built_in[name], "also", ()) if name in self.built_in else ()
            for name in names
        }
        return settle(
            what or self.name,
            word,
            aliases,
            f", or write {self.file} of your own" if self.file else "",
        )

    def table(self) -> Table[_T]:
        """All plug-ins. Raises InputError: two have one name."""
        declared = entries(self.name)
        self._check_unique(declared)
        things, origins = dict(self.built_in), dict.fromkeys(self.built_in, BUILT_IN)
        broken: list[str] = []
        for entry in declared:
            try:
                things[entry.name] = self.find(entry.name)
                origins[entry.name] = entry.origin
            except InputError as error:
                broken.append(f"left out: {error}")
        return Table(MappingProxyType(things), MappingProxyType(origins), tuple(broken))

    def _check_unique(self, declared: Sequence[PluginEntry]) -> None:
        by_name = dict.fromkeys(self.built_in, BUILT_IN)
        for entry in declared:
            first = by_name.setdefault(entry.name, entry.origin)
            if first is not entry.origin:
                rival = "mezzo itself" if first.is_built_in else str(first)
                raise InputError(
                    f"{self.name} {entry.name!r} is taken twice, by {rival} and by {entry.origin};"
                    " uninstall one"
                )


def _reader(constant: str) -> Callable[[ModuleType, str], Any]:
    """A function that reads a plug-in from a constant of its module."""

    def read(module: ModuleType, name: str) -> Any:
        thing = getattr(module, constant)
        assert thing.name == name, (
            f"{thing.name!r} is in the module of {name!r}; give both one name"
        )
        return thing

    return read


def _class_reader(base: Any) -> Callable[[ModuleType, str], Any]:
    """A function that instantiates the class of a module that derives from `base`."""

    def read(module: ModuleType, name: str) -> Any:
        classes = [thing for thing in vars(module).values() if isinstance(thing, type)]
        (own_class,) = (
            thing
            for thing in classes
            if issubclass(thing, base)
            and thing.__module__ == module.__name__
            and getattr(thing, "name", None) == name
        )
        return own_class()

    return read


def _load_policy(entry: PluginEntry, find: _Find[Policy]) -> Policy:
    loaded = _load_file(entry, read_policy, find) if entry.is_file else entry.load()
    if not isinstance(loaded, Policy) and callable(loaded):
        function = loaded
        loaded = _try_out(entry, lambda: policy_of(function, find("balanced"), entry.name))
    if not isinstance(loaded, Policy):
        raise entry.fault(
            f"it is a {type(loaded).__name__}, wanted a mezzo.tables.policy.Policy or a function of"
            " a node"
        )
    _try_out(entry, lambda: loaded.judge(("onnx", "Add"), None, DType.FLOAT16))
    return _check_texts(entry, loaded, loaded.name, loaded.summary)


def _load_target(entry: PluginEntry, find: _Find[Target]) -> Target:
    loaded = _load_file(entry, read_target, find) if entry.is_file else entry.load()
    if not isinstance(loaded, Target):
        raise entry.fault(f"it is a {type(loaded).__name__}, wanted a mezzo.tables.target.Target")
    _try_out(entry, lambda: loaded.refusal("onnx", "Add", 1, {}, DType.FLOAT16))
    return _check_texts(entry, loaded, loaded.name, loaded.summary)


def _load_class(base: Any, texts: Sequence[str], entry: PluginEntry, find: _Find[_T]) -> Any:
    """An object of an entry point's class. `texts`: attributes that are text, first `name`.

    Raises InputError: the class does not derive from `base`.
    """
    loaded = entry.load()
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise entry.fault(f"it is no class that derives from {base.__module__}.{base.__name__}")
    instance = _try_out(entry, loaded)
    return _check_texts(
        entry, instance, *_try_out(entry, lambda: [getattr(instance, text) for text in texts])
    )


def _load_frontend(entry: PluginEntry, find: _Find[Frontend]) -> Frontend:
    loaded = entry.load()
    if not isinstance(loaded, Frontend):
        raise entry.fault(
            f"it is a {type(loaded).__name__}, wanted a mezzo.contracts.frontend.Frontend"
        )
    _try_out(entry, lambda: (loaded.opens(None), loaded.suffixes, loaded.words.sources))
    return _check_texts(entry, loaded, loaded.name, loaded.dialect)


def _load_file(
    entry: PluginEntry, read: "Callable[[str, str, _Find[_T]], _T]", find: _Find[_T]
) -> _T:
    text = entry.read_text()
    try:
        return read(text, entry.name, find)
    except InputError as error:
        raise entry.fault(str(error)) from error


def _try_out(entry: PluginEntry, use: Callable[[], _T]) -> _T:
    """Call it once, so that a malformed plug-in fails here, with its name in the error."""
    try:
        return use()
    except Exception as error:
        raise entry.fault(f"{type(error).__name__}: {error}") from error


def _check_texts(entry: PluginEntry, loaded: _T, name: str, *others: str) -> _T:
    """Check that a plug-in has its entry point's name, and that its texts are strings."""
    if name != entry.name:
        raise entry.fault(f"it calls itself {name!r}; give it the name of its entry point")
    if not all(isinstance(text, str) for text in others):
        raise entry.fault("its summary is no text")
    return loaded


# The package of each front end.
_FRONTEND_PACKAGES = (("onnx", "mezzo.onnx"), ("torch", "mezzo.aten"))
_POLICIES: _Kind[Policy] = _Kind(
    "policy",
    built_in("mezzo.tables.policies", _reader("POLICY"), "policy"),
    _load_policy,
    "a .toml file",
)
_TARGETS: _Kind[Target] = _Kind(
    "target", built_in("mezzo.tables.targets", _reader("TARGET")), _load_target, "a .toml file"
)
_STRATEGIES: _Kind[Strategy] = _Kind(
    "strategy",
    built_in("mezzo.planner.strategies", _class_reader(Strategy), "strategy"),
    partial(_load_class, Strategy, ("name", "summary", "because")),
)
_CALIBRATORS: _Kind[Calibrator] = _Kind(
    "calibrator",
    built_in("mezzo.quantize.calibrators", _class_reader(Calibrator)),
    partial(_load_class, Calibrator, ("name", "summary")),
    words=(NO_CALIBRATOR,),
)
_ROUNDINGS: _Kind[Rounding] = _Kind(
    "rounding",
    built_in("mezzo.quantize.rounding", _class_reader(Rounding)),
    partial(_load_class, Rounding, ("name", "summary")),
)
_EXPORTERS: _Kind[PlanExporter] = _Kind(
    "exporter",
    built_in("mezzo.io.exports", _class_reader(PlanExporter)),
    partial(_load_class, PlanExporter, ("name", "tool", "summary")),
)
_FRONTENDS: _Kind[Frontend] = _Kind(
    "front end",
    BuiltIn(
        lambda: {
            name: partial(import_and_read, package, _reader("FRONTEND"), name)
            for name, package in _FRONTEND_PACKAGES
        }
    ),
    _load_frontend,
)
_KINDS: Mapping[
    str,
    "_Kind[Policy] | _Kind[Target] | _Kind[Strategy] | _Kind[Calibrator] | _Kind[Rounding]"
    " | _Kind[PlanExporter]",
] = MappingProxyType(
    {
        kind.name: kind
        for kind in (_POLICIES, _TARGETS, _STRATEGIES, _CALIBRATORS, _ROUNDINGS, _EXPORTERS)
    }
)


def policies() -> Table[Policy]:
    """All policies: POLICY of each module of `mezzo.tables.policies`, and entry points of
    "mezzo.policies", which mezzo's package `reference` has too.

    Raises InputError: two have one name. The same holds for `targets`, `strategies` and
    `calibrators`.
    """
    return _POLICIES.table()


def targets() -> Table[Target]:
    """All targets: TARGET of each module of `mezzo.tables.targets`, and entry points of
    "mezzo.targets".
    """
    return _TARGETS.table()


def built_in_targets() -> Mapping[str, Target]:
    """The targets shipped with mezzo."""
    return _TARGETS.built_in


def default_target(formats: str) -> Target | None:
    """mezzo's own target for a request of formats that names none; None if no target is its
    default. `formats`: such as "bf16" or "int8,bf16". Formats of weights with others follow
    these.
    """
    words = formats.split(",")
    others = [word for word in words if word not in WEIGHT_BITS]
    asked = ",".join(others or words)
    return next(
        (target for target in built_in_targets().values() if asked in target.default_for), None
    )


def target_for_device(device: str) -> Target | None:
    """mezzo's own target for programs on a type of PyTorch device; None if there is none."""
    return next(
        (
            target
            for target in built_in_targets().values()
            if target.runtime is not None and target.runtime.device == device
        ),
        None,
    )


def runnable_targets() -> Mapping[str, Target]:
    """mezzo's own targets whose runtimes have a driver and are packages of mezzo's table, by name,
    in the table's order.
    """
    packages = [*PACKAGES]
    runnable = [
        (packages.index(target.runtime.package), name)
        for name, target in built_in_targets().items()
        if target.runtime is not None
        and target.runtime.driver is not None
        and target.runtime.package in PACKAGES
    ]
    return {name: built_in_targets()[name] for _, name in sorted(runnable)}


def strategies() -> Table[Strategy]:
    """All strategies: the subclass in each module of `mezzo.planner.strategies`, and entry points
    of "mezzo.strategies".
    """
    return _STRATEGIES.table()


def calibrators() -> Table[Calibrator]:
    """All calibrators: those of `mezzo.quantize.calibrators`, and entry points of
    "mezzo.calibrators".
    """
    return _CALIBRATORS.table()


def frontends() -> Table[Frontend]:
    """All front ends: FRONTEND of `mezzo.onnx` and `mezzo.aten`, and entry points of
    "mezzo.frontends".
    """
    return _FRONTENDS.table()


def frontend_of(source: object, *, warns: bool = True) -> Frontend:
    """The front end that opens a source: for a path by file name suffix, else by type. `warns`: log
    broken front ends if one of them may have been meant.

    Raises InputError: no front end opens it, or several do.
    """
    table = frontends()
    if isinstance(source, str | os.PathLike):
        label, name = repr(os.fspath(source)), os.fspath(source).lower()
        matches = [
            end for end in table.values() if any(s and name.endswith(s) for s in end.suffixes)
        ]
        if not matches:
            matches = [end for end in table.values() if "" in end.suffixes]
            # The file may be for a front end that failed to load.
            for line in table.broken if warns else ():
                _log.warning("%s", line)
    else:
        label = f"a {type(source).__name__}"
        matches = [end for end in table.values() if end.opens(source)]
    if not matches:
        accepted = ["a path", *(words for end in table.values() for words in end.words.sources)]
        expected = f"{', '.join(accepted[:-1])} or {accepted[-1]}"
        raise InputError("; ".join([f"source is {label}, wanted {expected}", *table.broken]))
    if len(matches) > 1:
        ends = " and ".join(repr(end.name) for end in matches)
        raise InputError(f"source {label} is opened by front ends {ends}; uninstall all but one")
    return matches[0]


def version_word(dialect: str) -> str:
    """The user's term for a dialect's versions: "opset" for ONNX."""
    return next(
        (end.words.version for end in frontends().values() if end.dialect == dialect), "version"
    )


def op_facts(dialect: str) -> Mapping[str, OpFacts]:
    """Facts of a dialect's operators, from mezzo's tables or a front end; empty for an unknown
    dialect.
    """
    tables = built_in_facts(dialect)
    if tables or not dialect:
        return tables
    return next(
        (end.facts[dialect] for end in frontends().values() if dialect in end.facts), tables
    )


def policy(name: str) -> Policy:
    """A policy by name. Raises InputError: no such name, two, or a broken one. The same for the
    five below.
    """
    return _POLICIES.find(name)


def target(name: str) -> Target:
    return _TARGETS.find(name)


def strategy(name: str) -> Strategy:
    return _STRATEGIES.find(name)


def calibrator(name: str) -> Calibrator:
    return _CALIBRATORS.find(name)


def rounding(name: str) -> Rounding:
    return _ROUNDINGS.find(name)


def exporter(name: str) -> PlanExporter:
    return _EXPORTERS.find(name)


def names(kind: str) -> tuple[str, ...]:
    """Accepted names of a "policy", "target", "strategy", "calibrator", "rounding" or "exporter",
    without imports.
    """
    return _KINDS[kind].names()


def settle_name(kind: str, word: str, what: str | None = None) -> str:
    """The name of a "policy", "target", "strategy" or "calibrator" that a word means, by name or
    alias.

    Raises InputError: no match, or several. `what`: the name of the argument, for the message.
    """
    return _KINDS[kind].settle(word, what)


def is_built_in(kind: str, name: str) -> bool:
    """Whether a name is a built-in plug-in's."""
    return name in _KINDS[kind].built_in
