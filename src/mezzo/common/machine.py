"""What the machine at hand has: what decides how fast a low type is, how much fits, and where large files may go."""

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# The instruction sets that are looked for, as Linux spells them; those of Arm after those of x86.
_FEATURES = (
    "avx2", "f16c", "avx512f", "avx512_bf16", "avx512_fp16", "avx_vnni", "avx512_vnni", "amx_int8", "amx_bf16",
    "amx_fp16", "asimdhp", "bf16", "i8mm", "sve",
)  # fmt: skip
_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_STATUS = Path("/proc/self/status")
# A group's limit, what it uses, and where and under what name it tells how much of that are pages of files that nobody
# has read lately: in version 2 of control groups, and in version 1.
_GROUP_FILES = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file"),
)
_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNTS = Path("/proc/mounts")
_MEMORY_DISKS = frozenset({"tmpfs", "ramfs"})
# Where systems that keep /tmp in memory want large temporary files.
_LARGE_FILES = "/var/tmp"
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU: its architecture and those of its instruction sets that matter; None where the system does not tell."""

    architecture: str
    features: tuple[str, ...] | None

    def has(self, feature: str) -> bool | None:
        """Whether it has an instruction set; None where the system does not tell, or the feature is none of a CPU."""
        if self.features is None or feature not in _FEATURES:
            return None
        return feature in self.features


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


def tells_of(feature: str) -> bool:
    """Whether a machine's features could name this one; they say nothing of a need of another kind, such as a GPU's."""
    return feature in _FEATURES


def count_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def find_memory(
    meminfo: Path = _MEMINFO, groups: Path = _CGROUP, membership: Path = _MEMBERSHIP
) -> tuple[int, int] | None:
    """The memory that this process may use in all, and what of it is free, in bytes; None if the system is silent.

    A container's limit counts, and those of all control groups that the process is in, where they are less.
    """
    try:
        rows = dict(line.split(":", 1) for line in meminfo.read_text(encoding="utf-8").splitlines() if ":" in line)
        total, free = (int(rows[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError, IndexError):
        return None
    for group, (limit, usage, stat, idle) in _find_groups(groups, membership):
        try:
            most, used = (int((group / name).read_text(encoding="ascii")) for name in (limit, usage))
        except (OSError, ValueError):
            continue
        total, free = min(total, most), max(0, min(free, most - used + _idle_bytes(group / stat, idle)))
    return total, free


def _find_groups(groups: Path, membership: Path) -> Iterator[tuple[Path, tuple[str, str, str, str]]]:
    """Folders of the control groups that this process is in, from the outermost on, and the files of their version."""
    try:
        rows = [line.split(":", 2) for line in membership.read_text(encoding="utf-8").splitlines()]
    except OSError:
        rows = []
    places = {row[1]: row[2] for row in rows if len(row) == 3}
    for version, (name, root) in zip(_GROUP_FILES, (("", groups), ("memory", groups / "memory")), strict=True):
        parts = [part for part in places.get(name, "").split("/") if part not in ("", "..")]
        for count in range(len(parts) + 1):
            yield root.joinpath(*parts[:count]), version


def _idle_bytes(stat: Path, name: str) -> int:
    try:
        rows = dict(line.split(" ", 1) for line in stat.read_text(encoding="ascii").splitlines() if " " in line)
        return int(rows[name])
    except (OSError, KeyError, ValueError):
        return 0


def find_private_bytes(status: Path = _STATUS) -> int | None:
    """What this process holds that no file backs; None where the system does not tell."""
    return _status_bytes(status).get("RssAnon")


def give_back_memory() -> None:
    """Hand what was freed in this process back to the system, where the library that holds on to it can be asked."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # glibc's
    except (AttributeError, OSError, TypeError):
        return


@contextmanager
def data_bounded(most_bytes: int, status: Path = _STATUS) -> Iterator[None]:
    """Let the system refuse this process memory that no file backs beyond so much, while this lasts: whoever asks for
    it then fails. A bound that is lower already stays; systems that do not tell what a process holds bound nothing.
    """
    held = _status_bytes(status)
    if "VmData" not in held or "RssAnon" not in held:
        yield
        return
    import resource

    # The system counts what is asked for, of which some is never touched, such as most of what threads have.
    wanted = most_bytes + max(0, held["VmData"] - held["RssAnon"])
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [bound for bound in (wanted, soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _status_bytes(status: Path) -> dict[str, int]:
    """What the system tells of this process's memory; nothing where it tells nothing."""
    try:
        rows = [line.split() for line in status.read_text(encoding="ascii", errors="replace").splitlines()]
    except OSError:
        return {}
    return {row[0][:-1]: int(row[1]) * 1024 for row in rows if len(row) == 3 and row[2] == "kB" and row[1].isdigit()}


def find_temporary_folder(mounts: Path = _MOUNTS) -> str:
    """A folder for large temporary files: the usual one, as the environment may name it; where nothing names it and it
    is in memory, /var/tmp, if that is not.
    """
    usual = tempfile.gettempdir()
    if any(map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))) or not _is_in_memory(usual, mounts):
        return usual
    is_better = os.access(_LARGE_FILES, os.W_OK) and not _is_in_memory(_LARGE_FILES, mounts)
    return _LARGE_FILES if is_better else usual


def _is_in_memory(folder: str, mounts: Path) -> bool:
    """Whether a folder's disk is kept in memory, as far as the system tells."""
    try:
        rows = [line.split() for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return False
    kinds = {row[1]: row[2] for row in rows if len(row) > 2}  # the last that is mounted at a place hides the others
    place = os.path.realpath(folder)
    while place not in kinds and place != os.path.dirname(place):
        place = os.path.dirname(place)
    return kinds.get(place) in _MEMORY_DISKS


def find_gpus() -> tuple[str, ...]:
    """NVIDIA's GPUs here with their memory and compute capability, as its driver's own tool tells them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    query = [tool, "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip())


def find_load() -> float | None:
    """How many processes were at work on average over the last minute; None where the system does not tell."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None
