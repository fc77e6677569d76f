"""Jobs on a pseudo-terminal: what they write, how they are held, how they end."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from perflib.instruments.joblog.joblog import JobEvent
from perflib.instruments.joblog.jobrun import JobError, JobResult, job_argv, run_job, too_short
from perflib.instruments.joblog.logformat import LogFormat
from perflib.model.errors import MeasurementError, UserError
from tests.processes import is_gone

NAMED = LogFormat(r"begin (?P<event>\w*)", r"end (?P<event>\w*)(?: in (?P<seconds>\S+))?")

# --- the job's command line --------------------------------------------------------------------


def test_job_argv_splits_before_it_fills_in() -> None:
    template = "'my job' --first={first} -n {events} -s{seed} '{\"a\": {}}' {{first}} $HOME"
    assert job_argv(template, first=73, events=2, seed=5) == [
        "my job", "--first=73", "-n", "2", "-s5", '{"a": {}}', "{first}", "$HOME",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("job {evnts}", ["unknown placeholder 'evnts'", "'events'", "{{evnts}}", "seed"]),
        ("job 'a", ["No closing quotation"]),
        ("  ", ["empty", "{first}"]),
    ],
)
def test_job_argv_refuses(template: str, words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        job_argv(template, first=0, events=1, seed=1)
    for word in words:
        assert word in str(caught.value)


# --- jobs --------------------------------------------------------------------------------------


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", f"import os, signal, subprocess, sys, time\n{script}", *arguments]


def run(script: str, *arguments: str, timeout_s: float = 30) -> JobResult:
    return run_job(python(script, *arguments), NAMED, timeout_s=timeout_s)


def test_events_arrive_while_the_job_runs_although_it_never_flushes(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    script = """
print("begin 1")
print("end 1 in 0.5")
while not os.path.exists(sys.argv[1]): time.sleep(0.005)
print("begin 2")
time.sleep(0.01)
print("end 2")
sys.exit(3)
"""
    result = run_job(
        python(script, str(seen)), NAMED, timeout_s=30, on_event=lambda *_: seen.touch()
    )
    assert [event.label for event in result.events] == [1, 2]
    assert result.events[0].reported_seconds == 0.5
    assert result.events[1].time_ns > 0
    assert result.returncode == 3
    assert result.tail == ["begin 1", "end 1 in 0.5", "begin 2", "end 2"]
    assert result.wall_s > 0


def test_the_job_has_a_terminal_that_changes_nothing_and_no_input() -> None:
    result = run(
        "import termios\n"
        "print(os.isatty(0), os.isatty(1), os.isatty(2), repr(sys.stdin.read()))\n"
        "print(termios.tcgetattr(1)[1] & termios.OPOST)\n"
        "print('complaint', file=sys.stderr)\n"
        "print(os.getpid() == os.getpgid(0))"
    )
    assert result.tail == ["False True True ''", "0", "complaint", "True"]


def test_much_output_is_read_whole_and_the_tail_is_short() -> None:
    result = run("for k in range(20000): print('begin', k); print('end', k)")
    assert [event.label for event in result.events] == list(range(20000))
    assert result.tail[-1] == "end 19999"
    assert len(result.tail) == 20


def test_lines_read_at_once_are_a_problem() -> None:
    result = run("os.write(1, b'begin 1\\nend 1\\n')")
    assert len(result.events) == 1
    assert result.problems == []
    assert "the lines of 1 events were read at once" in too_short(result.events)[0]
    assert too_short(run("print('begin 1'); time.sleep(0.02); print('end 1')").events) == []


def test_no_terminal_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = OSError(2, "No such file or directory")
    monkeypatch.setattr(os, "openpty", Mock(side_effect=refused))
    with pytest.raises(MeasurementError, match="/dev/pts"):
        run("pass")


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL (Killed)"), (40, "signal 40")])
def test_job_that_dies_inside_an_event(number: int, name: str) -> None:
    script = f"print('begin 1\\nend 1\\nbegin 2\\nlast words'); os.kill(os.getpid(), {number})"
    with pytest.raises(JobError) as caught:
        run(script)
    text = str(caught.value)
    assert f"died of {name}; events whole by then: 1." in text
    assert "event 2 began at line 3 and never ended" in text
    assert "  last words" in text
    assert caught.value.exit_code == 1
    assert caught.value.result.returncode == -number
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.what, copy.result) == (text, f"died of {name}", caught.value.result)


def test_interruption_kills_the_job() -> None:
    pids: list[int | str] = []

    def interrupt(event: JobEvent, _pid: int) -> None:
        pids.append(event.label)
        raise KeyboardInterrupt

    script = "print('begin', os.getpid()); print('end', os.getpid()); time.sleep(600)"
    with pytest.raises(KeyboardInterrupt):
        run_job(python(script), NAMED, timeout_s=30, on_event=interrupt)
    assert is_gone(int(pids[0]))


# --- held before the start ------------------------------------------------------------------------


def held(
    argv: list[str], on_start: Callable[[int], None], environment: dict[str, str] | None = None
) -> JobResult:
    return run_job(argv, NAMED, environment=environment, timeout_s=30, on_start=on_start)


def test_job_is_held_until_it_may_start(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    pids: list[int] = []

    def start(pid: int) -> None:
        time.sleep(0.02)
        assert "T (stopped)" in Path(f"/proc/{pid}/status").read_text()
        assert not mark.exists()
        pids.append(pid)

    result = held(python("open(sys.argv[1], 'w'); print('begin', os.getpid())", str(mark)), start)
    assert mark.exists()
    assert result.tail == [f"begin {pids[0]}"]


def test_held_job_has_the_environment_and_the_signals_of_one_that_is_not() -> None:
    argv = ["sh", "-c", "grep -z . /proc/$$/environ | tr '\\0' ' '; grep SigIgn /proc/$$/status"]
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "GIVEN": "a=b", "EMPTY": ""}
    plain = run_job(argv, NAMED, environment=environment, timeout_s=30)
    assert held(argv, lambda _pid: None, environment).tail == plain.tail
    assert "GIVEN=a=b" in plain.tail[0]


def test_held_job_that_cannot_be_started() -> None:
    with pytest.raises(MeasurementError, match=r"'no-such-job' cannot be started: No such file"):
        held(["no-such-job"], lambda _pid: None)


def test_what_goes_wrong_while_a_job_is_held_ends_it() -> None:
    pids: list[int] = []

    def fail(pid: int) -> None:
        pids.append(pid)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        held(python("time.sleep(600)"), fail)
    assert is_gone(pids[0])


def test_held_job_dies_with_us() -> None:
    script = """
import time
from perflib.instruments.joblog.jobrun import run_job, too_short
from perflib.instruments.joblog.logformat import FORMATS
def dawdle(pid):
    print(pid, flush=True)
    time.sleep(600)
run_job(["true"], FORMATS["kv"], timeout_s=60, on_start=dawdle)
"""
    us = [sys.executable, "-c", script]
    with subprocess.Popen(us, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        job = int(process.stdout.readline())
        process.kill()
    assert is_gone(job)
