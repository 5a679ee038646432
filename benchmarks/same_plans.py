"""Says whether two checkouts of mezzo plan alike: a digest of the plan file per model, format, policy and strategy.

    PYTHONPATH=BEFORE/src python benchmarks/same_plans.py --write out/before.txt
    PYTHONPATH=AFTER/src python benchmarks/same_plans.py --against out/before.txt

Run it from one place, so that both see the same models. Each policy is taken with min-cut and each strategy with
`balanced`; `--every-pair` takes all of them together, `--way '* mincut'` those that a glob matches. A model that is
refused has a digest of the message. `--decisions` takes one of what each operator runs in alone, by names that every
version of mezzo has: checkouts whose plan files differ in form are compared by it, and by `--converted`, the converted
model alone. `--files` takes a digest of the plan and one of the converted model. `--against` prints what differs and
ends with 1 if anything does; `--show golden/casts/already_low fp16 balanced mincut` prints that one plan, to lay beside
the other checkout's.
"""

import argparse
import fnmatch
import hashlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
from suites import architectures, operators

import mezzo

_GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden"
_FORMATS = ("fp16", "bf16")


@dataclass(frozen=True, slots=True)
class Way:
    """How a model is planned."""

    to: str
    policy: str
    strategy: str

    def __str__(self) -> str:
        return f"{self.to} {self.policy} {self.strategy}"

    def plan(self, model: onnx.ModelProto) -> str:
        """The plan file, or the message of the refusal."""
        from mezzo.io.planfile import to_json

        try:
            return to_json(mezzo.plan(model, to=self.to, policy=self.policy, strategy=self.strategy))
        except mezzo.MezzoError as error:
            return f"{type(error).__name__}: {error}\n"

    def decide(self, model: onnx.ModelProto) -> str:
        """What each operator and weight runs in, or that the model is refused."""
        try:
            plan = mezzo.plan(model, to=self.to, policy=self.policy, strategy=self.strategy)
        except mezzo.MezzoError:
            return "refused\n"
        inside = [node for node in plan.nodes if node.kind not in ("input", "output")]
        return "".join(f"{node.name}: {node.precision.compute}\n" for node in inside)

    def convert(self, model: onnx.ModelProto) -> bytes:
        """The file that a conversion writes, or the message of the refusal."""
        try:
            converted = mezzo.convert(model, to=self.to, policy=self.policy, strategy=self.strategy)
        except mezzo.MezzoError as error:
            return f"{type(error).__name__}: {error}\n".encode()
        return converted.model.SerializeToString(deterministic=True)


def every_way(is_every_pair: bool, pattern: str) -> tuple[Way, ...]:
    """The ways that are tried, in order: those whose "format policy strategy" the glob matches."""
    found = _discovery()
    names = sorted(found.policies()), sorted(found.strategies())
    pairs = (
        list(product(*names))
        if is_every_pair
        else [
            *((policy, "mincut") for policy in names[0]),
            *(("balanced", name) for name in names[1] if name != "mincut"),
        ]
    )
    ways = (Way(to, policy, strategy) for to in _FORMATS for policy, strategy in pairs)
    return tuple(way for way in ways if fnmatch.fnmatchcase(str(way), pattern))


def _discovery() -> Any:
    """What finds policies and strategies, here or in a checkout of before it had a folder."""
    try:
        return import_module("mezzo.plugins.discovery")
    except ModuleNotFoundError:
        return import_module("mezzo.discovery")


def golden() -> Iterator[tuple[str, onnx.ModelProto]]:
    """The models of the golden cases, whatever options the cases give."""
    for path in sorted(_GOLDEN.glob("*/*.txt")):
        text = path.read_text(encoding="utf-8").partition("--- before\n")[2].partition("\n--- ")[0]
        yield f"golden/{path.relative_to(_GOLDEN).with_suffix('').as_posix()}", onnx.parser.parse_model(text)


def models_of(suites: Sequence[str], cache: Path) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Models by name, suite by suite."""
    for suite in suites:
        match suite:
            case "golden":
                yield from golden()
            case "operators":
                yield from ((f"operators/{case.name}", case.model) for case in operators())
            case _:
                yield from ((f"architectures/{case.name}", case.model) for case in architectures(cache))


# What is compared of a model, by the option's word.
_COMPARED: Mapping[str, tuple[Callable[[Way, onnx.ModelProto], str | bytes], ...]] = {
    "plans": (Way.plan,),
    "decisions": (Way.decide,),
    "converted": (Way.convert,),
    "files": (Way.plan, Way.convert),
}


def digest(data: str | bytes) -> str:
    """A name for a text or for bytes."""
    held = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return hashlib.sha256(held).hexdigest()[:16]


def digest_model(name: str, data: bytes, ways: Sequence[Way], of: str) -> dict[str, str]:
    """The digests of a model by "model, format, policy, strategy"."""
    warnings.filterwarnings("ignore")
    model = onnx.ModelProto.FromString(data)
    found = {}
    for way in ways:
        found[f"{name} {way}"] = " ".join(digest(make(way, model)) for make in _COMPARED[of])
    return found


def digest_all(options: argparse.Namespace) -> dict[str, str]:
    """The digests of every model, in order; tells how far it is."""
    ways, found = every_way(options.every_pair, options.way), dict[str, str]()
    with ProcessPoolExecutor(options.jobs) as pool:
        jobs = [
            (name, pool.submit(digest_model, name, model.SerializeToString(), ways, options.of))
            for name, model in models_of(options.suite, options.cache)
        ]
        for done, (name, job) in enumerate(jobs, 1):
            found |= job.result()
            if done % 100 == 0 or done == len(jobs):
                print(f"{done} of {len(jobs)} models, {name}", file=sys.stderr)
    return found


def _is_asked(key: str, options: argparse.Namespace) -> bool:
    name, _, way = key.partition(" ")
    return name.partition("/")[0] in options.suite and fnmatch.fnmatchcase(way, options.way)


def compare(now: dict[str, str], options: argparse.Namespace) -> bool:
    """Print what differs from a file written before, in what both were asked for; says whether all is alike."""
    lines = options.against.read_text(encoding="utf-8").splitlines()
    then = {key: value for key, value in (line.split(": ", 1) for line in lines) if _is_asked(key, options)}
    changed = [key for key in then.keys() & now.keys() if then[key] != now[key]]
    for key in sorted(changed):
        print(f"differs: {key}")
    lost, new = sorted(then.keys() - now.keys()), sorted(now.keys() - then.keys())
    for word, keys in (("only before", lost), ("only now", new)):
        for key in keys[:10]:
            print(f"{word}: {key}")
    both = len(then.keys() & now.keys())
    print(f"{both} plans in both, {len(changed)} differ; {len(lost)} only before, {len(new)} only now")
    return not (changed or lost or new)


def show(options: argparse.Namespace) -> None:
    """Print the plan file of one line."""
    name, to, policy, strategy = options.show
    model = next(model for found, model in models_of([name.partition("/")[0]], options.cache) if found == name)
    print(Way(to, policy, strategy).plan(model), end="")


def main() -> int:
    """Plan everything, write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", nargs="+", choices=("golden", "operators", "architectures"),
                        default=["golden", "operators", "architectures"])  # fmt: skip
    parser.add_argument("--cache", type=Path, default=Path("out/architectures"), help="folder of architectures.py")
    parser.add_argument("--every-pair", action="store_true", help="every policy with every strategy")
    parser.add_argument("--way", default="*", metavar="GLOB", help="only ways that match, such as 'fp16 * mincut'")
    parser.add_argument("--files", dest="of", action="store_const", const="files", default="plans",
                        help="take a digest of converted models too")  # fmt: skip
    parser.add_argument("--decisions", dest="of", action="store_const", const="decisions",
                        help="take a digest of what each node runs in, not of the plan file")  # fmt: skip
    parser.add_argument("--converted", dest="of", action="store_const", const="converted",
                        help="take a digest of the converted model, not of the plan file")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", type=Path, help="write the digests here")
    parser.add_argument("--against", type=Path, help="compare with digests written before")
    parser.add_argument("--show", nargs=4, metavar=("MODEL", "FORMAT", "POLICY", "STRATEGY"), help="print one plan")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if options.show:
        show(options)
        return 0
    now = digest_all(options)
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text("".join(f"{key}: {value}\n" for key, value in now.items()), encoding="utf-8")
    return 0 if options.against is None or compare(now, options) else 1


if __name__ == "__main__":
    sys.exit(main())
