"""What the machine at hand has that decides how fast a low type is."""

import platform
from dataclasses import dataclass
from pathlib import Path

# As Linux spells them; those of Arm after those of x86.
_FEATURES = (
    "avx2", "f16c", "avx512f", "avx512_bf16", "avx512_fp16", "avx_vnni", "avx512_vnni", "amx_int8", "amx_bf16",
    "amx_fp16", "asimdhp", "bf16", "i8mm", "sve",
)  # fmt: skip
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU: its architecture and those of its instruction sets that matter; None where the system does not tell."""

    architecture: str
    features: tuple[str, ...] | None


def find_machine(cpuinfo: Path = _CPUINFO) -> Machine:
    """Look at this machine."""
    architecture = platform.machine() or "unknown"
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Machine(architecture, None)
    fields = (line.partition(":") for line in text.splitlines())
    flags = {
        flag for name, _, flags in fields if name.strip().lower() in ("flags", "features") for flag in flags.split()
    }
    return Machine(architecture, tuple(feature for feature in _FEATURES if feature in flags))
