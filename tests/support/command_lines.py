"""What tests of the command line share: models, and what a command leaves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mezzo.onnx.doctor import children

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


def ask_once(questions: Sequence[children.Question], progress: object) -> dict[children.Question, children.Answer]:
    """What `mezzo doctor` asks a dozen processes, asked once by all who only show it; test_doctor.py asks anew."""
    return _answers(tuple(questions))


@cache
def _answers(questions: tuple[children.Question, ...]) -> dict[children.Question, children.Answer]:
    return children.ask(questions, lambda *state: None)
