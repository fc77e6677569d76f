"""The guest's kernel: Debian's, from this machine's /boot or downloaded, and its first root."""

from __future__ import annotations

import lzma
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import platformdirs
from filelock import FileLock

__all__ = ["Kernel", "MissingError", "find_kernel", "first_root", "in_order"]

PACKAGES = "apt-get install qemu-system-x86 gcc libc6-dev"
META_PACKAGE = "linux-image-amd64"
# What Debian has as modules of what the guest needs to see the host's files.
WANTED = ("virtio_pci", "9pnet_virtio", "9p")
_FOLDERS = ("drivers/virtio/", "net/9p/", "fs/9p/", "fs/netfs/", "fs/fscache/")
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")
_DOWNLOAD_S = 300.0


class MissingError(Exception):
    """Something that a guest needs is not on this machine; the text says how to get it."""


@dataclass(frozen=True)
class Kernel:
    """An image, and modules in the order in which they are loaded."""

    image: Path
    modules: tuple[Path, ...]


# --- where it is ---------------------------------------------------------------------------------


def find_kernel(boot: Path = Path("/boot"), cache: Path | None = None) -> Kernel:
    """A kernel of this machine that may be read and has the modules, or Debian's, downloaded once.

    Parameters
    ----------
    boot
        Where installed kernels lie; their modules are in ``lib/modules`` beside it.
    cache
        Where a downloaded one is kept.
    """
    cache = cache or Path(platformdirs.user_cache_dir("perflib")) / "guest-kernel"
    for top in (boot.parent, *sorted(cache.glob("linux-image-*"), reverse=True)):
        kernel = _kernel_below(top, boot.name)
        if kernel is not None:
            return kernel
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "lock"):
        top = _download(cache)
    kernel = _kernel_below(top, boot.name)
    if kernel is None:
        msg = (
            f"Debian's kernel in {top} lacks an image or one of the modules {', '.join(WANTED)}: "
            "remove that folder, or install another kernel"
        )
        raise MissingError(msg)
    return kernel


def _kernel_below(top: Path, boot: str) -> Kernel | None:
    """The newest whole kernel of a root folder."""
    for image in sorted((top / boot).glob("vmlinuz-*"), reverse=True):
        modules = top / "lib/modules" / image.name.removeprefix("vmlinuz-")
        found = in_order(_modules(modules))
        if found and os.access(image, os.R_OK):
            return Kernel(image, tuple(found))
    return None


def _modules(folder: Path) -> dict[str, Path]:
    """Modules by name; compressed ones too."""
    files = [file for part in _FOLDERS for file in (folder / "kernel" / part).glob("*.ko*")]
    return {file.name.partition(".")[0].replace("-", "_"): file for file in files}


def in_order(modules: Mapping[str, Path], wanted: Iterable[str] = WANTED) -> list[Path]:
    """What is wanted after all that it depends on; empty if one of those is not there."""
    found: dict[str, Path] = {}

    def add(name: str) -> bool:
        if name in found:
            return True
        if name not in modules:
            return False
        declared = _DEPENDS.search(read_module(modules[name]))
        needs = declared[1].decode().replace("-", "_").split(",") if declared else []
        if not all(add(need) for need in needs if need):
            return False
        found[name] = modules[name]
        return True

    return list(found.values()) if all(add(name) for name in wanted) else []


def read_module(file: Path) -> bytes:
    """A module as the kernel loads it."""
    if file.suffix == ".xz":
        return lzma.decompress(file.read_bytes())
    if file.suffix == ".zst":
        if shutil.which("zstd") is None:
            msg = f"{file} is packed with zstd: 'apt-get install zstd'"
            raise MissingError(msg)
        return subprocess.run(["zstd", "-dcq", str(file)], capture_output=True, check=True).stdout
    return file.read_bytes()


# --- downloading ---------------------------------------------------------------------------------


def _download(cache: Path) -> Path:
    """Download and unpack Debian's kernel, of which only a few files are kept."""
    for program in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(program) is None:
            msg = (
                f"there is no kernel with 9p and virtio in /boot, and no '{program}' to download "
                f"Debian's ({META_PACKAGE}): install a kernel that this user may read"
            )
            raise MissingError(msg)
    package = _newest_package()
    top = cache / package
    if top.is_dir():
        return top
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=cache) as name:
        folder = Path(name)
        _run(["apt-get", "download", package], folder)
        unpacked = folder / "unpacked"
        _unpack(next(folder.glob("*.deb")), unpacked)
        unpacked.replace(top)
    return top


def _newest_package() -> str:
    """The package that the meta package stands for."""
    answer = _run(["apt-cache", "depends", "--important", META_PACKAGE], None)
    found = re.search(r"Depends: (linux-image-\S+)", answer)
    if found is None:
        msg = (
            f"apt-get knows no package {META_PACKAGE}: run 'apt-get update' first; on another "
            "system than Debian, install a kernel that this user may read into /boot"
        )
        raise MissingError(msg)
    return found[1]


def _run(argv: list[str], folder: Path | None) -> str:
    answer = subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, check=False, timeout=_DOWNLOAD_S
    )
    if answer.returncode:
        msg = (
            f"{META_PACKAGE}, the guest's kernel, cannot be had: '{' '.join(argv)}' says: "
            f"{answer.stderr.strip()} (does 'apt-get update' help?)"
        )
        raise MissingError(msg)
    return answer.stdout


def _unpack(package: Path, where: Path) -> None:
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE
    ) as unpacking:
        assert unpacking.stdout is not None
        with tarfile.open(fileobj=unpacking.stdout, mode="r|") as files:
            for file in files:
                inside = PurePosixPath(file.name)
                path = str(PurePosixPath("/") / inside)
                if inside.name.startswith("vmlinuz-") or (
                    ".ko" in inside.suffixes and any(part in path for part in _FOLDERS)
                ):
                    files.extract(file, where, filter="data")


# --- the first root ------------------------------------------------------------------------------


def first_root(init: bytes, modules: Iterable[bytes]) -> bytes:
    """The archive that the kernel unpacks as its first root: our init, and numbered modules.

    The format is "newc" of the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
    """
    entries = [("dev", 0o040755, b""), ("modules", 0o040755, b""), ("init", 0o100755, init)]
    entries += [
        (f"modules/{number:02}.ko", 0o100644, module) for number, module in enumerate(modules)
    ]
    entries.append(("TRAILER!!!", 0, b""))
    return b"".join(_entry(number, *entry) for number, entry in enumerate(entries, 1))


def _entry(number: int, name: str, mode: int, content: bytes) -> bytes:
    path = name.encode() + b"\0"
    # number, mode, owner, group, links, time, size, four of devices, length of the name, no sum
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % value for value in fields) + path
    return _to_four(head) + _to_four(content)


def _to_four(part: bytes) -> bytes:
    return part + bytes(-len(part) % 4)
