"""Jobs on a pseudo-terminal, and what their logs say about events."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.errors import MeasurementError, UserError
from perflib.profiling import joblog
from perflib.profiling.joblog import LINE_LIMIT_BYTES, JobEvent, parse
from perflib.profiling.jobrun import JobError, JobResult, job_argv, run_job
from perflib.profiling.logformat import FORMATS, LogFormat

ATHENA = FORMATS["athena"]
NAMED = LogFormat(r"begin (?P<event>\w*)", r"end (?P<event>\w*)(?: in (?P<seconds>\S+))?")

# As in the source document: G4SimTimer counts from one, the event loop from zero.
KV_LOG = b"""\
AthenaEventLoopMgr   INFO  start processing event #72, run #1 72 events processed so far
G4AtlasAlg           INFO ++++++++++++  G4AtlasAlg execute  ++++++++++++
*  Memory snooper called at end of event with VMEM: 1443232kB
G4SimTimer           INFO        Event nr. 73 took 34.58 s. New average 0.985 +- 0.4806
AtRndmGenSvc         INFO  Stream =  SINGLE, Seed1 =  93448506, Seed2 = 144728191
AthenaEventLoopMgr   INFO  done processing event #72, run #1 73 events processed so far
AthenaEventLoopMgr   INFO   ===>>>  start processing event #73, run #1 73 events processed so far
"""


def parsed(
    log: bytes | list[tuple[int, bytes]], log_format: LogFormat
) -> tuple[list[JobEvent], list[str]]:
    problems: list[str] = []
    chunks = [(0, log)] if isinstance(log, bytes) else log
    return list(parse(chunks, log_format, problems)), problems


# --- formats -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "seconds"), [("athena", None), ("kv", 34.58)])
def test_ready_made_formats_read_the_source_documents_log(name: str, seconds: float | None) -> None:
    lines = [(10 * at, line) for at, line in enumerate(KV_LOG.splitlines(keepends=True))]
    events, problems = parsed(lines, FORMATS[name])
    end_ns = 30 if name == "kv" else 50
    assert events == [JobEvent(72, 0, end_ns, seconds)]
    assert events[0].time_ns == end_ns
    assert problems == ["event 73 began at line 7 and never ended"]


@pytest.mark.parametrize("name", ["athena", "kv"])
def test_ready_made_formats_read_our_own_jobs(name: str) -> None:
    log = (
        b"AthenaEventLoopMgr   INFO   ===>>>  start processing event #73, run #1 72 events "
        b"processed so far  <<<===\r\n"
        b"G4SimTimer           INFO        Event nr. 73 took 1.5e-05 s. New average 1e-5 +- 0\r\n"
        b"AthenaEventLoopMgr   INFO   ===>>>  done processing event #73, run #1 73 events "
        b"processed so far  <<<===\r\n"
    )
    events, problems = parsed(log, FORMATS[name])
    assert [event.event for event in events] == [73]
    assert problems == []


@pytest.mark.parametrize(
    ("begin", "end", "words"),
    [
        (r"a [", "b", ["begin", "unterminated character set", "position 2", "a [\n    ^"]),
        (r"(?P<event>a)", "(b", ["end", "position 0", "Event nr"]),
        (r"(?P<event>a)", "b{99999999999}", ["end", "too large"]),
        (r"start", "b", ["lacks the named group 'event'", "'start'", "start processing event"]),
        (r"(?P<evnt>a)", "b", ["unknown named group 'evnt'", "did you mean 'event'"]),
        (r"(?P<event>a)", "(?P<second>b)", ["did you mean 'seconds'", "For example"]),
    ],
)
def test_format_error_shows_expression_and_example(begin: str, end: str, words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        LogFormat(begin, end)
    for word in words:
        assert word in str(caught.value)


# --- what is no whole event --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "names", "problem"),
    [
        (b"begin 1\nbegin 2\nend 1\nend 2\n", [1, 2], ""),
        (b"begin a\nend a\nbegin a\nend a\n", ["a", "a"], ""),
        (b"begin 1\nend 1\nbegin 2\n", [1], "event 2 began at line 3 and never ended"),
        (b"end 4\nbegin 1\nend 1\n", [1], "event 4 ended at line 1 but never began"),
        (
            b"begin 5\nbegin 5\nend 5\n",
            [5],
            "event 5 began at line 1 and never ended before event 5 began at line 2",
        ),
        (b"begin \nx\n", [], "line 1 begins an event without a name: 'begin '"),
        (b"end \n", [], "line 1 ends an event, but no event is open: 'end '"),
        (b"begin 1\nend 1 in no\n", [1], "line 2: 'no' is no time in seconds"),
        (b"begin 1\nend 1 in nan\n", [1], "line 2: 'nan' is no time in seconds"),
        (b"begin 1\nend 1 in -1\n", [1], "line 2: '-1' is no time in seconds"),
        (b"begin 1 end 1\n", [], "line 1 matches both begin and end, not used: 'begin 1 end 1'"),
        (b"begin 73\nend 73\nbegin 7", [73], "the output ended within line 3, not used: 'begin 7'"),
        (b"begin 7\xff\xfe\nend 7\n\x00\xff", [7], ""),
    ],
)
def test_what_is_no_whole_event_is_a_problem(
    log: bytes, names: list[int | str], problem: str
) -> None:
    events, problems = parsed(log, NAMED)
    assert [event.event for event in events] == names
    assert problems == ([problem] if problem else [])


def test_end_without_name_among_several_open_events_is_a_problem() -> None:
    events, problems = parsed(b"begin 1\nbegin 2\nend \n", NAMED)
    assert events == []
    assert problems[0] == "line 3 ends an event, but 2 events are open: 'end '"
    assert len(problems) == 3


def test_without_names_in_the_end_events_come_one_after_the_other() -> None:
    one_at_a_time = LogFormat(r"begin (?P<event>\d+)", "end")
    events, problems = parsed(b"begin 1\nbegin 2\nend\nend\nbegin 3\nend\n", one_at_a_time)
    assert [event.event for event in events] == [2, 3]
    assert problems == [
        "event 1 began at line 1 and never ended before event 2 began at line 2",
        "line 4 ends an event, but no event is open: 'end'",
    ]


def test_time_of_a_line_is_that_of_its_newline() -> None:
    log = [(0, b"noise\nbeg"), (1, b"in 7"), (5, b"3\nend"), (9, b" 73 in 0.25\nbegin")]
    events, problems = parsed(log, NAMED)
    assert events == [JobEvent(73, 5, 9, 0.25)]
    assert problems == []


def test_long_number_is_a_name() -> None:
    digits = "9" * 4000  # more than int() takes where the limit on digits is low
    events, _ = parsed(f"begin {digits}\nend {digits}\n".encode(), NAMED)
    assert events[0].event == digits


# --- lines of any length, cut anywhere ---------------------------------------------------------


def test_line_without_end_costs_no_memory_and_is_reported() -> None:
    def chunks() -> list[tuple[int, bytes]]:
        dots = [(at, b"." * 1000) for at in range(20)]
        return [(0, b"begin 1\n"), *dots, (30, b"end 1\n"), (40, b"end 1" + b"." * 9000 + b"\n")]

    events, problems = parsed(chunks(), NAMED)
    assert events == [JobEvent(1, 0, 40)]  # the first "end 1" stands beyond the limit
    assert problems == [
        f"2 lines longer than {LINE_LIMIT_BYTES} bytes were read only so far, the first is line 2"
    ]


PIECES = st.sampled_from(
    [
        b"begin ", b"end ", b"1", b"2", b"x", b"\n", b"\n", b"\r\n", b" in 2.5", b"\xc3\xa9",
        b"begin 1\n", b"end 1\n", b"begin 2\n", b"end 2 in 1\n", b"." * LINE_LIMIT_BYTES,
    ]
)  # fmt: skip


@given(st.lists(PIECES, max_size=30).map(b"".join), st.data())
def test_any_chunking_gives_the_same_events(log: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(log)), max_size=12).map(sorted))
    edges = [0, *cuts, len(log)]
    chunks = [(0, log[a:b]) for a, b in itertools.pairwise(edges)]
    assert parsed(chunks, NAMED) == parsed(log, NAMED)
    if len(log) < 200:
        assert parsed([(0, bytes([byte])) for byte in log], NAMED) == parsed(log, NAMED)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=20))
def test_every_line_is_in_an_event_or_in_a_problem(steps: list[tuple[int, bool]]) -> None:
    log = "".join(f"{'begin' if begins else 'end'} {event}\n" for event, begins in steps)
    events, problems = parsed(log.encode(), NAMED)
    assert 2 * len(events) + len(problems) == len(steps)


@given(st.binary(max_size=300))
def test_binary_output_is_read(log: bytes) -> None:
    parsed(log, NAMED)
    parsed(log, FORMATS["kv"])


# --- expressions that backtrack ----------------------------------------------------------------


def test_expression_that_backtracks_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblog, "_MATCH_LIMIT_S", 0.05)
    before = signal.getsignal(signal.SIGVTALRM)
    log_format = LogFormat(r"(?P<event>(a+)+)b", "end")
    with pytest.raises(UserError, match=r"line 2 .*backtracks") as caught:
        parsed(b"fine\n" + b"a" * 500 + b"\n", log_format)
    assert "(?P<event>(a+)+)b" in str(caught.value)
    assert signal.getsignal(signal.SIGVTALRM) == before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


def test_parsing_works_outside_the_main_thread() -> None:
    found: list[JobEvent] = []
    thread = threading.Thread(
        target=lambda: found.extend(parse([(0, b"begin 1\nend 1\n")], NAMED, []))
    )
    thread.start()
    thread.join()
    assert [event.event for event in found] == [1]


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


def is_gone(pid: int) -> bool:
    """Whether a killed process ends; no one but its parent can wait for it."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False


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
    assert [event.event for event in result.events] == [1, 2]
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


def test_the_job_has_the_environment_it_was_given() -> None:
    result = run_job(
        python("print(sorted(set(os.environ) & {'GIVEN', 'PATH', 'HOME'}))"),
        NAMED,
        environment={"GIVEN": "1"},
        timeout_s=30,
    )
    assert result.tail == ["['GIVEN']"]


def test_much_output_is_read_whole_and_the_tail_is_short() -> None:
    result = run("for k in range(20000): print('begin', k); print('end', k)")
    assert [event.event for event in result.events] == list(range(20000))
    assert result.tail[-1] == "end 19999"
    assert len(result.tail) == 20


def test_lines_read_at_once_are_a_problem() -> None:
    result = run("os.write(1, b'begin 1\\nend 1\\n')")
    assert len(result.events) == 1
    assert "the lines of 1 events were read at once" in result.problems[0]


def test_job_that_closes_its_output_is_waited_for() -> None:
    result = run("os.close(1); os.close(2); time.sleep(0.02); os._exit(4)")
    assert (result.returncode, result.tail) == (4, [])


def test_job_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match=r"'no-such-job' cannot be started.*on PATH"):
        run_job(["no-such-job"], NAMED, environment={"PATH": str(tmp_path)}, timeout_s=1)
    plain = tmp_path / "plain"
    plain.write_text("echo\n")
    with pytest.raises(MeasurementError, match="chmod"):
        run_job([str(plain)], NAMED, timeout_s=1)
    plain.chmod(0o755)
    with pytest.raises(MeasurementError, match=r"Exec format error: it lacks a #! line"):
        run_job([str(plain)], NAMED, timeout_s=1)
    with pytest.raises(MeasurementError, match="null byte"):
        run_job(["a\0b"], NAMED, timeout_s=1)
    with pytest.raises(UserError, match="empty"):
        run_job([], NAMED, timeout_s=1)


def test_no_terminal_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[int, int]:
        raise OSError(2, "No such file or directory")

    monkeypatch.setattr(os, "openpty", refuse)
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
    assert (str(copy), copy.result) == (text, caught.value.result)


CHILD = "child = subprocess.Popen(['sleep', '600']); print('begin', child.pid)\n"


def test_time_limit_kills_the_whole_group() -> None:
    with pytest.raises(JobError, match=r"did not end within 1 s and was killed") as caught:
        run(f"{CHILD}print('end', child.pid); time.sleep(600)", timeout_s=1)
    (event,) = caught.value.result.events
    assert isinstance(event.event, int)
    assert is_gone(event.event)
    assert caught.value.result.returncode == -signal.SIGKILL


def test_what_the_job_leaves_behind_is_killed() -> None:
    result = run(f"{CHILD}print('end', child.pid)")
    (event,) = result.events
    assert isinstance(event.event, int)
    assert is_gone(event.event)
    assert result.returncode == 0


def test_interruption_kills_the_job() -> None:
    pids: list[int | str] = []

    def interrupt(event: JobEvent, _pid: int) -> None:
        pids.append(event.event)
        raise KeyboardInterrupt

    script = "print('begin', os.getpid()); print('end', os.getpid()); time.sleep(600)"
    with pytest.raises(KeyboardInterrupt):
        run_job(python(script), NAMED, timeout_s=30, on_event=interrupt)
    assert is_gone(int(pids[0]))


def test_no_file_descriptor_is_left_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    run("pass")
    with pytest.raises(MeasurementError):
        run_job(["no-such-job"], NAMED, timeout_s=1)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
