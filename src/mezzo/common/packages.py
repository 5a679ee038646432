"""The packages that mezzo stands on and those it can use: how each is found, not importing it, and how to get it."""

from collections.abc import Mapping
from dataclasses import dataclass

from mezzo.common.errors import InputError

# mezzo's own.
VERSION = "0.1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One package. `name` is what pip installs, `module` what Python imports.

    `variants`: other distributions of the same module. `extra`: the extra of mezzo that brings it; None where mezzo
    always brings it, or never. `purpose`: what it is here for. `needs`: those of these packages without which it does
    not import.
    """

    name: str
    module: str
    purpose: str
    variants: tuple[str, ...] = ()
    extra: str | None = None
    needs: tuple[str, ...] = ()


_ONNXRUNTIME_VARIANTS = (
    "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino", "onnxruntime-qnn", "onnxruntime-rocm",
    "onnxruntime-migraphx",
)  # fmt: skip
# What mezzo cannot work without.
BASE: tuple[Package, ...] = (
    Package(name="numpy", module="numpy", purpose="numbers"),
    Package(name="ml_dtypes", module="ml_dtypes", purpose="BF16 and FP8 numbers", needs=("numpy",)),
    Package(name="protobuf", module="google.protobuf", purpose="the encoding of models"),
    Package(
        name="onnx", module="onnx", purpose="reads, checks and writes models", needs=("numpy", "ml_dtypes", "protobuf")
    ),
    Package(
        name="onnxruntime",
        module="onnxruntime",
        purpose="runs models, emulated ones too",
        variants=_ONNXRUNTIME_VARIANTS,
        needs=("numpy",),
    ),
    Package(name="typer", module="typer", purpose="the command line"),
    Package(name="rich", module="rich", purpose="reports in a terminal"),
)
# What it can ask, or what runs its results.
OPTIONAL: tuple[Package, ...] = (
    Package(
        name="onnx-ir",
        module="onnx_ir",
        purpose="holds models; mezzo takes them as it takes those of onnx",
        extra="onnx-ir",
        needs=("numpy", "ml_dtypes", "onnx"),
    ),
    Package(
        name="openvino",
        module="openvino",
        purpose="runs and times results",
        extra="openvino",
    ),
    Package(
        name="tensorrt",
        module="tensorrt",
        purpose="runs results on NVIDIA's GPUs",
        variants=("tensorrt-cu13", "tensorrt-cu12"),
    ),
    Package(
        name="torch",
        module="torch",
        purpose="its modules are sources; compiles and exports them",
        extra="torch",
    ),
    Package(
        name="ray",
        module="ray",
        purpose="spreads work on data over processes and machines",
        extra="ray",
    ),
)
PACKAGES: Mapping[str, Package] = {package.name: package for package in (*BASE, *OPTIONAL)}


def find_version(name: str) -> str | None:
    """The installed version of a package, or of a variant of it; None where none is installed."""
    installed = find_installed(name)
    return installed[0][1] if installed else None


def find_installed(name: str) -> tuple[tuple[str, str], ...]:
    """The distributions that bring a package's module, with their versions. Two of them overwrite each other."""
    # Late: reading metadata takes longer than everything else a command's start needs.
    from importlib.metadata import PackageNotFoundError, version

    package = PACKAGES.get(name)
    installed = []
    for distribution in (name, *(() if package is None else package.variants)):
        try:
            installed.append((distribution, version(distribution)))
        except PackageNotFoundError:
            continue
    return tuple(installed)


def find_requirement(name: str) -> str | None:
    """What mezzo's own metadata demands of a package: "onnx<2,>=1.20". None where it demands nothing.

    Of a package that an extra brings: what that extra demands. Others may pin it for a purpose of their own.
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("mezzo") or []
    except PackageNotFoundError:  # run from a folder of sources
        return None
    wanted = _normal(name)
    package = PACKAGES.get(name)
    extra = None if package is None else package.extra
    for line in lines:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        if extra is not None and _normal(extra) not in _normal(marker).replace("'", '"').split('"'):
            continue
        end = next((place for place, sign in enumerate(requirement) if sign in "<>=!~[ ("), len(requirement))
        if _normal(requirement[:end]) == wanted:
            return requirement
    return None


def is_within(version: str, requirement: str) -> bool:
    """Whether a version keeps the bounds `>=`, `<` of a requirement; other operators are not judged."""
    start = next((place for place, sign in enumerate(requirement) if sign in "<>=!~"), len(requirement))
    for bound in requirement[start:].split(","):
        text = bound.strip()
        if text.startswith(">=") and _numbers(version) < _numbers(text[2:]):
            return False
        if text.startswith("<") and not text.startswith("<=") and _numbers(version) >= _numbers(text[1:]):
            return False
    return True


def spell_install(name: str) -> str:
    """The command that installs a package as mezzo wants it, for POSIX shells and Windows alike."""
    package = PACKAGES.get(name)
    is_ours = package is not None and (package in BASE or package.extra is not None)
    requirement = find_requirement(name) if is_ours else None
    return f"pip install {name}" if requirement is None else f'pip install "{requirement}"'


def spell_reinstall(name: str) -> str:
    """The command that puts a package that does not work in order, and leaves the others alone."""
    return f'pip install --force-reinstall --no-deps "{find_requirement(name) or name}"'


def missing(name: str, feature: str, otherwise: str = "") -> InputError:
    """The error of a feature whose package is not installed: what it needs and the command that brings it."""
    return InputError(f"{feature}: {name} is not installed; {spell_install(name)}{otherwise}")


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _numbers(version: str) -> tuple[int, ...]:
    """The release of a version as numbers, without ends of zeros: "1.20.0rc1" is (1, 20)."""
    numbers = []
    for part in version.strip().partition("+")[0].split("."):
        digits = part[: next((place for place, sign in enumerate(part) if not sign.isdigit()), len(part))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
