"""Compilers that fail, hang or lie: a sentence each, and the cache keeps nothing of it."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from perflib import kernels
from perflib.kernels.compiling import compiler
from perflib.machine.doctor.check_tools import check_cache
from perflib.model.errors import MeasurementError, UserError

REAL = shutil.which("gcc")
OUT = 'for word; do [ "$last" = -o ] && out=$word; last=$word; done; '

pytestmark = [
    pytest.mark.usefixtures("cache"),
    pytest.mark.skipif(REAL is None, reason="no gcc: apt-get install gcc"),
]


def use(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str = "") -> Path:
    """Make a script the compiler; it reports its version as the real one does."""
    script = tmp_path / "cc"
    version = version or f"exec {REAL} --version"
    script.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then {version}; fi\n{code}\n')
    script.chmod(0o700)
    monkeypatch.setenv("PERFLIB_CC", str(script))
    return script


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("echo no more >&2; exit 1", r"'faulty' does not compile; .*/cc says:\nno more"),
        ("kill -SEGV $$", "does not compile; .*/cc died of signal 11"),
        ("kill -KILL $$", "/cc was killed, perhaps for want of memory"),
        (
            "echo 'Killed signal terminated program cc1' >&2; exit 1",
            "was killed, perhaps .*\n.*cc1",
        ),
        ("yes error >&2", "/cc printed more than 4 MiB and was killed"),
        ("yes error | head -c 100000 >&2; exit 1", "error\nerr.* 80000 characters more"),
        ("exit 0", "reports success, but made no faulty.so"),
        (OUT + ': > "$out"', "faulty.so is no ELF file of this processor"),
        (OUT + 'head -c 5000 /dev/zero > "$out"', "faulty.so is no ELF file of this processor"),
        (f'{OUT}{REAL} "$@"; head -c 3000 "$out" > x; mv x "$out"', "is cut off|lacks"),
        (f'{OUT}{REAL} "$@"; truncate -s -1 "$out"', "faulty.so is cut off"),
        (
            f'{OUT}{REAL} -shared -x c /dev/null -o "$out"',
            "faulty.so lacks faulty_add, faulty_scale",
        ),
    ],
)
def test_it_is_a_sentence_and_not_kept(
    code: str, sentence: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    use(code, tmp_path, monkeypatch)
    with pytest.raises(MeasurementError, match=f"(?s){sentence}"):
        kernels.build("faulty")
    assert not [path for path in cache.iterdir() if path.is_dir()]
    use(f'exec {REAL} "$@"', tmp_path, monkeypatch)
    assert kernels.load("faulty").lib.faulty_add(2, 3) == 5


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_cache_that_is_full(
    number: int, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(
        f"echo 'x.c:1: error writing x.s: {os.strerror(number)}' >&2; exit 1", tmp_path, monkeypatch
    )
    with pytest.raises(UserError, match=f"'{cache}'. Free some space there, or set PERFLIB_CACHE"):
        kernels.build("faulty")


@pytest.mark.parametrize("mounted", [False, True])
def test_a_cache_from_which_nothing_may_run(
    mounted: bool, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "noexec,mode=700", "tmpfs", str(cache)]
    if not mounted:
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    elif os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        said = "is on a file system mounted with noexec.* Set PERFLIB_CACHE"
        with pytest.raises(UserError, match=f"{cache} {said}"):
            kernels.build("faulty")
        check = check_cache()
        assert (check.state, check.command) == ("warn", "export PERFLIB_CACHE=FOLDER")
        assert re.search(said, check.now)
    finally:
        if mounted:
            subprocess.run(["umount", str(cache)], check=True)


WRAPPER = """#!/bin/sh
case $* in *--version*) echo wrapped "$1"; exit;; esac
env > {log}
exec "$@"
"""


def test_a_compiler_of_several_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``ccache gcc -m64``: its own settings reach it, and its words are in the provenance."""
    wrapper = tmp_path / "a wrapper"
    wrapper.write_text(WRAPPER.format(log=tmp_path / "log"))
    wrapper.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CCACHE_DIR", "/its/own")
    monkeypatch.setenv("CPATH", "/other")
    plain = kernels.build("faulty")
    monkeypatch.setenv("PERFLIB_CC", "'a wrapper' gcc -DNONE='a b'")
    built = kernels.build("faulty")
    assert kernels.opened(built).lib.faulty_add(2, 3) == 5
    assert built.library != plain.library
    assert built.provenance["compiler"] == f"'{wrapper}' gcc '-DNONE=a b'"
    assert built.provenance["compiler_version"] == "wrapped gcc"
    variables = (tmp_path / "log").read_text().splitlines()
    assert "CCACHE_DIR=/its/own" in variables
    assert "CPATH=/other" not in variables


def test_a_library_in_place_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(f'{OUT}{REAL} -shared -x c /dev/null -o "$out"', tmp_path, monkeypatch)
    with pytest.raises(MeasurementError, match="declared is no program, but a library"):
        kernels.build("declared", executable=True)


def test_one_that_hangs_is_killed_with_all_that_it_started(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFLIB_CC_TIMEOUT_S", "0.5")
    use(f"sleep 1000 & echo $! > {tmp_path}/child; wait", tmp_path, monkeypatch)
    with pytest.raises(MeasurementError, match=r"did not end within 0\.5 s") as caught:
        kernels.build("faulty")
    assert "PERFLIB_CC_TIMEOUT_S" in str(caught.value)
    child = int((tmp_path / "child").read_text())
    status = Path(f"/proc/{child}/status")
    assert not status.exists() or "zombie" in status.read_text()
    assert not list(cache.glob(".building-*"))


def test_an_interrupted_compilation_leaves_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C does not reach the compiler itself, which has a process group of its own."""
    use("exec sleep 1000", tmp_path, monkeypatch)
    compiler()  # its version is known
    started: list[subprocess.Popen[str]] = []

    def interrupted(process: subprocess.Popen[str], **_: object) -> None:
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kernels.build("faulty")
    assert started[0].returncode == -signal.SIGKILL


@pytest.mark.parametrize("wish", ["0", "-1", "soon", "nan", "inf"])
def test_a_limit_that_is_none(wish: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_CC_TIMEOUT_S", wish)
    with pytest.raises(UserError, match=f"PERFLIB_CC_TIMEOUT_S={wish}: it must be a number"):
        kernels.build("faulty")


@pytest.mark.parametrize(
    ("says", "version"),
    [
        (r"printf 'gcc \377\033[31m 12\n'; exit 3", "gcc \ufffd[31m 12"),
        ("head -c 100000 /dev/zero | tr '\\0' x; exit", "x" * 200),
        ("exit 0", "unknown"),
    ],
)
def test_its_version_is_a_short_line_of_text(
    says: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(f'exec {REAL} "$@"', tmp_path, monkeypatch, says)
    assert compiler()[1] == version
    assert kernels.build("faulty").provenance["compiler_version"] == version


def test_one_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = use("", tmp_path, monkeypatch)
    script.write_bytes(b"\x7fELF and no more")
    with pytest.raises(UserError, match=r"the C compiler .*/cc cannot be started: Exec format"):
        kernels.build("faulty")
