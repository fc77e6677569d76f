"""How a command ends that the system lets down, or that somebody ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perflib import cli

HUNG_UP = """
import os, signal, sys
from perflib import cli
signal.signal(signal.SIGHUP, signal.SIG_IGN)
def command(**_):
    os.kill(os.getpid(), signal.SIGHUP)
    print("went on")
cli.cli = command
cli.main([])
"""


def no_memory_for_numpy() -> ImportError:
    """As pandas reports it."""
    error = ImportError("Unable to import required dependency numpy")
    error.__context__ = ImportError("failed to map segment", path="/x/y.so")
    return error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "perflib: there is no memory left; "),
        (OSError(28, "No space left on device"), "perflib: [Errno 28] No space left on device; "),
        (ImportError("failed to map segment", path="/x/y.so"), "perflib: failed to map segment; "),
        (no_memory_for_numpy(), "perflib: failed to map segment; "),
    ],
)
def test_what_the_system_refuses_is_a_sentence(
    error: Exception,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "cli", refused)
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"{sentence}'perflib runs' shows what was kept\n"


def test_a_mistake_in_the_program_stays_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(**_: object) -> None:
        try:
            raise KeyError
        except KeyError:
            raise ImportError(name="a", path="/x/a.py") from None

    monkeypatch.setattr(cli, "cli", wrong)
    with pytest.raises(ImportError):
        cli.main([])


def test_a_terminal_that_closes_interrupts_nothing_that_ignores_it() -> None:
    argv = [sys.executable, "-c", HUNG_UP]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("went on\n", "", 0)


INTERRUPTED = """
import os, signal, sys
from perflib import cli
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
def command(**_):
    exec("os.kill(os.getpid(), signal.{number})", globals())
    print("went on")
cli.cli = command
cli.main([])
"""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_within_an_exec_ends_like_any_other(number: str, tmp_path: Path) -> None:
    # Python itself executes strings while it imports; as "-m" it would kill itself afterwards
    (tmp_path / "interrupted.py").write_text(INTERRUPTED.format(number=number))
    argv = [sys.executable, "-m", "interrupted"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path[1:]])}
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr == "perflib: interrupted; 'perflib runs' shows what was kept\n"
