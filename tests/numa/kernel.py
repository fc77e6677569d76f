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
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import platformdirs
from filelock import FileLock

# What Debian has as modules of what the guest needs to see the host's files.
WANTED = ("virtio_pci", "9pnet_virtio", "9p")
_FOLDERS = ("drivers/virtio/", "net/9p/", "fs/9p/", "fs/netfs/", "fs/fscache/")
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")
_DOWNLOAD_S = 300.0
# Python 3.11 knows the filter from 3.11.4 on; Debian 12 has 3.11.2.
_AS_DATA: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


class MissingError(Exception):
    """Something that a guest needs is not on this machine; the text says how to get it."""


@dataclass(frozen=True)
class Processor:
    """An architecture in Debian's words, what emulates and compiles for it, and their packages.

    Installed kernels are in ``boot``; ``apt`` are options that let apt speak of an architecture
    that is not this machine's.
    """

    name: str
    qemu: str
    compiler: str
    packages: str
    boot: Path = Path("/boot")
    apt: list[str] = field(default_factory=list)


AMD64 = Processor(
    "amd64", "qemu-system-x86_64", "gcc", "apt-get install qemu-system-x86 gcc libc6-dev"
)


@dataclass(frozen=True)
class Kernel:
    """An image, and modules in the order in which they are loaded."""

    image: Path
    modules: tuple[Path, ...]


# --- where it is ---------------------------------------------------------------------------------


def find_kernel(
    boot: Path = Path("/boot"), cache: Path | None = None, processor: Processor = AMD64
) -> Kernel:
    """A kernel of this machine that may be read and has the modules, or Debian's, downloaded once.

    Parameters
    ----------
    boot
        Where installed kernels lie; their modules are in ``lib/modules`` next to it.
    cache
        Where a downloaded one is kept.
    processor
        Whose kernel; the folder of installed ones must be of the same.
    """
    cache = cache or Path(platformdirs.user_cache_dir("perflib")) / "guest-kernel"
    kept = sorted(cache.glob(f"linux-image-*-{processor.name}"), reverse=True)
    for top in (boot.parent, *kept):
        kernel = _kernel_below(top, boot.name)
        if kernel is not None:
            return kernel
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "lock"):
        top = _download(cache, processor)
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


def _download(cache: Path, processor: Processor) -> Path:
    """Download and unpack Debian's kernel, of which only a few files are kept."""
    for program in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(program) is None:
            msg = (
                f"there is no kernel with 9p and virtio in /boot, and no '{program}' to download "
                f"Debian's (linux-image-{processor.name}): install a kernel that this user may read"
            )
            raise MissingError(msg)
    package = _newest_package(processor)
    top = cache / package
    if top.is_dir():
        return top
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=cache) as name:
        folder = Path(name)
        run_apt(["apt-get", *processor.apt, "download", package], folder)
        unpacked = folder / "unpacked"
        _unpack(next(folder.glob("*.deb")), unpacked)
        unpacked.replace(top)
    return top


def _newest_package(processor: Processor) -> str:
    """The package that the meta package stands for."""
    meta = f"linux-image-{processor.name}"
    answer = run_apt(["apt-cache", *processor.apt, "depends", "--important", meta], None)
    found = re.search(r"Depends: (linux-image-\S+)", answer)
    if found is None:
        msg = (
            f"apt-get knows no package {meta}: run 'apt-get update' first; on another "
            "system than Debian, install a kernel that this user may read into /boot"
        )
        raise MissingError(msg)
    return found[1]


def run_apt(argv: list[str], folder: Path | None) -> str:
    """What apt says; its error, with the command, where it fails."""
    answer = subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, check=False, timeout=_DOWNLOAD_S
    )
    if answer.returncode:
        msg = (
            f"{argv[-1]}, for the guest, cannot be had: '{argv[0]} {' '.join(argv[-2:])}' says: "
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
                    files.extract(file, where, **_AS_DATA)


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
