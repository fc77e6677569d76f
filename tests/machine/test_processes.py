from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perflib.machine.processes import family, is_gone

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"])
print(child.pid, flush=True)
input()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", PARENT]
    with subprocess.Popen(argv, stdin=-1, stdout=-1, text=True, start_new_session=True) as process:
        yield process
        os.killpg(process.pid, signal.SIGKILL)


def test_a_family_is_a_process_and_its_descendants(parent: subprocess.Popen[str]) -> None:
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert family(parent.pid) == [parent.pid, child]
    assert family(child) == [child]
    assert {os.getpid(), parent.pid, child} <= set(family(os.getpid()))


def test_a_zombie_is_gone(parent: subprocess.Popen[str]) -> None:
    assert not is_gone(parent.pid)
    parent.kill()
    os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(parent.pid)


def test_a_process_that_never_was_is_gone(tmp_path: Path) -> None:
    assert is_gone(1, tmp_path)
