"""Sets up a device that computes in FP16 without a GPU: ONNX Runtime Web on WebGPU, on Mesa's llvmpipe.

    python tools/device out/device

All versions are pinned. npm checks what it installs against package-lock.json, and the packages of Debian 12 are
checked against the digests below; they are unpacked into the folder and not installed. Where the device cannot run,
says why and ends with 0.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

_HERE = Path(__file__).parent
_MIRROR = "https://deb.debian.org/debian/pool/main/"
# Of Debian 12, its backports and snapshot.debian.org: Mesa has shader-f16 from 24.0 on, Debian 12 has 22.3.
_PACKAGES = (
    (
        "m/mesa/mesa-vulkan-drivers_25.0.7-2~bpo12+1_amd64.deb",
        "3899f1800424c60a05df5d6913076a526ca8fdbabec43672cd397563d1ca3263",
    ),
    (
        "v/vulkan-loader/libvulkan1_1.3.239.0-1_amd64.deb",
        "622f28b807ba55a1f5ad1622ff83aa2c5b11fedbec074850e04c10a8f28b43d3",
    ),
    (
        "libd/libdrm/libdrm2_2.4.123-1~bpo12+1_amd64.deb",
        "9cc2f341964286295124a32d3625edb76730500625e54a1e682761f883064d7b",
    ),
)
_LIBRARIES = ("libvulkan_lvp.so", "libvulkan.so.1", "libdrm.so.2")
_OLDEST_NODE = 20
_SECONDS = 300


class _CannotRun(Exception):
    """Why the device cannot be set up here, in one line."""


def _require_machine() -> None:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise _CannotRun(f"Mesa's packages are those of Linux on x86_64; this is {sys.platform}, {platform.machine()}")
    for tool in ("node", "npm", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise _CannotRun(f"no {tool} found; install {'dpkg' if tool == 'dpkg-deb' else 'Node.js 20 or newer'}")
    version = _run(["node", "--version"]).lstrip("v")
    if int(version.split(".")[0]) < _OLDEST_NODE:
        raise _CannotRun(f"Node.js is {version}; install {_OLDEST_NODE} or newer")


def _install_modules(folder: Path) -> None:
    """ONNX Runtime Web and Dawn, by the lock file."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(_HERE / name, folder / name)
    if not _is_installed(folder):
        _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"], folder)


def _is_installed(folder: Path) -> bool:
    """Whether node_modules holds the versions of package.json."""
    wanted = json.loads((folder / "package.json").read_text(encoding="utf-8"))["dependencies"]
    for name, version in wanted.items():
        path = folder / "node_modules" / name / "package.json"
        if not path.exists() or json.loads(path.read_text(encoding="utf-8"))["version"] != version:
            return False
    return True


def _unpack_driver(folder: Path) -> None:
    """Mesa's llvmpipe and the loader of Vulkan drivers in lib/, and the driver's file for the loader."""
    library = folder / "lib"
    if not all((library / name).exists() for name in _LIBRARIES):
        library.mkdir(exist_ok=True)
        shutil.rmtree(folder / "unpacked", ignore_errors=True)
        for path, digest in _PACKAGES:
            package = _fetch(path, digest, folder)
            _run(["dpkg-deb", "-x", str(package), str(folder / "unpacked")])
            package.unlink()
        for name in _LIBRARIES:
            shutil.copy(next((folder / "unpacked").rglob(name)), library / name)
        shutil.rmtree(folder / "unpacked")
    missing = [
        line.split()[0]
        for line in _run(["ldd", str(library / _LIBRARIES[0])], env=_environment(folder)).splitlines()
        if "not found" in line
    ]
    if missing:
        raise _CannotRun(f"Mesa needs {', '.join(missing)}; Debian 12 has it, with apt-get install libllvm15")
    description = {"api_version": "1.4.305", "library_path": "./lib/libvulkan_lvp.so"}
    driver = {"file_format_version": "1.0.0", "ICD": description}
    (folder / "driver.json").write_text(json.dumps(driver), encoding="utf-8")


def _fetch(path: str, digest: str, folder: Path) -> Path:
    """Download a package. Raises _CannotRun: it is not to be had, or another one."""
    target = folder / path.rpartition("/")[2]
    try:
        with urllib.request.urlopen(_MIRROR + path, timeout=_SECONDS) as answer:
            content = answer.read()
    except OSError as error:
        raise _CannotRun(f"{_MIRROR}{path} cannot be fetched: {error}") from None
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise _CannotRun(f"{_MIRROR}{path} has the sha256 {found}, and {digest} is pinned")
    target.write_bytes(content)
    return target


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(folder / "lib"), "VK_DRIVER_FILES": str(folder / "driver.json")}


def _try(folder: Path) -> str:
    """The name of the device. Raises _CannotRun: it has no FP16."""
    script = (
        'const { create } = await import("webgpu"); const gpu = create(["enable-dawn-features=allow_unsafe_apis"]);'
        " const adapter = await gpu.requestAdapter();"
        ' if (!adapter?.features.has("shader-f16")) process.exit(1);'
        " console.log(`${adapter.info.device}, ${adapter.info.description}`); process.exit(0);"
    )
    return _run(["node", "--input-type=module", "--eval", script], folder, _environment(folder)).strip()


def _run(command: list[str], folder: Path | None = None, env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise _CannotRun(f"{' '.join(command[:2])} did not end within {_SECONDS} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        because = f": {lines[0]}" if lines else ""
        raise _CannotRun(f"{' '.join(command[:2])} ended with {done.returncode}{because}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the device is set up")
    folder = parser.parse_args().folder.resolve()
    try:
        _require_machine()
        folder.mkdir(parents=True, exist_ok=True)
        _install_modules(folder)
        _unpack_driver(folder)
        device = _try(folder)
    except _CannotRun as reason:
        print(f"the device is skipped: {reason}")
        return 0
    print(f"the device is set up: {device}")
    print(f"export MEZZO_WEBGPU={folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
