"""Tokens per second of folders of onnxruntime-genai and OpenVINO GenAI; most tests have runtimes of their own."""

import importlib.util
import json
from pathlib import Path

import pytest
from command_lines import Run

import mezzo
from mezzo.common.errors import InputError
from mezzo.numerics.statistics.speeds import Difference

RUNTIME = '''
"""Counts tokens: a folder named slow takes ten times as long, one named broken does not load, one named dying ends."""
import os, time
class Config:
    def __init__(self, folder): self.folder, self.options = os.path.basename(folder), ""
    def overlay(self, text): self.options = text
class Model:
    def __init__(self, config):
        print("much of it")
        self.folder = config.folder
        if self.folder == "broken": raise RuntimeError("no such\\nmodel" + config.options)
class GeneratorParams:
    def __init__(self, model): pass
    def set_search_options(self, max_length, min_length, do_sample): self.length = max_length
class Generator:
    turns = 0
    def __init__(self, model, parameters):
        Generator.turns += 1
        if model.folder == "dying" and Generator.turns > 2: os._exit(3)
        self.tokens, self.length, self.pause_s = 0, parameters.length, 1e-3 if model.folder == "slow" else 1e-4
    def append_tokens(self, tokens): self.tokens = len(tokens)
    def generate_next_token(self): time.sleep(self.pause_s); self.tokens += 1
    def is_done(self): return self.tokens == self.length
'''


OPENVINO = {
    "openvino/__init__.py": "class Tensor:\n    def __init__(self, array): self.array = array",
    "openvino/properties/__init__.py": "", "openvino/properties/hint.py": "",
    "openvino_genai.py": '''
import os, time
class SchedulerConfig: pass
class GenerationConfig: pass
class Tokenizer:
    def __init__(self, folder): pass
class Mean:
    def __init__(self, mean): self.mean = mean
class Metrics:
    def get_ttft(self): return Mean(640.0)
    def get_tpot(self): return Mean(25.0)
class Result: perf_metrics = Metrics()
class LLMPipeline:
    def __init__(self, folder, tokenizer, device, **options):
        assert options.pop("scheduler_config").enable_prefix_caching is False
        if os.path.basename(folder) == "broken_ov": raise RuntimeError(f"no such model {device} {options}")
    def generate(self, tokens, config):
        assert (tokens.array.shape, config.max_new_tokens, config.ignore_eos) == ((1, 128), 64, True)
        return Result()
''',
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of models, with a runtime."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/onnxruntime_genai.py").write_text(RUNTIME)
    monkeypatch.syspath_prepend(tmp_path / "site")
    for name in ("fast", "slow", "broken", "dying"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "genai_config.json").write_text('{"model": {"vocab_size": 512}}')
        (tmp_path / name / "model.onnx.data").write_bytes(b"\0" * 1000)
    for file, text in OPENVINO.items():
        (tmp_path / "site" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / file).write_text(text)
    for name in ("ov", "broken_ov"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "openvino_model.xml").write_bytes(b"\0" * 500)
        (tmp_path / name / "openvino_model.bin").write_bytes(b"\0" * 1500)
        (tmp_path / name / "config.json").write_text('{"vocab_size": 400}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_folders_take_turns_and_the_difference_of_decoding_is_judged(here: Path) -> None:
    timings = mezzo.bench_folders(["slow", "fast"])
    slow, fast = timings.folders
    assert (slow.name, slow.size_bytes, slow.is_reference, slow.speed) == ("slow", 1000, True, None)
    assert len(fast.decode_ns) == len(slow.decode_ns) == len(slow.prefill_ns) == 8
    assert fast.difference is Difference.FASTER
    assert slow.decode is not None and slow.decode.median_ns > 1e6


@pytest.mark.parametrize(("name", "fault"), [("broken", "no such model"), ("dying", "its process ended with code 3")])
def test_a_folder_that_does_not_run_stops_no_other(here: Path, run: Run, name: str, fault: str) -> None:
    ran = run("bench", name, "fast", "--runs", 2, "--json")
    document = json.loads(ran.out)
    broken, fast = document["folders"]
    assert (ran.code, broken["fault"], broken["decode_tokens_per_s"]) == (1, fault, None)
    assert document["format"] == "mezzo-tokens/1" and fast["decode_tokens_per_s"] > 0 and fast["speed"] is None


def test_report_has_tokens_per_second(here: Path, run: Run) -> None:
    ran = run("bench", "slow", "fast")
    lines = ran.out.splitlines()
    assert ran.code == 0 and lines[0] == "onnxruntime-genai: tokens per second"
    assert "a prompt of 128 random tokens, 64 new ones; 8 turns each, in alternation" in ran.out
    assert lines[-2].split()[-1] == "reference" and lines[-1].split()[-1] == "faster"


def test_folders_of_two_runtimes_are_in_one_table(here: Path, run: Run) -> None:
    ran = run("bench", "fast", "ov")
    lines = ran.out.splitlines()
    assert ran.code == 0 and lines[0] == "onnxruntime-genai, openvino-genai: tokens per second"
    assert lines[-3].split()[:3] == ["folder", "runtime", "size"]
    assert lines[-1].split()[:6] == ["ov", "openvino-genai", "2.00", "KB", "200.0", "40.0"]
    runtimes = [folder["runtime"] for folder in json.loads(run("bench", "ov", "fast", "--json").out)["folders"]]
    assert runtimes == ["openvino-genai", "onnxruntime-genai"]


def test_openvino_computes_in_the_types_of_the_file(here: Path) -> None:
    (folder,) = mezzo.bench_folders(["broken_ov"], threads=3).folders
    assert folder.fault == "no such model CPU {'INFERENCE_PRECISION_HINT': 'f32', 'INFERENCE_NUM_THREADS': 3}"


def test_number_of_threads_reaches_the_runtime(here: Path) -> None:
    (folder,) = mezzo.bench_folders(["broken"], threads=3).folders
    assert folder.fault is not None and '"intra_op_num_threads": 3' in folder.fault


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("fast", "model.onnx"),
            "'model.onnx' is no folder; time folders of onnxruntime-genai or openvino-genai",
        ),
        (("site",), "'site' is a folder without an .onnx file"),
        (("fast", "--target", "onnxruntime-cpu"), "--target is for models, and folders are given"),
        (("fast", "--layers"), "--layers is for models, and folders are given"),
        (("fast", "--runs", "0"), "--runs is 0; give 1"),
        (("fast", "--threads", "4000"), "--threads is 4000; give 1 to 1024"),
        (("odd",), "'odd/genai_config.json' has no vocab_size"),
        (("odd_ov",), "'odd_ov/config.json' has no vocab_size"),
        (("bare_ov",), "'bare_ov' has no config.json; get it again"),
    ],
)
def test_mistakes_are_one_line(here: Path, run: Run, words: tuple[str, ...], message: str) -> None:
    (here / "odd").mkdir()
    (here / "odd/genai_config.json").write_text('{"model": {"vocab_size": ' + "9" * 20 + "}}")
    for name in ("odd_ov", "bare_ov"):
        (here / name).mkdir()
        (here / name / "openvino_model.xml").touch()
    (here / "odd_ov/config.json").write_text('{"vocab_size": "400"}')
    ran = run("bench", *words)
    assert ran.code == 2 and message in ran.err and len(ran.err.splitlines()) == 1


def test_without_the_runtime_a_line_says_what_to_install(here: Path) -> None:
    (here / "site/onnxruntime_genai.py").unlink()
    importlib.invalidate_caches()
    if importlib.util.find_spec("onnxruntime_genai") is not None:
        pytest.skip("onnxruntime-genai is installed")
    with pytest.raises(InputError, match='onnxruntime-genai is not installed; pip install "onnxruntime-genai'):
        mezzo.bench_folders(["fast"])
