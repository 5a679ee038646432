"""Export a small BERT with random weights as Optimum exports models, and convert it to FP16. No network.

The folder is laid out as transformers.js, Optimum and sentence-transformers look for it:

    config.json  tokenizer.json  ...  onnx/model.onnx  onnx/model_fp16.onnx

Needs torch, transformers and optimum-onnx: pip install '.[neighbours]'.
Run: python examples/neighbours/shared/text_model.py FOLDER
"""

import os
import sys
import tempfile
from pathlib import Path

# Before transformers is imported: everything is here, nothing is asked of a model hub.
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from optimum.exporters.onnx import main_export
from transformers import BertConfig, BertModel, BertTokenizerFast

import mezzo

SEED = 7
WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] a the model runs in half precision keeps norm softmax and is as right whole one "
    ". , ##s ##ing small fast"
)


def export(folder: Path) -> None:
    """Write the FP32 export: two layers of width 64, four heads."""
    words = WORDS.split()
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory() as trained:
        vocabulary = Path(trained) / "vocab.txt"
        vocabulary.write_text("\n".join(words) + "\n", encoding="utf-8")
        BertTokenizerFast(vocab_file=str(vocabulary)).save_pretrained(trained)
        config = BertConfig(
            vocab_size=len(words),
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=64,
        )
        BertModel(config).save_pretrained(trained)
        main_export(trained, folder, task="feature-extraction", library_name="transformers", device="cpu", opset=18)
    (folder / "onnx").mkdir(exist_ok=True)
    (folder / "model.onnx").replace(folder / "onnx" / "model.onnx")


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    export(folder)
    mezzo.convert_folder(folder, to="fp16", overwrite=True)


if __name__ == "__main__":
    main()
