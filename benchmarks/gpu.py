"""The GPU that a benchmark runs on. No script."""

import subprocess


def find_gpu() -> str:
    """The GPU's name and driver; empty where none can be asked."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
