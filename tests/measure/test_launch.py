"""The launcher: what it does to the process that it becomes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from perflib.measure import launch
from perflib.measure.conditions import Conditions
from perflib.measure.launch import command
from tests.processes import alive, is_gone


def run(requested: Conditions, *argv: str) -> subprocess.CompletedProcess[str]:
    words, environment = command(requested, argv)
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def test_becomes_the_command_with_its_arguments_status_and_pid() -> None:
    done = run(Conditions(), "sh", "-c", 'echo "$1"; exit 7', "sh", "-- a=b --")
    assert (done.stdout, done.returncode) == ("-- a=b --\n", 7)
    words, environment = command(Conditions(), ["sh", "-c", "echo $$"])
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate()[0] == f"{process.pid}\n"


def test_environment_is_handed_over_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_LINES", "a\nb=\udcff")
    monkeypatch.setenv("LC_ALL", "")
    monkeypatch.setenv("LANG", "C")
    words, environment = command(Conditions(environment={"PATH": os.defpath}), ["env", "-0"])
    out = subprocess.run(words, env=environment, capture_output=True, check=True).stdout
    entries = dict(entry.split("=", 1) for entry in os.fsdecode(out).split("\0") if entry)
    assert entries == environment


def test_no_signal_stays_ignored() -> None:
    """Python ignores SIGPIPE; a job that inherited that would not end with its reader."""
    status = run(Conditions(), "cat", "/proc/self/status").stdout
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        assert not ignored & 1 << (number - 1)


def test_preload_is_not_for_the_launcher_itself() -> None:
    words, environment = command(Conditions(preload=("/some/lib.so",)), ["true"])
    assert "LD_PRELOAD" not in environment
    assert "preload=/some/lib.so" in words


def test_impossible_cpu_is_an_error_with_status_2() -> None:
    done = run(Conditions(cpu=100_000), "true")
    assert done.returncode == 2
    assert "cannot start 'true': cannot run on CPU 100000" in done.stderr
    assert str(sorted(os.sched_getaffinity(0))) in done.stderr
    assert "Traceback" not in done.stderr


def test_command_that_does_not_exist_is_an_error_with_status_2() -> None:
    done = run(Conditions(), "/nowhere/job")
    assert done.returncode == 2
    assert "cannot start '/nowhere/job'" in done.stderr
    assert "Traceback" not in done.stderr


def test_does_not_start_for_a_parent_that_is_gone() -> None:
    words, environment = command(Conditions(), ["echo", "started"])
    words = [word.replace(f"parent={os.getpid()}", "parent=1999999999") for word in words]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "1999999999" in done.stderr


def test_dies_with_its_parent() -> None:
    code = (
        "import subprocess, time\n"
        "from perflib.measure.conditions import Conditions\n"
        "from perflib.measure.launch import command\n"
        "argv, environment = command(Conditions(), ['sh', '-c', 'echo $$; exec sleep 60'])\n"
        "subprocess.Popen(argv, env=environment)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()
        assert is_gone(child)


def test_imports_next_to_nothing() -> None:
    """Its start is part of every worker's: these would double it."""
    argv = [sys.executable, "-I", "-S", "-X", "importtime", launch.__file__, "--", "true"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "ctypes" in modules
    assert modules.isdisjoint({"json", "enum", "re", "signal", "dataclasses", "pathlib", "perflib"})
