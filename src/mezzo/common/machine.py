"""The local machine: CPU instruction sets, memory limits, GPUs, load and temporary folders."""

import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Instruction sets to detect, in Linux's spelling: x86, then Arm.
_FEATURES = (
    "avx2", "f16c", "avx512f", "avx512_bf16", "avx512_fp16", "avx_vnni", "avx512_vnni", "amx_int8",
    "amx_bf16", "amx_fp16", "asimdhp", "bf16", "i8mm", "sve",
)  # fmt: skip
CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_STATUS = Path("/proc/self/status")
# Files of a control group, version 2 and version 1: memory limit, memory in use, statistics, and
# the field of the statistics that counts inactive page cache, which the kernel can reclaim.
_GROUP_FILES = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file"),
)
_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNTS = Path("/proc/mounts")
_MEMORY_DISKS = frozenset({"tmpfs", "ramfs"})
# For large temporary files where /tmp is in memory (file-hierarchy(7)).
_LARGE_FILES = "/var/tmp"
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU: architecture and relevant instruction sets, None if the system lists none."""

    architecture: str
    features: tuple[str, ...] | None

    def has(self, feature: str) -> bool | None:
        """Whether the CPU has a feature; None if unknown or not a CPU feature."""
        if self.features is None or feature not in _FEATURES:
            return None
        return feature in self.features


def find_machine(cpuinfo: Path | None = None) -> Machine:
    """The local machine's CPU, from Linux's /proc/cpuinfo."""
    architecture = platform.machine() or "unknown"
    lines = _read_lines(cpuinfo or CPUINFO)
    if lines is None:
        return Machine(architecture, None)
    fields = (line.partition(":") for line in lines)
    flags = {
        flag
        for name, _, flags in fields
        if name.strip().lower() in ("flags", "features")
        for flag in flags.split()
    }
    return Machine(architecture, tuple(feature for feature in _FEATURES if feature in flags))


def _read_lines(path: Path) -> list[str] | None:
    """The lines of a file of the system; None if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None


def is_cpu_feature(feature: str) -> bool:
    """Whether `feature` is a CPU instruction set (not, say, a GPU requirement)."""
    return feature in _FEATURES


def count_cores() -> int:
    """Number of CPU cores available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def find_memory(
    meminfo: Path = _MEMINFO, groups: Path = _CGROUP, membership: Path = _MEMBERSHIP
) -> tuple[int, int] | None:
    """Total and available memory of this process in bytes; None if the system does not report them.

    The limits of all control groups of the process apply, so a container's limit counts.
    """
    rows = dict(line.split(":", 1) for line in _read_lines(meminfo) or () if ":" in line)
    try:
        total, free = (int(rows[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    except (KeyError, ValueError, IndexError):
        return None
    for group, (limit, usage, stat, idle) in _find_groups(groups, membership):
        try:
            most, used = (
                int((group / name).read_text(encoding="ascii")) for name in (limit, usage)
            )
        except (OSError, ValueError):
            continue
        total = min(total, most)
        free = max(0, min(free, most - used + _idle_bytes(group / stat, idle)))
    return total, free


def _find_groups(
    groups: Path, membership: Path
) -> Iterator[tuple[Path, tuple[str, str, str, str]]]:
    """Folders of the process's control groups, outermost first, with their file names."""
    rows = [line.split(":", 2) for line in _read_lines(membership) or ()]
    places = {row[1]: row[2] for row in rows if len(row) == 3}
    for version, (name, root) in zip(
        _GROUP_FILES, (("", groups), ("memory", groups / "memory")), strict=True
    ):
        parts = [part for part in places.get(name, "").split("/") if part not in ("", "..")]
        for count in range(len(parts) + 1):
            yield root.joinpath(*parts[:count]), version


def _idle_bytes(stat: Path, name: str) -> int:
    rows = dict(line.split(" ", 1) for line in _read_lines(stat) or () if " " in line)
    try:
        return int(rows[name])
    except (KeyError, ValueError):
        return 0


def find_private_bytes(status: Path = _STATUS) -> int | None:
    """Anonymous resident memory of this process (RssAnon); None if unknown."""
    return _status_bytes(status).get("RssAnon")


def give_back_memory() -> None:
    """Return freed heap memory to the system, with glibc only (malloc_trim)."""
    import ctypes

    try:
        ctypes.CDLL(None).malloc_trim(0)  # glibc's
    except (AttributeError, OSError, TypeError):
        return


@contextmanager
def data_bounded(most_bytes: int, status: Path = _STATUS) -> Iterator[None]:
    """Limit this process's anonymous memory to `most_bytes` inside the context (RLIMIT_DATA);
    allocations beyond it fail. A lower existing limit stays. Does nothing on systems without
    /proc/self/status.
    """
    usage = _status_bytes(status)
    if "VmData" not in usage or "RssAnon" not in usage:
        yield
        return
    import resource

    # RLIMIT_DATA counts reserved memory, of which some is never touched, such as most of a thread's
    # stack.
    limit = most_bytes + max(0, usage["VmData"] - usage["RssAnon"])
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [bound for bound in (limit, soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _status_bytes(status: Path) -> dict[str, int]:
    """Memory fields of /proc/self/status in bytes; empty if it cannot be read."""
    rows = [line.split() for line in _read_lines(status) or ()]
    return {
        row[0][:-1]: int(row[1]) * 1024
        for row in rows
        if len(row) == 3 and row[2] == "kB" and row[1].isdigit()
    }


def find_temporary_folder(mounts: Path = _MOUNTS) -> str:
    """The folder for large temporary files: the default one, or /var/tmp if the default is in
    memory, is not set by the environment, and /var/tmp is on a disk.
    """
    import tempfile

    usual = tempfile.gettempdir()
    if any(map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))) or not _is_in_memory(usual, mounts):
        return usual
    is_better = os.access(_LARGE_FILES, os.W_OK) and not _is_in_memory(_LARGE_FILES, mounts)
    return _LARGE_FILES if is_better else usual


def _is_in_memory(folder: str, mounts: Path) -> bool:
    """Whether a folder is on a memory file system (tmpfs, ramfs), as far as the mount table
    shows.
    """
    rows = [line.split() for line in _read_lines(mounts) or ()]
    # The last mount at a path hides earlier ones.
    kinds = {row[1]: row[2] for row in rows if len(row) > 2}
    place = os.path.realpath(folder)
    while place not in kinds and place != os.path.dirname(place):
        place = os.path.dirname(place)
    return kinds.get(place) in _MEMORY_DISKS


def find_gpus() -> tuple[str, ...]:
    """NVIDIA GPUs with memory and compute capability, as nvidia-smi prints them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    import subprocess

    query = [tool, "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            query, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip())


def find_load() -> float | None:
    """Load average of the last minute; None if the system does not report it."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None
