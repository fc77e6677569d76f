"""The root of an arm64 guest: Debian's packages and wheels, unpacked once and kept by content.

Neither root's rights, nor debootstrap, nor anything of that architecture on this machine is needed:
apt resolves the packages of a system that has none yet, and nothing in them is run.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import requires
from pathlib import Path

import platformdirs
from filelock import FileLock
from packaging.requirements import Requirement

from tests.numa.guest import TOP
from tests.numa.kernel import MissingError, Processor, run_apt

# gcc: perflib compiles its kernels inside. perf records, libpfm4 knows the names of events,
# qemu-user simulates counters, the two libraries code blocks.
DEBIAN = (
    "base-files bash coreutils dash gcc libc6-dev libisal-dev libjerasure-dev libpfm4 linux-perf "
    "python3 qemu-user util-linux"
)
PYTHON = ("perflib-jupyter", "pytest", "pytest-timeout")
LOCK = TOP / "recipe/locked-dev.txt"
WHEELS = "opt/python"
_PLATFORMS = [f"manylinux_2_{number}_aarch64" for number in (36, 34, 28, 27, 17)]
_PACKAGES = "apt-get install qemu-system-arm gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
_BUILD_S = 600.0


def processor(cache: Path) -> Processor:
    """Arm's 64-bit one, for which apt has lists and archives of its own below a folder."""
    places = {"State::Lists": "lists", "State::status": "status", "Cache": "archives"}
    apt = ["-qq", "-o", "APT::Architecture=arm64", "-o", "APT::Architectures=arm64"]
    for option, name in places.items():
        apt += ["-o", f"Dir::{option}={cache / 'apt' / name}"]
    for option in ("Debug::NoLocking=1", "Acquire::Languages=none", "APT::Sandbox::User="):
        apt += ["-o", option]
    apt += ["-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=0"]
    return Processor(
        "arm64",
        "qemu-system-aarch64",
        "aarch64-linux-gnu-gcc",
        _PACKAGES,
        boot=Path("/nothing/boot"),  # what is installed here is not arm64's
        apt=apt,
    )


def build(cache: Path | None = None) -> tuple[Processor, Path]:
    """The processor, whose lists apt has by then, and the root.

    Raises
    ------
    MissingError
        A program is not installed, or a registry did not answer; the text names it.
    """
    for program in ("apt-get", "dpkg-deb", "tar"):
        if shutil.which(program) is None:
            msg = f"no '{program}' to unpack Debian's arm64 packages: this is no Debian"
            raise MissingError(msg)
    cache = cache or Path(platformdirs.user_cache_dir("perflib")) / "guest-arm64"
    cache.mkdir(parents=True, exist_ok=True)
    arm = processor(cache)
    wheels = locked(LOCK.read_text(), needed(PYTHON))
    made_of = "\n".join([DEBIAN, wheels, Path(__file__).read_text()])
    root = cache / f"root-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"
    with FileLock(cache / "lock"):
        if not root.is_dir():
            with tempfile.TemporaryDirectory(prefix=".building-", dir=cache) as name:
                _debian(arm, cache / "apt", Path(name) / "root")
                _wheels(wheels, Path(name) / "root")
                (Path(name) / "root").replace(root)
            for older in set(cache.glob("root-*")) - {root}:
                shutil.rmtree(older, ignore_errors=True)
    return arm, root


def _debian(arm: Processor, folder: Path, root: Path) -> None:
    for part in ("lists/partial", "archives/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "status").write_text("")  # nothing is installed: all dependencies are downloaded
    run_apt(["apt-get", *arm.apt, "update"], None)
    install = ["install", "--yes", "--download-only", "--no-install-recommends", *DEBIAN.split()]
    run_apt(["apt-get", *arm.apt, *install], None)
    for name in ("bin", "lib", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    (root / "mnt").mkdir()  # the checkout
    for package in sorted((folder / "archives/archives").glob("*.deb")):
        _done(["sh", "-c", 'dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2"',
               "sh", str(package), str(root)])  # fmt: skip
        package.unlink()
    # What Debian's own scripts would do. Without it, each start compiles Python's library anew.
    library = next((root / "usr/lib").glob("python3.*"))
    if library.name == f"python3.{sys.version_info.minor}":
        compiling = ["-m", "compileall", "-q", "-x", "lib2to3", str(library), "-s", str(root)]
        subprocess.run([sys.executable, *compiling, "-p", "/"], check=False, timeout=_BUILD_S)


def _wheels(lock: str, root: Path) -> None:
    version = next((root / "usr/lib").glob("python3.*")).name.removeprefix("python")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(lock)
        file.flush()
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        argv += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", file.name]
        argv += [word for name in _PLATFORMS for word in ("--platform", name)]
        argv += ["--python-version", version, "--target", str(root / WHEELS)]
        _done(argv)


def _done(argv: list[str]) -> None:
    answer = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_BUILD_S)
    if answer.returncode:
        words = answer.stderr.strip().splitlines() or ["nothing"]
        msg = f"the root of an arm64 guest cannot be built; '{argv[0]}' says: {words[-1]}"
        raise MissingError(msg)


# --- which wheels --------------------------------------------------------------------------------


def needed(
    names: tuple[str, ...], requirements: Callable[[str], list[str] | None] = requires
) -> set[str]:
    """Distributions and all that they depend on, as they are installed here; perflib left out."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = _canonical(left.pop())
        if name not in found:
            found.add(name)
            parsed = map(Requirement, requirements(name) or [])
            left += [
                one.name
                for one in parsed
                if one.marker is None or one.marker.evaluate({"extra": ""})
            ]
    return found - {PYTHON[0]}


def locked(lock: str, names: set[str]) -> str:
    """The lock's entries of some distributions, with their hashes.

    Raises
    ------
    MissingError
        The lock lacks one of them.
    """
    entries = re.findall(r"^[A-Za-z0-9].*\n(?:[ \t]+.*\n?)*", lock, re.MULTILINE)
    by_name: dict[str, list[str]] = {}
    for entry in entries:
        by_name.setdefault(_canonical(re.split(r"[=\s;]", entry)[0]), []).append(entry)
    if absent := sorted(names - set(by_name)):
        msg = f"{LOCK.name} lacks {', '.join(absent)}: make lock"
        raise MissingError(msg)
    return "".join(entry for name in sorted(names) for entry in by_name[name])


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
