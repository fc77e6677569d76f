"""Samples by hardware events, held to where a job is known to spend its instructions.

How many there are is not held to the frequency: perf finds the period that goes with it while the
job runs. An overflow of cycles interrupts at once, as their number is the emulator's clock; one of
other events is noticed at the kernel's next tick only, 250 times a second.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import numpy as np
import pytest

from tests.arm.inside.conftest import Ended
from tests.arm.inside.counts import LOOP, READING, ROUND

ROUNDS = 250_000  # a quarter of a second: one instruction takes a nanosecond
FIRST = 10  # samples with which perf finds its period
HOT = 0.75  # of a round, as loop.S says


@pytest.mark.parametrize(
    ("event", "hz", "rounds"),
    [
        ("instructions", 2000, ROUNDS),
        ("cycles", 100, 2 * ROUNDS),
        ("cycles", 2000, ROUNDS),
        ("cycles", 50_000, ROUNDS // 10),
    ],
)
def test_samples_are_where_the_job_is(
    event: str, hz: int, rounds: int, perflib: Callable[..., Ended]
) -> None:
    words = [word for one in (f"sampled_event={event}", f"frequency_hz={hz}", "once=true")
             for word in ("-p", one)]  # fmt: skip
    ended = perflib("record", *words, "--", LOOP, str(rounds))
    assert ended.status == 0, ended.said
    assert ended.run is not None
    samples = ended.run.samples
    mine = samples[samples["symbol"].isin(["hot", "cold", "work"])]
    share = (mine["symbol"] == "hot").mean()
    print(f"{event}, {hz} Hz: {len(samples)} samples, {100 * share:.0f} % of {len(mine)} in hot")
    assert 10 <= len(mine) <= 1.2 * hz * rounds * ROUND / 1e9 + FIRST
    assert abs(share - HOT) < 4 * np.sqrt(HOT * (1 - HOT) / len(mine))
    assert mine["period"].sum() <= 1.1 * rounds * ROUND
    if event == "cycles":
        assert mine["period"].sum() >= 0.9 * rounds * ROUND
    if hz != 2000:
        return
    shown = perflib("profile", ended.name)
    assert shown.status == 0
    assert "hot" in shown.said
    shown = perflib("annotate", ended.name, "hot")
    assert shown.status == 0, shown.said


def test_a_sample_stands_at_the_next_instruction() -> None:
    """A million cycles are a thousand rounds: one place; a real processor's skid is larger."""
    data = "/dev/shm/every-million"
    record = ["perf", "record", "-q", "-e", "cycles:u", "-c", "1000000", "-o", data, LOOP]
    subprocess.run([*record, str(ROUNDS // 10)], check=True)
    script = ["perf", "script", "-i", data, "-F", "ip,sym,symoff"]
    said = subprocess.run(script, check=True, capture_output=True, text=True).stdout.split()
    # As loop.S says: what goes before the rounds; hot, and the two calls, come before cold in each.
    before = 9 + READING * len(str(ROUNDS // 10))
    place = (1_000_000 - before - 750 - 2) % ROUND
    assert set(said[1::2]) == {f"cold+{4 * place:#x}"}
    assert len(said[1::2]) == ROUNDS // 10 * ROUND // 1_000_000


def test_this_machine_is_shown(perflib: Callable[..., Ended]) -> None:
    ended = perflib("doctor")
    assert ended.status in (0, 1), ended.said
    assert "Traceback" not in ended.said
    print(ended.said)
