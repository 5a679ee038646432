"""Command lines of trtexec for TensorRT up to 10, read as mezzo's options and the line for
TensorRT 11. Nothing is executed; flags that are not about precision stay as they were typed.

Source: `trtexec --help`, TensorRT 8.6 to 10.16; NVIDIA's "Migrating trtexec Usage from TensorRT
10.x to 11.x", 11.4.1, and "... 8.x to 10.x", 10.16.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mezzo.common.errors import InputError
from mezzo.io.trtexec_grammar import read_layers

_MOST_CHARACTERS = 1 << 20
_FLOATS = frozenset({"fp32", "fp16", "bf16"})
_LOW = ("fp16", "bf16", "int8", "fp8")
_DECIDED = "the types in the file decide"
_NO_CALIBRATION = "TensorRT 11 calibrates nothing; give mezzo the samples as --data"
# Flags that TensorRT 11 has not, and why the new line does without.
_REMOVED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("fp16", "bf16", "int8", "fp8", "best", "precisionConstraints"), _DECIDED),
        "int4": "Q/DQ nodes in the file decide",
        "layerPrecisions": "mezzo's --exclude and --include, in the file",
        "layerOutputTypes": "mezzo's --exclude, in the file",
        "calib": _NO_CALIBRATION,
        "calibProfile": _NO_CALIBRATION,
        "minShapesCalib": _NO_CALIBRATION,
        "optShapesCalib": _NO_CALIBRATION,
        "maxShapesCalib": _NO_CALIBRATION,
        "directIO": "TensorRT 11 needs none: inputs and outputs have the file's types",
        "minTiming": "TensorRT 10 removed it; --avgTiming is there",
    }
)
# Flags that are read here, and so may be given once.
_READ = frozenset({"onnx", *_REMOVED, "inputIOFormats", "outputIOFormats", "workspace"})
_FLAG = re.compile(r"--([A-Za-z][A-Za-z0-9]*)(?:=(.*))?", re.DOTALL)
_PROGRAM = re.compile(r"(.*[/\\])?trtexec(\.exe)?", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrtexecLine:
    """A line of trtexec. `program`: its words before the flags; `model`: the file of --onnx;
    `formats`: the low formats that it enables; `options`: mezzo's words for its layers; `inputs`,
    `outputs`: the types of --inputIOFormats and --outputIOFormats; `kept`: flags of the new line;
    `dropped`: flags that it lacks, with the reason.
    """

    program: tuple[str, ...]
    model: str
    formats: tuple[str, ...]
    options: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kept: tuple[str, ...]
    dropped: tuple[tuple[str, str], ...]

    def for_tensorrt_11(self, result: str) -> str:
        """The line that builds the typed file `result`."""
        return shlex.join([*self.program, "--stronglyTyped", f"--onnx={result}", *self.kept])

    def to(self, *, has_data: bool) -> str:
        """The formats to convert to, as the option --to takes them.

        Raises InputError: the line enables none, or two that do not go together.
        """
        if "best" in self.formats:
            return "int8,fp16" if has_data else "fp16"
        floats = [name for name in self.formats if name in _FLOATS]
        scaled = [name for name in self.formats if name not in _FLOATS]
        for pair in (floats, scaled):
            if len(pair) > 1:
                raise InputError(
                    f"the trtexec line enables {' and '.join(f'--{name}' for name in pair)}, and a"
                    f" file has one of them; say which with --to {pair[0]} or --to {pair[1]}"
                )
        if not self.formats:
            raise InputError(
                "the trtexec line enables no precision below FP32, so TensorRT 11 runs the file as"
                " it is; leave --precisionConstraints and the like out, or add --to fp16"
            )
        return ",".join([*scaled, *floats])


def read_line(line: str) -> TrtexecLine:
    """Read a trtexec line as typed in a shell.

    Raises InputError: it is no such line, or a flag cannot be read.
    """
    program, flags = _split(line)
    values = {name: value for name, value, _ in flags if name in _READ}
    if "onnx" not in values:
        raise InputError("the trtexec line has no --onnx=FILE; add the model that it builds from")
    formats = tuple(name for name in (*_LOW, "best") if name in values)
    options, dropped = _read_precisions(values, formats)
    kept = []
    for name, value, word in flags:
        if name == "workspace":
            kept.append(f"--memPoolSize=workspace:{value}")
        elif name in _REMOVED:
            dropped.append((word, _REMOVED[name]))
        elif name not in ("onnx", "stronglyTyped"):
            kept.append(word)
    return TrtexecLine(
        program=program,
        model=values["onnx"],
        formats=formats,
        options=tuple(options),
        inputs=_types(values.get("inputIOFormats", "")),
        outputs=_types(values.get("outputIOFormats", "")),
        kept=tuple(kept),
        dropped=tuple(dropped),
    )


def _split(line: str) -> tuple[tuple[str, ...], list[tuple[str, str, str]]]:
    """The words before the flags; and each flag's name, value and word."""
    if len(line) > _MOST_CHARACTERS:
        raise InputError(
            f"the trtexec line has {len(line)} characters, wanted at most {_MOST_CHARACTERS}"
        )
    try:
        words = shlex.split(line.replace("\\\r\n", " ").replace("\\\n", " "))
    except ValueError as error:
        raise InputError(
            f"the trtexec line cannot be split into words ({error}); quote it as a shell does"
        ) from error
    count = next((number for number, word in enumerate(words) if word.startswith("-")), len(words))
    program = tuple(words[:count]) or ("trtexec",)
    if not _PROGRAM.fullmatch(program[-1]) or not all(map(_VARIABLE.fullmatch, program[:-1])):
        raise InputError(
            f"the line begins with {' '.join(program)!r}, wanted trtexec and its flags; give one"
            " command"
        )
    flags: list[tuple[str, str, str]] = []
    for word in words[count:]:
        match = _FLAG.fullmatch(word)
        if match is None:
            raise InputError(f"{word!r} is no flag of trtexec; write --FLAG or --FLAG=VALUE")
        name, value = match[1], match[2] or ""
        earlier = next((v for n, v, _ in flags if n == name), value)
        if name in _READ and earlier != value:
            raise InputError(
                f"--{name} is given twice in the trtexec line, {earlier!r} and {value!r}; keep one"
            )
        flags.append((name, value, word))
    return program, flags


def _read_precisions(
    values: Mapping[str, str], formats: tuple[str, ...]
) -> tuple[list[str], list[tuple[str, str]]]:
    """mezzo's options for the flags about layers, and what they do not express."""
    layers = _layers(values, "layerPrecisions")
    outputs = _layers(values, "layerOutputTypes")
    if values.get("precisionConstraints", "none") == "none":
        without = "no effect without --precisionConstraints=obey or prefer"
        return [], [
            (f"--{flag}", without)
            for flag, given in (("layerPrecisions", layers), ("layerOutputTypes", outputs))
            if given
        ]
    options: list[str] = []
    dropped: list[tuple[str, str]] = []
    default = layers.pop("*", None)
    if default == "fp32":
        options += ["--policy", "off"]
    elif default is not None:
        options += ["--include", "*"]
    for name, dtype in layers.items():
        if dtype in _LOW and dtype not in formats and "best" not in formats:
            raise InputError(
                f"--layerPrecisions asks for {dtype} in {name!r}, and the trtexec line does not"
                f" enable it; add --{dtype}"
            )
        if dtype in ("fp32", *_LOW):
            options += ["--exclude" if dtype == "fp32" else "--include", name]
        else:
            dropped.append((f"{name}:{dtype}", "integers that are no precision keep their types"))
    for name, dtypes in outputs.items():
        if "fp32" not in dtypes.split("+"):
            dropped.append((f"{name}:{dtypes}", "a layer's output has the type it computes in"))
        elif name == "*":
            dropped.append((f"{name}:{dtypes}", "a policy file's output = 'fp32' says it for all"))
        elif layers.get(name) != "fp32":
            options += ["--exclude", name]
            dropped.append((f"{name}:{dtypes}", "mezzo keeps the whole layer in FP32"))
    return options, dropped


def _layers(values: Mapping[str, str], flag: str) -> dict[str, str]:
    """Types by layer name; later ones override."""
    try:
        return dict(read_layers(values.get(flag, "")))
    except ValueError as error:
        raise InputError(f"--{flag}: {error}; write --{flag}=LAYER:TYPE,LAYER:TYPE") from error


def _types(formats: str) -> tuple[str, ...]:
    """The types of "fp16:chw,int32:chw"."""
    return tuple(part.partition(":")[0] for part in formats.split(",")) if formats else ()


def float_types(flag: str, types: tuple[str, ...], ports: tuple[str, ...]) -> dict[str, str]:
    """The types of float inputs or outputs by name, FP32 left out: one type is for all of them.

    Raises InputError: their numbers differ.
    """
    floats = [dtype for dtype in types if dtype in _FLOATS]
    if len(types) == 1:
        floats *= len(ports)
    if len(floats) != len(ports):
        raise InputError(
            f"--{flag} has {len(floats)} float types, and the model {len(ports)} floats there"
            f" ({', '.join(map(repr, ports))}); give a type for each, or one for all"
        )
    return {port: dtype for port, dtype in zip(ports, floats, strict=True) if dtype != "fp32"}
