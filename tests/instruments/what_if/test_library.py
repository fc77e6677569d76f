"""The library that delays threads: what it does to small programs, and what it leaves behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perflib.instruments.what_if.shared import (
    NO_TARGET,
    AddressRange,
    VirtualSpeedup,
    read,
    written,
)
from perflib.instruments.what_if.targets import costliest, functions, locks
from perflib.instruments.what_if.trial import Trial, run_trial, unavailable
from perflib.measure.conditions import Conditions
from perflib.measure.jobs import event_loop
from perflib.measure.process import WorkerError
from perflib.model.errors import PerflibError, UserError
from tests.instruments.threads.programs import compiled

if unavailable():
    pytest.skip(unavailable(), allow_module_level=True)

ARGV: dict[str, Any] = {
    "threads": 2,
    "events": 30,
    "points": ("formula",),
    "sizes": {"formula": 1000},
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    source = Path(__file__).with_name("locking_job.c").read_text()
    return str(compiled(tmp_path_factory.mktemp("what_if"), source))


@pytest.fixture(scope="module")
def modules(program: str) -> tuple[str, ...]:
    return run_trial([program], NO_TARGET, 0).modules


def delay_is_part_of_the_target(done: Trial, share: float) -> None:
    """All that was worked in it; at most the time, which those who come to a lock go by."""
    assert 0.99 * share * done.target_s <= done.delay_s <= share * done.job_s


def test_without_a_target_nothing_is_delayed_and_the_files_are_named(program: str) -> None:
    done = run_trial([program], NO_TARGET, 50)
    assert (done.delay_s, done.target_s, done.sections) == (0, 0, 0)
    assert done.modules[0] == os.path.realpath(program)
    assert any("libc" in one for one in done.modules)
    assert not any("what-if" in one for one in done.modules)
    assert done.threads == 3
    assert done.job_s > 0
    assert done.cpu_s >= 0.04  # the program sees to that by its own clock of CPU time


def test_a_function_is_found_with_what_it_calls(program: str, modules: tuple[str, ...]) -> None:
    (inner,) = functions("^critical$", modules)
    done, alone = ({"target": 0.0, "all": 0.0, "target_s": 0.0, "delay_s": 0.0} for _ in range(2))
    for sums, callers in ((done, "dwarf"), (alone, "none")):
        for _ in range(40):  # under load a trial has few samples
            one = run_trial([program], inner, 50, callers=callers)
            assert "sum 10" in one.ran.output
            assert one.target_samples <= one.samples
            sums["target"] += one.target_samples
            sums["all"] += one.samples
            sums["target_s"] += one.target_s
            sums["delay_s"] += one.delay_s
            if sums["all"] >= 40:
                break
    # Times of samples scatter where other work takes the core between two of them.
    assert 0 < done["delay_s"] == pytest.approx(0.5 * done["target_s"], rel=0.3)
    assert alone["target"] / alone["all"] < 0.75 * done["target"] / done["all"]  # what it calls


def test_a_lock_on_the_heap_is_named_by_who_takes_it(
    program: str, modules: tuple[str, ...]
) -> None:
    (lock,) = locks(["lock in critical"], modules)
    done = run_trial([program], lock, 50)
    assert done.sections == 20  # not those of the condition, which another function takes
    assert done.target_s >= 0.8 * 20 * 0.002  # the program's clock counts our delays' CPU time
    delay_is_part_of_the_target(done, 0.5)
    assert run_trial([program], lock, 0).delay_s == 0


def test_a_lock_in_a_variable() -> None:
    argv = event_loop.argv(**ARGV)
    first = run_trial(argv, NO_TARGET, 0)
    (lock,) = locks(["formula_lock"], first.modules)
    plain, done = run_trial(argv, lock, 0), run_trial(argv, lock, 100)
    both = [event_loop.Account.parse(one.ran.output) for one in (plain, done)]
    assert both[0].checksum == both[1].checksum
    taken = {one.name: one.taken for one in both[1].locks}
    assert done.sections == taken["formula_lock"] == plain.sections
    delay_is_part_of_the_target(done, 1.0)
    assert plain.delay_s == 0


def test_one_thread_is_never_delayed_and_its_gain_is_share_times_speedup() -> None:
    argv = event_loop.argv(1, 20, ())
    modules = run_trial(argv, NO_TARGET, 0).modules
    (target,) = functions("^item_evaluate$", modules)
    done = run_trial(argv, target, 40)
    assert done.delay_s == pytest.approx(0.4 * done.target_s, abs=1e-3 * done.job_s)
    assert done.threads == 2  # the first one waits


@pytest.mark.parametrize("way", ["fork", "_exit"])
def test_forks_and_early_exits(program: str, modules: tuple[str, ...], way: str) -> None:
    (target,) = functions("^spend$", modules)
    delay_s = 0.0
    for _ in range(40):  # under load a trial may have no sample
        done = run_trial([program, way], target, 50)
        assert "sum 10" in done.ran.output
        delay_s += done.delay_s
        if delay_s > 0:
            break
    assert delay_s > 0


def test_a_job_that_is_killed_is_an_error_and_nothing_stays(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(WorkerError, match="SIGKILL"):
        run_trial([program, "kill"], NO_TARGET, 0)
    run_trial([program], NO_TARGET, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_wants_the_signal_itself_is_refused(tmp_path: Path) -> None:
    source = (
        "#include <signal.h>\nstatic void mine(int n) { (void)n; }\n"
        "int main(void) { for (int n = SIGRTMIN; n <= SIGRTMAX; n++) signal(n, mine); return 0; }\n"
    )
    with pytest.raises(WorkerError, match="signal of the samples"):
        run_trial([str(compiled(tmp_path, source))], NO_TARGET, 0)


def test_a_static_program_is_refused(tmp_path: Path) -> None:
    try:
        program = compiled(tmp_path, "int main(void) { return 0; }\n", "-static")
    except subprocess.CalledProcessError:
        pytest.skip("the C library is not there as an archive")
    with pytest.raises(WorkerError, match="linked statically"):
        run_trial([str(program)], NO_TARGET, 0)


def test_names_that_are_wrong_are_answered_with_near_ones(modules: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="did you mean 'critical'"):
        functions("critcal", modules)
    with pytest.raises(UserError, match=r"shared_lock.*lock in FUNCTION"):
        locks(["shared_lok"], modules)
    with pytest.raises(PerflibError, match="no regular expression"):
        functions("(", modules)


def test_a_wide_expression_is_refused() -> None:
    modules = run_trial(event_loop.argv(1, 1), NO_TARGET, 0).modules
    with pytest.raises(UserError, match=r"at most 8.*\^NAME\$"):
        functions("e", modules)


def test_the_costliest_are_chosen() -> None:
    argv = event_loop.argv(**{**ARGV, "events": 60})
    modules = run_trial(argv, NO_TARGET, 0).modules
    found = costliest(argv, modules, most_functions=1, most_locks=1)
    assert [one.kind for one in found][:1] == ["function"]
    assert all(one.places for one in found)
    assert {one.name for one in found if one.kind == "lock"} <= {"formula_lock"}


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    target = VirtualSpeedup("lock", "a", (AddressRange("/x", 1, 2), AddressRange("/y", 3, 4)))
    written(path, target, 25, 500, "fp")
    found = read(path)
    assert (found["delay_ppm"], found["period_ns"], found["modules"]) == (250_000, 500_000, 2)
    assert found["root"] == 0
    with pytest.raises(UserError, match="at most 256 places"):
        written(path, VirtualSpeedup("lock", "a", (AddressRange("/x", 1, 2),) * 257), 25, 500, "fp")
    far = VirtualSpeedup("lock", "a", (AddressRange("/" + "x" * 2000, 1, 2),))
    with pytest.raises(UserError, match="too long"):
        written(path, far, 25, 500, "fp")


def test_an_own_preloaded_library_stays(program: str) -> None:
    with pytest.raises(UserError):
        run_trial([program], NO_TARGET, 0, conditions=Conditions(preload=("/no/such.so",)))
