"""event_loop.c: the same result with and without every lock, and an account that adds up."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, astuple
from pathlib import Path

import pytest

from perflib import kernels
from perflib.kernels import Kernel
from perflib.measure.jobs.event_loop import LOCK_KINDS, POINTS, VERSIONS, Account, argv
from perflib.model.errors import MeasurementError
from tests.kernels.here import launched
from tests.processes import soon
from tests.reference import event_loop as reference
from tests.reference.event_loop import Sizes

SIZES = Sizes(jets=2, formula=40, interface=20, queue=300, output=50, checksum=50)
MERGE, SEED, EVENTS = 3, 5, 60
SMALL = asdict(SIZES) | {"merge": MERGE}
FOREVER = 1_000_000_000  # tries

NINES = "9" * 30
NO_POINT = (
    "is none of formula, interface, output, checksum, queue (several with commas, or none alone)"
)
KERNEL = "event_loop"


@pytest.fixture(scope="module")
def expected(kernel: Kernel) -> str:
    """The checksum of the small job, one event after the other."""
    records = [alone(kernel, SEED, number, SIZES) for number in range(EVENTS)]
    return f"{reference.merge(records, MERGE):016x}"


def alone(kernel: Kernel, seed: int, number: int, sizes: Sizes) -> int:
    given = kernel.ffi.new("int64_t[6]", astuple(sizes))
    return int(kernel.lib.event_checksum(seed, number, given))


def run(
    threads: int, points: Sequence[str] = tuple(POINTS), spin: int = 0, lock: str = "mutex"
) -> Account:
    command = argv(threads, EVENTS, points, seed=SEED, spin=spin, lock=lock, sizes=SMALL)
    return account_of(command)


def account_of(command: Sequence[str]) -> Account:
    done = launched(*command, check=True, timeout=60)
    assert done.stderr == ""
    return Account.parse(done.stdout)


# --- the work ----------------------------------------------------------------------------------


@pytest.mark.arm64
@pytest.mark.parametrize(
    ("seed", "number", "sizes"),
    [
        (1, 0, Sizes()),
        (2**62, 2**33 + 1, Sizes()),
        (3, 7, Sizes(jets=3, formula=9, interface=90, queue=40, output=3, checksum=4)),
        (4, 1, Sizes(formula=0, interface=0, queue=0, output=0, checksum=0)),
    ],
)
def test_events_are_those_of_the_reference(
    kernel: Kernel, seed: int, number: int, sizes: Sizes
) -> None:
    assert alone(kernel, seed, number, sizes) == reference.process(seed, number, sizes)


# --- threads, points and locks change no result --------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_the_result_is_the_same_in_every_version(expected: str, version: str, threads: int) -> None:
    account = run(threads, VERSIONS[version])
    assert account.checksum == expected
    _check(account, threads, VERSIONS[version], spins=False)


@pytest.mark.parametrize("lock", LOCK_KINDS)
@pytest.mark.parametrize("spin", [0, 40])
def test_the_result_is_the_same_with_every_kind_of_lock(
    expected: str, lock: str, spin: int
) -> None:
    account = run(3, spin=spin, lock=lock)
    assert account.checksum == expected
    _check(account, 3, tuple(POINTS), spins=spin > 0)


def _check(account: Account, threads: int, points: Sequence[str], *, spins: bool) -> None:
    """What must be true of any account, however the threads were scheduled."""
    duration_ns = account.end_ns - account.begin_ns
    assert (account.threads, account.events, account.points) == (threads, EVENTS, tuple(points))
    assert len(account.per_thread) == threads
    assert [thread.name for thread in account.per_thread] == [
        f"event-{row}" for row in range(threads)
    ]
    assert len({thread.tid for thread in account.per_thread} - {account.pid}) == threads
    assert sum(thread.events for thread in account.per_thread) == EVENTS
    assert sum(thread.waiting_ns for thread in account.per_thread) == sum(
        lock.waiting_ns for lock in account.locks
    )
    for thread in account.per_thread:
        assert 0 <= thread.waiting_ns <= duration_ns

    jets = sum(reference.jets_of(SEED, number, SIZES.jets) for number in range(EVENTS))
    taken = {
        "formula_lock": jets, "interface_lock": jets, "output_module": EVENTS,
        "monitor_module": EVENTS, "class_lock": 2 * EVENTS, "task_queue": jets,
    }  # fmt: skip
    assert [lock.name for lock in account.locks] == list(taken)
    for lock in account.locks:
        assert lock.name in POINTS[lock.point]
        if lock.point not in points:
            assert set(list(lock.model_dump().values())[3:]) == {0}
            continue
        assert lock.taken == taken[lock.name]
        assert 0 < lock.held_ns <= duration_ns  # by one thread at a time
        assert (lock.waits == 0) == (lock.waiting_ns == 0)
        assert lock.longest_ns <= lock.waiting_ns <= lock.waits * lock.longest_ns
        assert spins or lock.spinning_ns == 0
        if lock.name != "task_queue":  # its mutex is asked for more than once a task
            assert lock.waits <= lock.taken
        if threads == 1:
            assert lock.waits == lock.spinning_ns == 0


# --- waiting and spinning ------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["formula", "queue"])
def test_who_spins_long_enough_never_waits(point: str) -> None:
    """Nearly all the time is spent at one point, which four threads cannot always find free."""
    sizes = SMALL | {"jets": 1, "formula": 10, "queue": 10, "output": 1}
    sizes |= {"formula": {"formula": 750}, "queue": {"queue": 4000}}[point]
    seen = {}
    for spin in (0, FOREVER):
        account = account_of(argv(4, 300, [point], spin=spin, sizes=sizes))
        [seen[spin]] = [lock for lock in account.locks if (lock.name,) == POINTS[point]]
    assert seen[0].waits > 0
    assert seen[0].spinning_ns == 0
    assert seen[FOREVER].waits == seen[FOREVER].waiting_ns == 0
    assert seen[FOREVER].spinning_ns > 0


# --- the program -------------------------------------------------------------------------------


def test_threads_have_names_and_a_killed_job_no_account() -> None:
    wanted = ["event-0\n", "event-1\n", "event-2\n", "event_loop\n"]
    command = argv(3, 100_000_000, sizes=SMALL)
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as endless:
        tasks = Path(f"/proc/{endless.pid}/task")
        try:
            assert soon(lambda: sorted(one.read_text() for one in tasks.glob("*/comm")) == wanted)
        finally:
            endless.kill()
        printed, said = endless.communicate()
    assert (printed, said, endless.returncode) == ("", "", -signal.SIGKILL)
    with pytest.raises(MeasurementError, match="did not come to its end"):
        Account.parse(printed)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--thread", "2"], "unknown option '--thread' (--help names them)"),
        (["2"], "unknown option '2' (--help names them)"),
        (["--threads"], "--threads needs a whole number from 1 to 4096, not ''"),
        (["--threads", "0"], "--threads needs a whole number from 1 to 4096, not '0'"),
        (["--threads", "-1"], "--threads needs a whole number from 1 to 4096, not '-1'"),
        (["--events", "1e3"], "--events needs a whole number from 1 to 100000000, not '1e3'"),
        (["--spin", NINES], f"--spin needs a whole number from 0 to 1000000000, not '{NINES}'"),
        (["--points", "formla"], f"--points: 'formla' {NO_POINT}"),
        (["--points", "queue,none"], f"--points: 'none' {NO_POINT}"),
        (["--points", "queue,"], f"--points: '' {NO_POINT}"),
        (["--points", ""], f"--points: '' {NO_POINT}"),
        (["--points"], f"--points: '' {NO_POINT}"),
        (["--lock", "rw"], "--lock: 'rw' is none of mutex, adaptive, recursive, robust"),
        (["--events", "3", "--lock"], "--lock: '' is none of mutex, adaptive, recursive, robust"),
    ],
)  # fmt: skip
def test_wrong_options_are_one_sentence(options: list[str], said: str) -> None:
    program = kernels.build("event_loop", executable=True).library
    done = launched(program, *options)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"event_loop: {said}\n")


@pytest.mark.parametrize(("points", "spin"), [("none", 0), (",".join(POINTS), 50)])
def test_no_data_race_with_or_without_locks(points: str, spin: int) -> None:
    try:
        program = kernels.build("event_loop", variant="tsan", executable=True).library
    except MeasurementError as error:
        pytest.skip(f"no thread sanitizer: {str(error).splitlines()[-1]}")
    command = [str(program), "--threads", "3", "--events", "12", "--spin", str(spin)]
    command += ["--points", points, "--jets", "1", "--formula-work", "30", "--queue-work", "100"]
    done = launched(*command, timeout=120)
    if "FATAL: ThreadSanitizer" in done.stderr:
        pytest.skip(f"the thread sanitizer does not work here: {done.stderr.splitlines()[0]}")
    assert done.stderr == ""
    assert done.returncode == 0
    assert Account.parse(done.stdout).events == 12
