"""What a job's log says about events, and what it does not."""

from __future__ import annotations

import itertools
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.instruments.joblog.joblog import LINE_LIMIT_BYTES, Begun, JobEvent, parse
from perflib.instruments.joblog.logformat import FORMATS, LogFormat
from perflib.model import expressions
from perflib.model.errors import UserError

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


@pytest.mark.parametrize(
    ("begin", "end", "words"),
    [
        (r"a [", "b", ["begin", "unterminated character set", "position 3", "a [\n     ^"]),
        (r"(?P<event>a)", "(b", ["end", "missing ) at position 2", "Event nr"]),
        (r"(?P<event>a)", "b{99999999999}", ["end", "is too large", "Event nr"]),
        (r"start", "b", ["lacks the named group 'event'", "'start'", "start processing event"]),
        (r"(?P<evnt>a)", "b", ["unknown named group 'evnt'", "did you mean 'event'"]),
        (r"(?P<event>a)", "(?P<second>b)", ["did you mean 'seconds'", "For example"]),
        (r"(?P<event>a)(?P<job>b)", "c", ["'job' stands in one expression only", "end: 'c'"]),
        (r"(?P<event>a)", "(?P<job>b)", ["'job' stands in one expression only", "end: '(?P<job>"]),
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
    assert [event.label for event in events] == names
    assert problems == ([problem] if problem else [])


def test_without_names_in_the_end_events_come_one_after_the_other() -> None:
    one_at_a_time = LogFormat(r"begin (?P<event>\d+)", "end")
    events, problems = parsed(b"begin 1\nbegin 2\nend\nend\nbegin 3\nend\n", one_at_a_time)
    assert [event.label for event in events] == [2, 3]
    assert problems == [
        "event 1 began at line 1 and never ended before event 2 began at line 2",
        "line 4 ends an event, but no event is open: 'end'",
    ]


# --- several jobs in one log -------------------------------------------------------------------

JOBS = LogFormat(r"(?P<job>\w+)> begin (?P<event>\d+)", r"(?P<job>\w+)> end (?P<event>\d+)")


def test_the_same_event_in_two_jobs_at_once() -> None:
    begins: list[Begun] = []
    log = b"a> begin 7\nb> begin 7\nb> end 7\na> end 7\nc> end 7\na> begin 8\na> begin 8\n"
    problems: list[str] = []
    events = list(parse([(0, log)], JOBS, problems, begins.append))
    assert [(event.job, event.label) for event in events] == [("b", 7), ("a", 7)]
    assert [(begun.job, begun.label) for begun in begins] == [
        ("a", 7), ("b", 7), ("a", 8), ("a", 8),
    ]  # fmt: skip
    assert problems == [
        "event 7 of job c ended at line 5 but never began",
        "event 8 of job a began at line 6 and never ended before event 8 of job a began at line 7",
        "event 8 of job a began at line 7 and never ended",
    ]


def test_one_event_at_a_time_in_each_of_several_jobs() -> None:
    log_format = LogFormat(r"(?P<job>\w+)> begin (?P<event>\d+)", r"(?P<job>\w+)> end")
    log = b"a> begin 1\nb> begin 5\na> end\na> begin 2\na> begin 3\nb> end\na> end\n"
    events, problems = parsed(log, log_format)
    assert [(event.job, event.label) for event in events] == [("a", 1), ("b", 5), ("a", 3)]
    assert problems == [
        "event 2 of job a began at line 4 and never ended before event 3 of job a began at line 5"
    ]


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


def test_reading_ends_at_the_deadline_within_what_was_read_at_once() -> None:
    problems: list[str] = []
    many = b"begin 1\nend 1\n" * 100_000
    begun: list[Begun] = []

    def late(event: Begun) -> None:
        begun.append(event)
        time.sleep(0.01)

    deadline = time.monotonic() + 0.1
    events = list(parse([(0, many)], NAMED, problems, late, deadline))
    assert 1 <= len(events) <= len(begun) <= 11


def test_of_many_problems_the_first_are_listed_and_the_others_counted() -> None:
    problems: list[str] = []
    assert list(parse([(0, b"end 1\n" * 1000)], NAMED, problems)) == []
    assert problems[0] == "event 1 ended at line 1 but never began"
    assert len(problems) == 101
    assert problems[-1] == "and 900 more such problems in the job's output"


# --- expressions that backtrack ----------------------------------------------------------------


@pytest.mark.parametrize("in_main_thread", [True, False])
def test_expression_that_backtracks_is_stopped(
    monkeypatch: pytest.MonkeyPatch, in_main_thread: bool
) -> None:
    monkeypatch.setattr(expressions, "_MAX_TEXT_S", 0.05)
    errors: list[UserError] = []

    def read() -> None:
        try:
            parsed(b"fine\n" + b"a" * 500 + b"\n", LogFormat(r"(?P<event>(a+)+)b", "end"))
        except UserError as error:
            errors.append(error)

    if in_main_thread:
        read()
    else:
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    (error,) = errors
    assert str(error).startswith("line 2 of the job's output: the expression for an event's begin")
    assert "(?P<event>(a+)+)b" in str(error)
    assert "simplify it (repeats within repeats" in str(error)
