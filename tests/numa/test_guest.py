"""The machinery of the guests, without booting one: ``make test-numa`` does that."""

from __future__ import annotations

import fnmatch
import lzma
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.numa import guest as machinery
from tests.numa.guest import Guest, GuestError, prepare, program, read_answer
from tests.numa.kernel import MissingError, find_kernel, read_module

HERE = Path(__file__).parent
# by name: what it depends on
MODULES = {
    "virtio_ring": "",
    "virtio": "virtio_ring",
    "virtio_pci": "virtio_ring,virtio",
    "9pnet": "",
    "9pnet_virtio": "virtio,9pnet,virtio_ring",
    "netfs": "",
    "9p": "9pnet,netfs",
}
PLACES = {"9p": "fs/9p", "9pnet": "net/9p", "9pnet_virtio": "net/9p", "netfs": "fs/netfs"}


def module(depends: str) -> bytes:
    return b"\x7fELF\0license=GPL\0depends=" + depends.encode() + b"\0name=x\0"


def lay_out_kernel(root: Path, version: str, without: str = "") -> None:
    """What a kernel's package has of what is needed, and something that is not."""
    (root / "boot").mkdir(parents=True)
    (root / "boot" / f"vmlinuz-{version}").write_bytes(b"image")
    for name, depends in {**MODULES, "e1000": ""}.items():
        folder = root / "lib/modules" / version / "kernel"
        folder /= "drivers/net" if name == "e1000" else PLACES.get(name, "drivers/virtio")
        folder.mkdir(parents=True, exist_ok=True)
        if name != without:
            (folder / f"{name}.ko").write_bytes(module(depends))


# --- what is collected, and where it may run -----------------------------------------------------


def test_an_ordinary_run_boots_nothing() -> None:
    for file in [HERE / "boot.py", *(HERE / "inside").glob("*.py")]:
        assert not fnmatch.fnmatch(file.name, "test_*.py")
        assert not fnmatch.fnmatch(file.name, "*_test.py")


def test_the_tests_inside_refuse_any_other_machine() -> None:
    inside = HERE / "inside"
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--confcutdir", str(inside)]
    answer = subprocess.run(
        [*argv, str(inside / "machine.py")],
        capture_output=True,
        text=True,
        check=False,
        cwd=HERE.parents[1],
    )
    last = answer.stdout.splitlines()[-1]
    assert answer.returncode == pytest.ExitCode.TESTS_FAILED
    assert "error" in last
    assert not any(word in last for word in ("passed", "failed"))
    assert "they run only in a guest that 'make test-numa' boots" in answer.stdout


# --- how a guest is started ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "simd",
    [
        {"baseline": ["SSE"], "found": ["AVX2", "AVX512F"]},  # the processor has all
        {"baseline": ["SSE"], "found": ["AVX2"], "not found": ["AVX512F"]},
        {"baseline": ["SSE"], "not found": ["AVX2", "AVX512F"]},
    ],
)
def test_numpy_uses_no_more_than_its_baseline_inside(
    simd: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(np, "show_config", lambda **_: {"SIMD Extensions": simd})
    _, environment = machinery.tests_inside()
    assert environment["NPY_DISABLE_CPU_FEATURES"].split() == ["AVX2", "AVX512F"]


def test_the_program_keeps_words_and_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machinery, "_OUT", str(tmp_path))
    (tmp_path / "cache" / "kernel").mkdir(parents=True)
    folders = {
        "HOME": str(tmp_path / "home"),
        "PERFLIB_HOME": str(tmp_path / "data"),
        "PERFLIB_CACHE": str(tmp_path / "copied"),
    }
    script = program(["sh", "-c", 'echo "$WORD" in $PWD; exit 3'], {**folders, "WORD": "it's $x"})
    assert subprocess.run(["sh", "-c", script], check=False).returncode == 0
    answer = read_answer(tmp_path)
    assert answer.status == 3
    assert answer.said == f"it's $x in {HERE.parents[1]}\n"
    assert (tmp_path / "copied" / "kernel").is_dir()
    assert (tmp_path / "copied").stat().st_mode & 0o077 == 0


# --- what it answers -----------------------------------------------------------------------------

REPORT = """<?xml version="1.0"?><testsuites><testsuite name="pytest" errors="0" failures="1"
skipped="2" tests="9" time="1.0"></testsuite></testsuites>"""


def test_an_answer_is_counted(tmp_path: Path) -> None:
    (tmp_path / "said").write_text("1 failed, 6 passed")
    (tmp_path / "status").write_text("1\n")
    (tmp_path / "report.xml").write_text(REPORT)
    answer = read_answer(tmp_path)
    assert (answer.status, answer.said) == (1, "1 failed, 6 passed")
    assert answer.counts == {"tests": 9, "failures": 1, "errors": 0, "skipped": 2}


def test_a_guest_that_panics_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match="nothing at all: the kernel has not started"):
        read_answer(tmp_path)
    (tmp_path / "console").write_text("\n".join([*"abc" * 40, "Kernel panic - not syncing\r\n"]))
    with pytest.raises(GuestError, match="ended before its tests did") as caught:
        read_answer(tmp_path)
    assert str(caught.value).endswith("Kernel panic - not syncing")
    assert len(str(caught.value).splitlines()) < 50


def test_a_guest_that_hangs_is_ended(tmp_path: Path) -> None:
    with Guest(["sleep", "600"], tmp_path) as hanging:
        process = hanging._process
        with pytest.raises(GuestError, match=r"has not ended within 0\.1 s"):
            hanging.answer(0.1)
    assert process.returncode is not None


def test_what_qemu_refuses_is_told(tmp_path: Path) -> None:
    with (
        Guest(["sh", "-c", "echo qemu: no such option >&2; exit 1"], tmp_path) as refused,
        pytest.raises(GuestError, match="The last that qemu said:\nqemu: no such option"),
    ):
        refused.answer(60)


# --- the kernel ----------------------------------------------------------------------------------


def test_packed_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "9p.ko.xz"
    packed.write_bytes(lzma.compress(b"module"))
    assert read_module(packed) == b"module"
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(MissingError, match="apt-get install zstd"):
        read_module(tmp_path / "9p.ko.zst")


# --- downloading ---------------------------------------------------------------------------------

APT = {
    "apt-cache": 'echo "linux-image-amd64"; echo "  Depends: linux-image-9.0-amd64"',
    "apt-get": 'test "$1" = download && cp "$DEB" "$2_9.0_amd64.deb" && echo "$2" >> "$DEB.log"',
}


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An apt that knows one kernel, and counts how often it was downloaded."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in APT.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("DEB", str(tmp_path / "kernel.deb"))
    return programs


def make_package(folder: Path, without: str = "") -> None:
    content = folder / "content"
    lay_out_kernel(content, "9.0-amd64", without)
    (content / "DEBIAN").mkdir()
    (content / "DEBIAN/control").write_text(
        "Package: linux-image-9.0-amd64\nVersion: 9.0\nArchitecture: amd64\n"
        "Maintainer: nobody <nobody@localhost>\nDescription: none\n"
    )
    subprocess.run(
        ["dpkg-deb", "--build", str(content), str(folder / "kernel.deb")],
        check=True,
        capture_output=True,
    )


needs_dpkg = pytest.mark.skipif(
    shutil.which("dpkg-deb") is None, reason="no dpkg-deb: this is no Debian"
)


@needs_dpkg
@pytest.mark.usefixtures("apt")
def test_debian_s_kernel_is_downloaded_once(tmp_path: Path) -> None:
    make_package(tmp_path)
    for _ in range(2):
        found = find_kernel(tmp_path / "nothing/boot", tmp_path / "cache")
    top = tmp_path / "cache/linux-image-9.0-amd64"
    assert found.image == top / "boot/vmlinuz-9.0-amd64"
    assert len(found.modules) == len(MODULES)
    assert list(top.rglob("e1000*")) == []  # only what is needed is kept
    assert (tmp_path / "kernel.deb.log").read_text().splitlines() == ["linux-image-9.0-amd64"]


@needs_dpkg
@pytest.mark.usefixtures("apt")
def test_a_kernel_without_a_module_is_told(tmp_path: Path) -> None:
    make_package(tmp_path, without="9p")
    with pytest.raises(MissingError, match="lacks an image or one of the modules"):
        find_kernel(tmp_path / "nothing/boot", tmp_path / "cache")


@needs_dpkg
def test_a_kernel_that_cannot_be_had_is_told(tmp_path: Path, apt: Path) -> None:
    (apt / "apt-get").write_text("#!/bin/sh\necho 'E: no network' >&2\nexit 100\n")
    with pytest.raises(MissingError, match=r"no network \(does 'apt-get update' help\?\)"):
        find_kernel(tmp_path / "nothing/boot", tmp_path / "cache")
    (apt / "apt-cache").write_text("#!/bin/sh\n")
    with pytest.raises(MissingError, match="knows no package linux-image-amd64"):
        find_kernel(tmp_path / "nothing/boot", tmp_path / "cache")
    assert list((tmp_path / "cache").glob("linux-image-*")) == []


def test_a_machine_without_apt_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(MissingError, match="no 'apt-get' to download Debian's"):
        find_kernel(tmp_path / "nothing/boot", tmp_path / "cache")


# --- what must be installed ----------------------------------------------------------------------


def test_missing_programs_are_named_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    wanted = "no qemu-system-x86_64 and no gcc: .*apt-get install qemu-system-x86 gcc libc6-dev"
    with pytest.raises(MissingError, match=wanted):
        prepare(tmp_path)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc: apt-get install gcc")
def test_the_first_process_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out_kernel(tmp_path / "root", "9.0-amd64")
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(
        machinery, "find_kernel", lambda *_, **__: find_kernel(tmp_path / "root/boot", tmp_path)
    )
    kernel, packed = prepare(tmp_path)
    assert kernel.image.name == "vmlinuz-9.0-amd64"
    content = packed.read_bytes()
    assert (tmp_path / "init").read_bytes() in content
    assert content.count(b"depends=") == len(MODULES)
