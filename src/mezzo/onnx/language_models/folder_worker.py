"""Child process that writes a decoder and its tokenizer for OpenVINO GenAI.

A line of JSON on stdin is the request, one on the original stdout the answer. The tokenizer is read
by transformers, offline and without code of the folder. Source: openvino-tokenizers 2026.4.
"""

import importlib
import json
import os
import sys
from pathlib import Path

from mezzo.common.errors import MezzoError, ModelError
from mezzo.onnx.language_models.stateful import write_stateful
from mezzo.onnx.run.runtime_libraries import load_openvino, load_openvino_tokenizers

_TOKENIZERS = ("openvino_tokenizer.xml", "openvino_detokenizer.xml")
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
_LONGEST_FAULT = 200


def serve() -> None:
    """Serve the request on stdin."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries also print to stdout
    request = json.loads(sys.stdin.readline())
    answer = {}
    result = Path(request["result"])
    try:
        _write_tokenizer(request["tokenizer"], result.parent)
        write_stateful(Path(request["model"]), result)
    except MezzoError as error:
        answer["fault"] = str(error)
    except Exception as error:  # noqa: BLE001  any exception of a library is reported
        answer["fault"] = f"the model cannot be written for OpenVINO GenAI: {_one_line(error)}"
    print(json.dumps(answer), file=answers, flush=True)


def _write_tokenizer(folder: str, result: Path) -> None:
    os.environ.update(_OFFLINE)
    openvino, convert = load_openvino(), load_openvino_tokenizers().convert_tokenizer
    read = importlib.import_module("transformers").AutoTokenizer.from_pretrained
    try:
        tokenizer = read(folder, local_files_only=True, trust_remote_code=False)
        models = convert(tokenizer, with_detokenizer=True)
    except Exception as error:  # any exception of a library
        raise ModelError(
            "openvino-tokenizers cannot convert the folder's tokenizer, which OpenVINO GenAI needs:"
            f" {_one_line(error)}"
        ) from error
    for model, name in zip(models, _TOKENIZERS, strict=True):
        openvino.save_model(model, os.fspath(result / name))


def _one_line(error: Exception) -> str:
    message = " ".join(str(error).split()).partition(" failed at /")[0]
    return message[:_LONGEST_FAULT] or type(error).__name__
