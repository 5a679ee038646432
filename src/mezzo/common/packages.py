"""Required and optional packages of mezzo: installed versions, found without importing, and install
commands.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mezzo.common.errors import InputError

# Parts of requirements and versions: what ends a package's name, a bound, the release.
_NAME_END = re.compile(r"[<>=!~\[ (]")
_BOUND = re.compile(r"(>=|<(?!=))\s*([^,]+)")
_RELEASE = re.compile(r"\s*(\d+(?:\.\d+)*)")
# The version of mezzo.
VERSION = "0.1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package. `name` is the distribution for pip, `module` the import name.

    `variants`: other distributions of the same module. `extra`: the extra of mezzo that installs
    it; None for required packages and for those that mezzo never installs. `purpose`: its use in
    mezzo. `needs`: packages of this table that it imports.
    """

    name: str
    module: str
    purpose: str
    variants: tuple[str, ...] = ()
    extra: str | None = None
    needs: tuple[str, ...] = ()


_ONNXRUNTIME_VARIANTS = (
    "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino", "onnxruntime-qnn",
    "onnxruntime-rocm", "onnxruntime-migraphx",
)  # fmt: skip
# Required packages.
BASE: tuple[Package, ...] = (
    Package(name="numpy", module="numpy", purpose="numbers"),
    Package(name="ml_dtypes", module="ml_dtypes", purpose="BF16 and FP8 numbers", needs=("numpy",)),
    Package(name="protobuf", module="google.protobuf", purpose="the encoding of models"),
    Package(
        name="onnx",
        module="onnx",
        purpose="reads, checks and writes models",
        needs=("numpy", "ml_dtypes", "protobuf"),
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
# Optional packages: front ends, probed runtimes, and runtimes of converted models.
OPTIONAL: tuple[Package, ...] = (
    Package(
        name="onnx-ir",
        module="onnx_ir",
        purpose="holds models; mezzo takes them as it takes those of onnx",
        extra="onnx-ir",
        needs=("numpy", "ml_dtypes", "onnx"),
    ),
    Package(
        name="onnxruntime-genai",
        module="onnxruntime_genai",
        purpose="exports language models, and runs them",
        extra="onnxruntime-genai",
    ),
    Package(
        name="openvino",
        module="openvino",
        purpose="runs and times results",
        extra="openvino",
    ),
    Package(
        name="openvino-genai",
        module="openvino_genai",
        purpose="runs language models on OpenVINO",
        extra="openvino-genai",
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
        name="pillow",
        module="PIL",
        purpose="decodes images that are data",
        extra="pillow",
    ),
    Package(
        name="tokenizers",
        module="tokenizers",
        purpose="splits text that is data into tokens",
        extra="tokenizers",
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
    """The installed version of a package or of one of its variants; None if none is installed."""
    installed = find_installed(name)
    return installed[0][1] if installed else None


def find_installed(name: str) -> tuple[tuple[str, str], ...]:
    """Installed distributions that provide a package's module, with versions. Two of them overwrite
    each other's files.
    """
    # Imported late: reading metadata dominates the start-up time of a command.
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
    """The version requirement in mezzo's metadata, such as "onnx<2,>=1.20"; None if there is none.

    For a package of an extra, that extra's requirement; other extras may pin it differently.
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("mezzo") or []
    except PackageNotFoundError:  # run from a folder of sources
        return None
    normal_name = _normal(name)
    package = PACKAGES.get(name)
    extra = None if package is None else package.extra
    for line in lines:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        if extra is not None and _normal(extra) not in _normal(marker).replace("'", '"').split('"'):
            continue
        if _normal(_NAME_END.split(requirement, maxsplit=1)[0]) == normal_name:
            return requirement
    return None


def is_within(version: str, requirement: str) -> bool:
    """Whether a version satisfies the `>=` and `<` bounds of a requirement; other operators are
    ignored.
    """
    for sign, bound in _BOUND.findall(requirement):
        is_older = _numbers(version) < _numbers(bound)
        if is_older is not (sign == "<"):
            return False
    return True


def spell_install(name: str) -> str:
    """The pip command that installs a package in a supported version, quoted for POSIX shells and
    Windows.
    """
    package = PACKAGES.get(name)
    is_ours = package is not None and (package in BASE or package.extra is not None)
    requirement = find_requirement(name) if is_ours else None
    return f"pip install {name}" if requirement is None else f'pip install "{requirement}"'


def spell_reinstall(name: str) -> str:
    """The pip command that repairs a broken package without touching others."""
    return f'pip install --force-reinstall --no-deps "{find_requirement(name) or name}"'


def missing(name: str, feature: str, otherwise: str = "") -> InputError:
    """The error for a feature whose package is not installed, with the install command."""
    return InputError(f"{feature}: {name} is not installed; {spell_install(name)}{otherwise}")


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _numbers(version: str) -> tuple[int, ...]:
    """The release part of a version as numbers, without trailing zeros: "1.20.0rc1" is (1, 20)."""
    release = _RELEASE.match(version)
    numbers = [] if release is None else [int(part) for part in release[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
