"""Lines of trtexec, read as mezzo's options and as the line for TensorRT 11."""

import random
import shlex

import pytest
from sweeps import swept

import mezzo
from mezzo.io.trtexec import float_types, read_line

# A line; mezzo's format without data; its options; the line for TensorRT 11; flags that it lacks.
CASES = [
    (
        "trtexec --onnx=m.onnx --fp16 --saveEngine=m.engine", "fp16", "",
        "trtexec --stronglyTyped --onnx=OUT --saveEngine=m.engine", "--fp16",
    ),
    (
        "/opt/tensorrt/bin/trtexec --onnx=m.onnx --bf16 --stronglyTyped --noTF32 --verbose", "bf16", "",
        "/opt/tensorrt/bin/trtexec --stronglyTyped --onnx=OUT --noTF32 --verbose", "--bf16",
    ),
    (
        "CUDA_VISIBLE_DEVICES=1 trtexec --int8 --fp16 --onnx='my models/m.onnx' --calib=c.cache", "int8,fp16", "",
        "CUDA_VISIBLE_DEVICES=1 trtexec --stronglyTyped --onnx=OUT", "--int8 --fp16 --calib=c.cache",
    ),
    ("trtexec --onnx=m.onnx --fp8 --bf16", "fp8,bf16", "", "trtexec --stronglyTyped --onnx=OUT", "--fp8 --bf16"),
    ("--onnx=m.onnx --best", "fp16", "", "trtexec --stronglyTyped --onnx=OUT", "--best"),
    (
        "trtexec \\\n  --onnx=m.onnx \\\n  --fp16 --fp16 --plugins=a.so --plugins=b.so --staticPlugins=c.so",
        "fp16", "",
        "trtexec --stronglyTyped --onnx=OUT --plugins=a.so --plugins=b.so --staticPlugins=c.so", "--fp16 --fp16",
    ),
    (
        "trtexec --onnx=m.onnx --fp16 --precisionConstraints=obey --layerPrecisions=/a/b:fp32,*/c:fp32,d:fp16,i:int32",
        "fp16", "--exclude /a/b --exclude '*/c' --include d", "trtexec --stronglyTyped --onnx=OUT",
        "i:int32 --fp16 --precisionConstraints=obey --layerPrecisions=/a/b:fp32,*/c:fp32,d:fp16,i:int32",
    ),
    (
        "trtexec --onnx=m.onnx --fp16 --precisionConstraints=prefer '--layerPrecisions=*:fp32,a:fp32,a:fp16'",
        "fp16", "--policy off --include a", "trtexec --stronglyTyped --onnx=OUT",
        "--fp16 --precisionConstraints=prefer '--layerPrecisions=*:fp32,a:fp32,a:fp16'",
    ),
    (
        "trtexec --onnx=m.onnx --fp16 --precisionConstraints=obey '--layerPrecisions=*:fp16,a:fp32'"
        " '--layerOutputTypes=*:fp16,a:fp32,b:fp16+fp32,c:fp16'",
        "fp16", "--include '*' --exclude a --exclude b", "trtexec --stronglyTyped --onnx=OUT",
        "'*:fp16' b:fp16+fp32 c:fp16 --fp16 --precisionConstraints=obey '--layerPrecisions=*:fp16,a:fp32'"
        " '--layerOutputTypes=*:fp16,a:fp32,b:fp16+fp32,c:fp16'",
    ),
    (
        "trtexec --onnx=m.onnx --fp16 --layerPrecisions=a:fp32", "fp16", "", "trtexec --stronglyTyped --onnx=OUT",
        "--layerPrecisions --fp16 --layerPrecisions=a:fp32",
    ),
    (
        "trtexec --onnx=m.onnx --fp16 --workspace=64 --minTiming=2 --inputIOFormats=fp16:chw,int32:chw+hwc --directIO",
        "fp16", "",
        "trtexec --stronglyTyped --onnx=OUT --memPoolSize=workspace:64 --inputIOFormats=fp16:chw,int32:chw+hwc",
        "--fp16 --minTiming=2 --directIO",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("line", "to", "options", "new", "dropped"), CASES)
def test_line_is_read_as_typed(line: str, to: str, options: str, new: str, dropped: str) -> None:
    read = read_line(line)
    assert read.to(has_data=False) == to
    assert shlex.join(read.options) == options
    assert read.for_tensorrt_11("OUT") == new
    assert [flag for flag, _ in read.dropped] == shlex.split(dropped)
    assert all(why for _, why in read.dropped)


def test_best_takes_int8_where_there_is_data() -> None:
    assert read_line("trtexec --onnx=m.onnx --best").to(has_data=True) == "int8,fp16"


# A line, and the error that it gives.
FAULTS = [
    ("", "the trtexec line has no --onnx=FILE; add the model that it builds from"),
    ("trtexec --loadEngine=x", "the trtexec line has no --onnx=FILE; add the model that it builds from"),
    ("rm -rf /", "the line begins with 'rm', wanted trtexec and its flags; give one command"),
    ("sudo trtexec --onnx=m", "the line begins with 'sudo trtexec', wanted trtexec and its flags; give one command"),
    ("trtexec --onnx=m --fp16 | tee log", "'|' is no flag of trtexec; write --FLAG or --FLAG=VALUE"),
    ("trtexec --onnx m.onnx", "'m.onnx' is no flag of trtexec; write --FLAG or --FLAG=VALUE"),
    ("trtexec --onnx=m -h", "'-h' is no flag of trtexec; write --FLAG or --FLAG=VALUE"),
    (
        "trtexec --onnx='m --fp16",
        "the trtexec line cannot be split into words (No closing quotation); quote it as a shell does",
    ),
    (
        "trtexec --onnx=a.onnx --onnx=b.onnx",
        "--onnx is given twice in the trtexec line, 'a.onnx' and 'b.onnx'; keep one",
    ),
    (
        "trtexec --onnx=m --fp16 --precisionConstraints=obey --layerPrecisions=a",
        "--layerPrecisions: 'a' is not NAME:TYPE; write --layerPrecisions=LAYER:TYPE,LAYER:TYPE",
    ),
    (
        "trtexec --onnx=m --fp16 --precisionConstraints=obey --layerPrecisions=a:int8",
        "--layerPrecisions asks for int8 in 'a', and the trtexec line does not enable it; add --int8",
    ),
    ("x" * (1 << 20) + "y", "the trtexec line has 1048577 characters, wanted at most 1048576"),
]


@pytest.mark.parametrize(("line", "message"), FAULTS)
def test_hostile_line_is_one_line(line: str, message: str) -> None:
    with pytest.raises(mezzo.InputError) as error:
        read_line(line)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "--fp16 --bf16",
            "the trtexec line enables --fp16 and --bf16, and a file has one of them; say which with --to fp16 or --to"
            " bf16",
        ),
        (
            "--int8 --fp8",
            "the trtexec line enables --int8 and --fp8, and a file has one of them; say which with --to int8 or --to"
            " fp8",
        ),
        (
            "--noTF32",
            "the trtexec line enables no precision below FP32, so TensorRT 11 runs the file as it is; leave"
            " --precisionConstraints and the like out, or add --to fp16",
        ),
    ],
)
def test_formats_that_no_file_has_are_one_line(flags: str, message: str) -> None:
    with pytest.raises(mezzo.InputError) as error:
        read_line(f"trtexec --onnx=m.onnx {flags}").to(has_data=False)
    assert str(error.value) == message


def test_types_of_inputs_go_by_position_and_one_is_for_all() -> None:
    types = read_line("trtexec --onnx=m --inputIOFormats=fp16:chw,int32:chw,fp32:chw --outputIOFormats=fp16:chw")
    assert float_types("inputIOFormats", types.inputs, ("a", "b")) == {"a": "fp16"}
    assert float_types("outputIOFormats", types.outputs, ("x", "y")) == {"x": "fp16", "y": "fp16"}
    with pytest.raises(mezzo.InputError) as error:
        float_types("inputIOFormats", types.inputs, ("a",))
    assert str(error.value) == (
        "--inputIOFormats has 2 float types, and the model 1 floats there ('a'); give a type for each, or one for all"
    )


_VALUES = ("", "a b", "'", '"', "x:1x3,y:2", "$HOME", "\\", "*", "é\n", "--fp16", ";rm")
_OTHERS = ("saveEngine", "plugins", "minShapes", "memPoolSize", "verbose", "noTF32", "timingCacheFile", "useCudaGraph")
_PRECISION = ("fp16", "bf16", "int8", "best", "int4", "directIO", "stronglyTyped")


@pytest.mark.parametrize("seed", range(swept(60)))
def test_every_flag_is_kept_as_typed_or_named_as_dropped(seed: int) -> None:
    draw = random.Random(seed)
    flags = [f"--{name}" for name in _PRECISION if draw.random() < 0.4] + ["--onnx=m.onnx"]
    for _ in range(draw.randrange(6)):
        name, value = draw.choice(_OTHERS), draw.choice(_VALUES)
        flags.append(f"--{name}={value}" if value or draw.random() < 0.5 else f"--{name}")
    draw.shuffle(flags)
    read = read_line(shlex.join(["trtexec", *flags]))
    dropped = [flag for flag, _ in read.dropped]
    ours = ("--onnx=m.onnx", "--stronglyTyped")
    assert sorted([*read.kept, *dropped]) == sorted(flag for flag in flags if flag not in ours), f"seed {seed}"
    again = read_line(read.for_tensorrt_11("OUT"))
    assert (again.model, again.kept, again.dropped, again.formats) == ("OUT", read.kept, (), ()), f"seed {seed}"
