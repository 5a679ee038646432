"""What the probe of ONNX Runtime's CUDA provider refuses, as far as graphs show it without a GPU."""

import onnx.parser
import pytest
from probe.runtimes import refuse_written_out

_HEAD = '<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[4] y)'
_ASKED = onnx.parser.parse_model(f"{_HEAD} {{ a = Cast<to = 10>(x) b = Mish(a) y = Cast<to = 1>(b) }}")


def test_an_operator_that_is_still_there_has_a_kernel() -> None:
    refuse_written_out(_ASKED, _ASKED)


def test_an_operator_that_was_written_out_has_none() -> None:
    body = "a = Cast<to = 10>(x) p = Softplus(a) t = Tanh(p) b = Mul(a, t) y = Cast<to = 1>(b)"
    written_out = onnx.parser.parse_model(f"{_HEAD} {{ {body} }}")
    with pytest.raises(RuntimeError, match=r"^no kernel for Mish: written out in Cast, Mul, Softplus, Tanh$"):
        refuse_written_out(_ASKED, written_out)
