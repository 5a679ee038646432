"""The sentences that the examples embed, and what to compare their embeddings with."""

from pathlib import Path

import numpy as np
from judging import Judge, make_judge
from tokenizers import Tokenizer

TEXTS = ("the model runs in half precision", "softmax keeps the norm .", "a small one")


def tokens(folder: Path) -> dict[str, np.ndarray]:
    """The sentences as the model's inputs, padded to the longest."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(list(TEXTS))
    return {
        "input_ids": np.array([text.ids for text in encoded], np.int64),
        "attention_mask": np.array([text.attention_mask for text in encoded], np.int64),
        "token_type_ids": np.array([text.type_ids for text in encoded], np.int64),
    }


def judge_tokens(folder: Path) -> Judge:
    """References for the hidden state of every token, [sentence, token, width]."""
    models = folder / "onnx"
    return make_judge(models / "model.onnx", models / "model_fp16.onnx", tokens(folder))


def judge_sentences(folder: Path) -> Judge:
    """References for the mean over the tokens of a sentence, [sentence, width]."""
    whole, mask = judge_tokens(folder), tokens(folder)["attention_mask"][..., None]
    return Judge(*((states * mask).sum(axis=1) / mask.sum(axis=1) for states in (whole.fp32, whole.emulated)))
