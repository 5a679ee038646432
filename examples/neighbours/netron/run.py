"""Show the FP16 demo model in Netron, served from this machine. Run: python examples/neighbours/netron/run.py"""

import sys
from pathlib import Path

import netron

import mezzo

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
from judging import DIGITS, OUT


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    typed = OUT / "digits.fp16.onnx"
    mezzo.convert(DIGITS, typed, to="fp16")
    netron.start(str(typed))
    netron.wait()


if __name__ == "__main__":
    main()
