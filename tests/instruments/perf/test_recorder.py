"""perf attached, switched on and off: with the real one, and with false ones that fail."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from perflib.instruments.perf import control as perf_control
from perflib.instruments.perf import recorder as module
from perflib.instruments.perf.recorder import Recorder, away_from, prompt
from perflib.instruments.perf.tool import PerfUnavailableError, ProcessGoneError, find_perf
from perflib.machine.files import integer
from perflib.machine.hardware.pmu import Pmu
from perflib.model.errors import MeasurementError, UserError
from tests.instruments.perf.perf_files import (
    FileEvent,
    lost_record,
    lost_samples,
    perf_file,
    sample,
)
from tests.processes import is_gone, open_files, soon
from tests.users import ORDINARY, as_ordinary, needs_two_users


def _perf_cannot() -> str:
    """Why perf cannot record here; empty where it can."""
    try:
        argv = [str(find_perf()), "record", "-q", "-e", "cpu-clock", "-o", os.devnull, "true"]
    except PerfUnavailableError as error:
        return str(error)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return f"perf cannot record here: {done.stderr}" if done.returncode else ""


needs_perf = pytest.mark.skipif(bool(_perf_cannot()), reason=_perf_cannot())

BURN = """
def burn(ms):
    import time
    had_s, last_s = 0.0, time.monotonic()
    while had_s < ms / 1e3:
        sum(range(500))
        now_s = time.monotonic()
        had_s += min(now_s - last_s, 1e-4)  # a longer gap was another's time
        last_s = now_s
"""


@pytest.fixture
def job() -> Iterator[subprocess.Popen[str]]:
    """A process that burns CPU time in the function burn() for as long as a test takes."""
    with subprocess.Popen([sys.executable, "-c", f"{BURN}\nburn(60_000)"], text=True) as process:
        yield process
        process.kill()


def cpu_time_s(pid: int | None) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def switched(recorder: Recorder, seconds: float = 0.05) -> tuple[int, int]:
    """Before what the first sample, and after what the last one cannot have been taken."""
    before_ns, begin_s = time.monotonic_ns(), cpu_time_s(recorder._pid)
    assert before_ns < recorder.enable()
    time.sleep(seconds)  # and until the job has had a core, which others may want too
    assert soon(lambda: cpu_time_s(recorder._pid) - begin_s >= min(seconds, 0.03))
    return before_ns, recorder.disable()


def perf_of(recorder: Recorder) -> int:
    assert recorder._process is not None
    return recorder._process.pid


# --- the real perf -----------------------------------------------------------------------------


@needs_perf
def test_samples_are_taken_only_while_on(job: subprocess.Popen[str], tmp_path: Path) -> None:
    with Recorder(job.pid, folder=tmp_path, event="cpu-clock", frequency_hz=2000) as recorder:
        time.sleep(0.02)
        spans = [switched(recorder)]
        time.sleep(0.05)
        spans.append(switched(recorder))
    times, lost = recorder.times()
    assert lost == 0
    first, second = [(times > on_ns) & (times < off_ns) for on_ns, off_ns in spans]
    assert first.any()
    assert second.any()
    assert (first | second).all()

    text = recorder.script(tmp_path / "text").read_text()
    samples = [line for line in text.splitlines() if "cpu-clock" in line and line[0] != "#"]
    assert len(samples) == len(times)
    line = re.compile(
        r"\s*\S+\s+(\d+)/(\d+) +\[\d{3}\] +\d+\.\d{9}: +\d+ +cpu-clock: +[0-9a-f]+ .*\(.*\)"
    )
    match = line.fullmatch(samples[0])
    assert match is not None, samples[0]
    assert int(match[1]) == job.pid
    assert text.startswith("#")
    assert "cpu-clock" in recorder.event


@needs_perf
def test_threads_and_children_before_and_after_are_recorded(tmp_path: Path) -> None:
    script = f"""{BURN}
import os, threading
before = os.fork()
if not before:
    burn(60_000)
print("ready", before, flush=True)
input()
threading.Thread(target=burn, args=(60_000,), daemon=True).start()
after = os.fork()
if not after:
    burn(60_000)
print(after, flush=True)
burn(60_000)
"""
    argv = [sys.executable, "-W", "ignore", "-c", script]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    ) as parent:
        assert parent.stdout is not None
        try:
            before = int(parent.stdout.readline().split()[1])
            with Recorder(parent.pid, folder=tmp_path, event="cpu-clock") as recorder:
                print(file=parent.stdin, flush=True)
                after = int(parent.stdout.readline())
                switched(recorder, 0.2)
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
    text = recorder.script(tmp_path / "text").read_text()
    pairs = re.findall(r"^\s*\S+\s+(\d+)/(\d+) ", text, re.MULTILINE)
    found = {(int(pid), int(tid)) for pid, tid in pairs}
    assert {pid for pid, _ in found} == {parent.pid, before, after}
    assert len({tid for pid, tid in found if pid == parent.pid}) == 2


@needs_perf
def test_call_graphs_and_periods(job: subprocess.Popen[str], tmp_path: Path) -> None:
    with Recorder(
        job.pid, folder=tmp_path, event="cpu-clock", period=1_000_000, call_graph="fp"
    ) as recorder:
        switched(recorder)
    text = recorder.script(tmp_path / "text").read_text()
    assert set(re.findall(r": +(\d+) cpu-clock", text)) == {"1000000"}
    assert re.search(r"cpu-clock: *\n\s+[0-9a-f]+ \S+", text)  # frames stand on their own lines
    assert len(recorder.times()[0]) == text.count(" cpu-clock: ")


@needs_perf
def test_lost_samples_are_counted(job: subprocess.Popen[str], tmp_path: Path) -> None:
    """As soon as its CPU time makes more samples than fit into the buffers of all CPUs."""
    most_hertz = integer("/proc/sys/kernel/perf_event_max_sample_rate") or 10_000
    sample_bytes, hertz = 8192, min(10_000, most_hertz)
    buffers = (os.cpu_count() or 1) * 4 * (integer("/proc/sys/kernel/perf_event_mlock_kb") or 516)
    needed_s = buffers * 1024 / sample_bytes / hertz
    with Recorder(
        job.pid, folder=tmp_path, event="cpu-clock", frequency_hz=hertz, call_graph="dwarf"
    ) as recorder:
        recorder.enable()
        os.kill(perf_of(recorder), signal.SIGSTOP)  # nobody empties the buffers
        begun_s = cpu_time_s(job.pid)
        assert soon(lambda: cpu_time_s(job.pid) >= begun_s + needed_s)
        os.kill(perf_of(recorder), signal.SIGCONT)
        recorder.disable()
    assert recorder.times()[1] > 0


@pytest.mark.parametrize(
    ("of_buffers", "of_events", "in_all"),
    [([], [], 0), ([3, 4], [], 7), ([], [5, 6], 11), ([3, 4], [5, 6], 11), ([30], [5], 30)],
)
def test_losses_that_are_noted_twice_count_once(
    tmp_path: Path,
    false_perf: Path,
    of_buffers: list[int],
    of_events: list[int],
    in_all: int,
) -> None:
    """Those of buffers are missing where no sample follows, those of events before perf 6.1."""
    program(false_perf, "")
    event = FileEvent(ids=(71, 72))
    records = [sample(event, 71, time_ns=time_ns) for time_ns in (900, 200, 500)]
    records += [lost_record(event, 71, number, time_ns=600) for number in of_buffers]
    records += [lost_samples(event, 72, number) for number in of_events]
    recorder = Recorder(os.getpid(), folder=tmp_path, event="cpu-clock")
    recorder.path = tmp_path / "made.data"
    recorder.path.write_bytes(perf_file([event], records))
    times, lost = recorder.times()
    assert times.tolist() == [200, 500, 900]
    assert lost == in_all


@needs_perf
def test_process_that_ends_while_recorded(job: subprocess.Popen[str], tmp_path: Path) -> None:
    with Recorder(job.pid, folder=tmp_path, event="cpu-clock") as recorder:
        switched(recorder)
        job.kill()
        with pytest.raises(ProcessGoneError, match=f"process {job.pid} has ended"):
            soon(lambda: recorder.disable() == 0)  # until it is noticed
    assert len(recorder.times()[0]) > 0


@needs_perf
@pytest.mark.parametrize("noticed", ["by the next order", "at the end"])
def test_killed_perf_is_an_error(job: subprocess.Popen[str], tmp_path: Path, noticed: str) -> None:
    def kill() -> None:
        with Recorder(job.pid, folder=tmp_path) as recorder:
            os.kill(perf_of(recorder), signal.SIGKILL)
            assert is_gone(perf_of(recorder))
            if noticed == "by the next order":
                recorder.enable()

    with pytest.raises(MeasurementError, match="could not record process"):
        kill()


@needs_perf
def test_perf_ends_with_an_exception_and_nothing_stays_open(
    job: subprocess.Popen[str], tmp_path: Path
) -> None:
    recorder = Recorder(job.pid, folder=tmp_path)

    def interrupted() -> None:
        with recorder:
            recorder.enable()
            raise KeyboardInterrupt

    before = open_files()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert is_gone(perf_of(recorder))
    assert open_files() == before
    assert recorder.path.stat().st_size > 0


@needs_perf
def test_perf_ends_when_we_are_killed(job: subprocess.Popen[str], tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from perflib.instruments.perf.recorder import Recorder
        with Recorder({job.pid}, folder=Path({str(tmp_path)!r})) as recorder:
            print(recorder._process.pid, flush=True)
            time.sleep(600)
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as us:
        assert us.stdout is not None
        perf = int(us.stdout.readline())
        us.kill()
    assert is_gone(perf)


# --- as another user ---------------------------------------------------------------------------

AS_USER = """
import os, sys
from pathlib import Path
from perflib.model.errors import PerflibError
from perflib.instruments.perf.recorder import Recorder
for pid in (int(sys.argv[1]), os.getpid()):
    try:
        with Recorder(pid, folder=Path(sys.argv[2])) as recorder:
            recorder.enable()
            for _ in range(20): sum(range(100_000))
        print(len(recorder.times()[0]) > 0, recorder.event, *recorder.remarks)
    except PerflibError as error:
        print(type(error).__name__, " ".join(str(error).split()))
"""


@needs_perf
def test_user_may_record_the_user_code_of_an_own_process_only(job: subprocess.Popen[str]) -> None:
    needs_two_users()
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, ORDINARY, ORDINARY)
        argv = as_ordinary([sys.executable, "-c", AS_USER, str(job.pid), folder])
        environment = os.environ | {"PERFLIB_CACHE": f"{folder}/cache"}  # kernels of the user's own
        said = subprocess.check_output(argv, text=True, cwd=folder, env=environment)
    anothers, own = said.splitlines()
    assert anothers.startswith("PerfUnavailableError")
    assert f"it belongs to user 0, this is user {ORDINARY}" in anothers
    if (integer("/proc/sys/kernel/perf_event_paranoid") or 0) != 2:
        pytest.skip("kernel.perf_event_paranoid is not 2 here")
    assert own.startswith(("True cpu-clock:u", "True cycles:u"))
    assert "Only user code is sampled: kernel.perf_event_paranoid is 2" in own


# --- false perfs -------------------------------------------------------------------------------


@pytest.fixture
def false_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "perf"


def program(path: Path, body: str) -> None:
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{body}\n")
    path.chmod(0o755)


NO_SPACE = "failed to write perf data, error: No space left on device"
OBEY = """
words = sys.argv[sys.argv.index("--control") + 1].removeprefix("fd:").split(",")
order, answer = map(int, words)
def obey():
    got = os.read(order, 64)
    os.write(answer, b"ack\\n\\0")
    return got
"""


def test_perf_that_never_gets_ready(
    tmp_path: Path, false_perf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perf_control, "_READY_S", 0.3)
    program(false_perf, "print(os.getpid(), 'dawdles', flush=True); time.sleep(600)")
    with (
        pytest.raises(
            MeasurementError, match=r"did not acknowledge 'disable' within 0\.3 s"
        ) as caught,
        Recorder(os.getpid(), folder=tmp_path),
    ):
        pass
    if said := re.search(r"(\d+) dawdles", str(caught.value)):
        assert is_gone(int(said[1]))


def test_perf_that_does_not_end(
    tmp_path: Path, false_perf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perf_control, "_END_S", 0.1)
    program(
        false_perf,
        f"{OBEY}\nimport signal; signal.signal(2, signal.SIG_IGN); obey(); time.sleep(600)",
    )
    with (
        pytest.raises(MeasurementError, match=r"did not end within 0\.1 s and was killed"),
        Recorder(os.getpid(), folder=tmp_path) as recorder,
    ):
        pass
    assert is_gone(perf_of(recorder))


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        (
            "sys.exit('Error:\\nNo permission to enable')",
            PerfUnavailableError,
            r"(?s)not allowed.*No permission to enable",
        ),
        (
            f"{OBEY}\ntry: obey(); time.sleep(9)\nexcept KeyboardInterrupt: sys.exit('{NO_SPACE}')",
            MeasurementError,
            "the disk is full",
        ),
    ],
    ids=["at its begin", "at its end"],
)
def test_perf_that_fails(
    tmp_path: Path, false_perf: Path, body: str, error: type[MeasurementError], said: str
) -> None:
    program(false_perf, body)
    with pytest.raises(error, match=said), Recorder(os.getpid(), folder=tmp_path):
        pass


def test_samples_that_cannot_be_read(tmp_path: Path, false_perf: Path) -> None:
    program(false_perf, "print('incompatible file format', file=sys.stderr); sys.exit(255)")
    recorder = Recorder(os.getpid(), folder=tmp_path)
    with pytest.raises(MeasurementError, match=r"(?s)could not read.*incompatible file format"):
        recorder.script(tmp_path / "text")


# --- before anything starts --------------------------------------------------------------------


def test_options_that_mean_nothing(tmp_path: Path, false_perf: Path) -> None:
    program(false_perf, "")
    with pytest.raises(UserError, match="unknown call_graph 'dwarv': did you mean 'dwarf'"):
        Recorder(1, folder=tmp_path, call_graph="dwarv")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="frequency_hz=0"):
        Recorder(1, folder=tmp_path, frequency_hz=0)
    with pytest.raises(UserError, match="period=0"):
        Recorder(1, folder=tmp_path, period=0)


def test_rate_beyond_what_the_kernel_allows_is_lowered_and_said(
    tmp_path: Path, false_perf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(false_perf, "")
    monkeypatch.setattr(module, "integer", lambda _path: 25_000)
    recorder = Recorder(1, folder=tmp_path, event="cpu-clock:u", frequency_hz=50_000)
    assert recorder.remarks == [
        "25000 samples a second instead of 50000: kernel.perf_event_max_sample_rate allows no more."
    ]
    assert recorder._rate == ["-F", "25000"]


def test_default_event_is_said_where_it_is_no_cycles(
    tmp_path: Path, false_perf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(false_perf, "")
    monkeypatch.setattr(module, "kernel_allowed", lambda _perf: True)
    monkeypatch.setattr(module, "pmu", lambda **_: Pmu(False, "no driver"))
    recorder = Recorder(1, folder=tmp_path)
    assert recorder.event == "cpu-clock"
    assert recorder.remarks == ["The CPU clock is sampled, not core cycles: no driver."]
    monkeypatch.setattr(module, "pmu", lambda **_: Pmu(True, "can be counted"))
    recorder = Recorder(1, folder=tmp_path)
    assert (recorder.event, recorder.remarks) == ("cycles", [])
    monkeypatch.setattr(module, "kernel_allowed", lambda _perf: False)
    recorder = Recorder(1, folder=tmp_path)
    assert recorder.event == "cycles:u"
    assert "Only user code is sampled" in recorder.remarks[0]


# --- where and how promptly --------------------------------------------------------------------


def test_cpus_away_from_a_job() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    with subprocess.Popen(["sleep", "600"]) as job:
        try:
            assert away_from(job.pid) == []  # it may be anywhere
            os.sched_setaffinity(job.pid, allowed[:1])
            assert allowed[0] not in away_from(job.pid)
            assert bool(away_from(job.pid)) == (len(allowed) > 1)
        finally:
            job.kill()
    assert away_from(job.pid) == []


def state() -> tuple[int, int, set[int]]:
    return os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.sched_getaffinity(0)


def test_the_reading_thread_gets_back_what_it_had() -> None:
    def interrupted() -> None:
        with prompt(os.getpid()):
            assert os.sched_getscheduler(0) in (before[0], os.SCHED_FIFO)
            raise KeyboardInterrupt

    before = state()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert state() == before
    with subprocess.Popen(["sleep", "600"]) as job:
        os.sched_setaffinity(job.pid, {min(before[2])})
        with prompt(job.pid):
            assert len(before[2]) == 1 or min(before[2]) not in os.sched_getaffinity(0)
        job.kill()
    assert state() == before


def test_without_permission_the_thread_stays_ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    before = state()
    refused = PermissionError(1, "Operation not permitted")
    monkeypatch.setattr(os, "sched_setscheduler", Mock(side_effect=refused))
    with prompt(os.getpid()):
        assert state() == before
