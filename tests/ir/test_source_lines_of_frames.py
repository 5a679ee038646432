"""Which frame of a recorded traceback is the program's own."""

from pathlib import Path

import mezzo
from mezzo.ir.nodes import SourceLine
from mezzo.ir.source_lines import choose_line

_REGIONS = Path(mezzo.__file__).parent / "torch" / "compiler" / "regions.py"


def test_frames_of_pytorch_and_of_regions_are_not_the_programs() -> None:
    """Regions wrap calls of the program; the file is where the pattern expects it."""
    assert "def _call_marked(" in _REGIONS.read_text("utf-8")
    wrapper = SourceLine(str(_REGIONS), 183, "return func(*args, **kwargs)")
    torch = SourceLine("/v/site-packages/torch/nn/functional.py", 9, "return torch._C._nn.gelu(x)")
    program = SourceLine("/home/me/net.py", 7, "return functional.gelu(x)")
    assert choose_line([torch, wrapper, program]) == program
    assert choose_line([wrapper]) == wrapper
