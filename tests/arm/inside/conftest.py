"""These tests hold counts to known instructions: they run nowhere but in the guest.

A test calls the command line in a child of this process: so perflib is imported once.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from perflib.cli import main
from perflib.model.run import Run
from perflib.store.run_files import load
from tests.numa.layouts import MARK


@pytest.fixture(scope="session", autouse=True)
def only_in_the_guest() -> None:
    if f"{MARK}arm" not in Path("/proc/cmdline").read_text().split():
        pytest.fail(
            "these tests count known instructions: they run only in a guest that 'make test-arm' "
            "boots",
            pytrace=False,
        )


@dataclass(frozen=True)
class Ended:
    """What a command said, its status, and the run that it saved."""

    status: int
    said: str
    run: Run | None
    name: str


@pytest.fixture
def perflib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """The command line: ``perflib("count", "-e", "cycles", "--", ...)``."""
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))

    def call(*words: str) -> Ended:
        before = set((tmp_path / "home").rglob("*.parquet"))
        with tempfile.TemporaryFile() as said:
            if (pid := os.fork()) == 0:
                status = 70
                try:
                    os.dup2(said.fileno(), 1)
                    os.dup2(said.fileno(), 2)
                    sys.argv = ["perflib", *words]
                    sys.stdout = os.fdopen(1, "w")
                    sys.stderr = os.fdopen(2, "w")
                    main()
                except SystemExit as ended:
                    status = ended.code if isinstance(ended.code, int) else 0
                except BaseException:  # noqa: BLE001 (this child must not continue as a test)
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(status)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            said.seek(0)
            words_said = said.read().decode()
        new = set((tmp_path / "home").rglob("*.parquet")) - before
        return Ended(
            status, words_said, load(max(new)) if new else None, max(new).stem if new else ""
        )

    return call
