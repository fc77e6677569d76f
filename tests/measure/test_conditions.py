"""Conditions: refused before the start, applied to real processes, read back, and compared."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perflib.measure.conditions import Conditions, check, environment_bytes, observe, violated
from perflib.measure.launch import command
from perflib.model.errors import MeasurementError, UserError

WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"


@contextmanager
def started(requested: Conditions) -> Iterator[int]:
    """A process under conditions, once it runs what it is to run."""
    argv, environment = command(requested, [sys.executable, "-c", WAIT])
    with subprocess.Popen(
        argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.communicate()


def got(requested: Conditions) -> dict[str, Any]:
    with started(requested) as pid:
        return observe(pid, requested.environment)


def loaded_library() -> str:
    """A real shared library: one of those that this process has."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = [line.split(maxsplit=5)[5] for line in lines if "/libm" in line or "/libc" in line]
    return paths[0]


@pytest.fixture
def one_cpu() -> Iterator[int]:
    before = os.sched_getaffinity(0)
    cpu = min(before)
    os.sched_setaffinity(0, {cpu})
    yield cpu
    os.sched_setaffinity(0, before)


# --- what is requested ---------------------------------------------------------------------------


def test_nothing_asked_is_always_met() -> None:
    check(Conditions())
    assert violated(Conditions(), observe()) == []
    assert violated(Conditions(), got(Conditions())) == []


# --- refused before the start ------------------------------------------------------------------


def test_cpu_that_is_not_allowed_names_the_allowed(one_cpu: int) -> None:
    check(Conditions(cpu=one_cpu))
    with pytest.raises(UserError, match=rf"cpu={one_cpu + 1}: .* Allowed: CPUs {one_cpu} "):
        check(Conditions(cpu=one_cpu + 1))


@pytest.mark.parametrize(
    ("requested", "sentence"),
    [
        (Conditions(fifo_priority=0), "fifo_priority=0: it goes from 1 to 99"),
        (Conditions(fifo_priority=100), "it goes from 1 to 99"),
        (Conditions(environment={"A=B": "c"}), "is no variable"),
        (Conditions(environment={"A": "\0"}), "is no variable"),
        (Conditions(environment={"LD_PRELOAD": "/x.so"}), "through the condition 'preload'"),
        (Conditions(environment={"PERFLIB_PADDING": "x"}), "condition 'environment_bytes'"),
        (Conditions(environment_bytes=1), "environment_bytes=1 cannot be had"),
        (Conditions(environment_bytes=10**7), "one variable holds at most 131071 bytes"),
        (Conditions(preload=("/nowhere/libx.so",)), "there is no file '/nowhere/libx.so'"),
        (Conditions(memory_policy="bind"), "memory_policy='bind' needs a memory_node"),
        (Conditions(memory_node=0), "memory_node=0 needs a memory_policy"),
        (Conditions(memory_node=999, memory_policy="bind"), "no such node .*, only 0"),
        (Conditions(memory_policy="bnid"), "did you mean 'bind'"),  # type: ignore[arg-type]
        (Conditions(huge_pages="nevr"), "did you mean 'never'"),  # type: ignore[arg-type]
    ],
)
def test_impossible_conditions_are_refused(requested: Conditions, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        check(requested)


def test_preload_must_be_absolute_and_writable_as_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("libx.so").touch()
    Path("lib x.so").touch()
    with pytest.raises(UserError, match=rf"not absolute: write '{tmp_path}/libx.so'"):
        check(Conditions(preload=("libx.so",)))
    with pytest.raises(UserError, match="holds a blank or a colon"):
        check(Conditions(preload=(f"{tmp_path}/lib x.so",)))


def test_environment_that_is_larger_names_the_sizes_that_can_be_had() -> None:
    size = environment_bytes(Conditions().process_environment())
    with pytest.raises(UserError, match=rf"is {size} bytes already. Ask for {size}, or for"):
        check(Conditions(environment_bytes=size + 3))
    check(Conditions(environment_bytes=size))
    check(Conditions(environment_bytes=size + environment_bytes({"PERFLIB_PADDING": ""})))


# --- applied and read back ---------------------------------------------------------------------


def test_fifo_priority_is_in_force_or_said_to_be_missing() -> None:
    requested = Conditions(fifo_priority=2)
    seen = got(requested)
    if seen["scheduler"] == "FIFO":
        assert seen["fifo_priority"] == 2
        assert violated(requested, seen) == []
    else:
        (sentence,) = violated(requested, seen)
        assert "CAP_SYS_NICE" in sentence


def test_aslr_off_gives_every_process_the_same_addresses() -> None:
    requested = Conditions(aslr=False)
    seen = got(requested)
    if seen["aslr"] is not False:
        assert "ASLR: requested off, obtained on" in violated(requested, seen)[0]
        pytest.skip("this container forbids personality(2), and the run says so")
    show = "print([l for l in open('/proc/self/maps') if '[stack]' in l or 'libc' in l])"
    argv, environment = command(requested, [sys.executable, "-c", show])
    first, second = (
        subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert "[stack]" in first
    assert first == second
    assert violated(requested, seen) == []


@pytest.mark.parametrize("extra", [0, 17, 18, 4096])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_environment_size_is_exact(
    extra: int, locale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the C locale, where a Python on the way adds LC_CTYPE to its own environment."""
    monkeypatch.setenv("LC_ALL", "")
    monkeypatch.setenv("LANG", locale)
    monkeypatch.delenv("LC_CTYPE", raising=False)
    monkeypatch.setenv("PERFLIB_TEST", "größer")
    plain = Conditions(environment={"PERFLIB_MORE": "a=b"}, preload=(loaded_library(),))
    size = environment_bytes(plain.process_environment()) + extra
    requested = Conditions(
        environment=plain.environment, preload=plain.preload, environment_bytes=size
    )
    with started(requested) as pid:
        assert len(Path(f"/proc/{pid}/environ").read_bytes()) == size
        seen = observe(pid, requested.environment)
    assert seen["environment"] == {"PERFLIB_MORE": "a=b"}
    assert violated(requested, seen) == []


def test_preload_of_something_that_is_no_library_is_violated(tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("no library")
    requested = Conditions(preload=(str(text),))
    (sentence,) = violated(requested, got(requested))
    assert f"{text}, which is not mapped" in sentence


@pytest.mark.parametrize("policy", ["bind", "preferred", "interleave"])
def test_memory_policy(policy: Any) -> None:
    requested = Conditions(memory_policy=policy, memory_node=0)
    seen = got(requested)
    if seen["memory_policy"] == policy:
        assert seen["memory_nodes"] == [0]
        assert violated(requested, seen) == []
    else:
        assert "set_mempolicy(2)" in violated(requested, seen)[0]


def test_interleave_without_a_node_means_all_nodes() -> None:
    assert 0 in Conditions(memory_policy="interleave").memory_nodes()


def huge_bytes_by_mapping() -> int:
    text = Path("/proc/self/smaps").read_text(encoding="ascii")
    return 1024 * sum(map(int, re.findall(r"^AnonHugePages: +(\d+) kB", text, re.MULTILINE)))


def test_huge_pages_that_a_process_has_are_counted() -> None:
    if observe()["huge_pages"] == "never":
        pytest.skip("transparent huge pages are switched off on this machine")
    size = 8 << 20
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as buffer:
        buffer.madvise(mmap.MADV_HUGEPAGE)
        view = ctypes.c_char.from_buffer(buffer)
        ctypes.memset(ctypes.byref(view), 1, size)
        # the kernel may join pages meanwhile
        around = huge_bytes_by_mapping(), observe()["huge_page_bytes"], huge_bytes_by_mapping()
        del view
    assert sorted(around)[1] == around[1]


def test_process_that_is_gone() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(MeasurementError, match=f"process {process.pid} is gone"):
        observe(process.pid)


# --- requested and obtained ----------------------------------------------------------------------

NOTHING: dict[str, Any] = {
    "cpus": [0, 1],
    "scheduler": "OTHER",
    "fifo_priority": None,
    "aslr": True,
    "environment": {},
    "environment_bytes": None,
    "preload": [],
    "memory_policy": "default",
    "memory_nodes": [],
    "huge_pages": "madvise",
    "huge_page_bytes": 0,
}


@pytest.mark.parametrize(
    ("requested", "sentence"),
    [
        (Conditions(cpu=1), "CPU: requested 1, may run on [0, 1]."),
        (Conditions(fifo_priority=7), "requested 7, obtained scheduler OTHER (priority 0)."),
        (Conditions(fifo_priority=7), "'ulimit -r 7'"),
        (Conditions(aslr=False), "ASLR: requested off, obtained on."),
        (
            Conditions(environment={"A": "1"}),
            "requested A='1', obtained nothing that can be read back",
        ),
        (
            Conditions(environment_bytes=64),
            "requested 64 bytes, obtained nothing that can be read back",
        ),
        (Conditions(preload=("/x.so",)), "preload: requested /x.so, which is not mapped."),
        (
            Conditions(memory_policy="bind", memory_node=1),
            "memory policy: requested bind on nodes [1], obtained 'default' on [].",
        ),
        (
            Conditions(huge_pages="always"),
            "huge pages: requested always, obtained 'madvise'. The system setting thp=always gives",
        ),
        (Conditions(huge_pages="never"), "huge pages: requested never, obtained 'madvise'."),
    ],
)
def test_violated_says_what_was_requested_what_was_obtained_and_what_helps(
    requested: Conditions, sentence: str
) -> None:
    (said,) = violated(requested, NOTHING)
    assert sentence in said
