"""What tests of the command line share: models, and what a command leaves."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SMALL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2,4] x) => (float[2,2] y)
<float[4,2] w = {1,2,3,4,5,6,7,8}>
{
   [mm] h = MatMul(x, w)
   [sm] y = Softmax<axis=-1>(h)
}
"""
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]
