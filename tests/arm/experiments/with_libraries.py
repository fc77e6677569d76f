"""What perflib uses where it is installed: QEMU's plugins and libraries for erasure codes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perflib.instruments.simulators.qemu import qemu_counts
from tests.arm.inside.conftest import Ended

ROUNDS, ROUND, AROUND = 300, 1000, 13  # instructions, as loop.S has them; six for each digit


def test_a_plugin_counts_every_instruction() -> None:
    table = qemu_counts(["/dev/shm/out/loop", str(ROUNDS)]).set_index("counter")
    truth = ROUNDS * ROUND + 6 * len(str(ROUNDS)) + AROUND
    assert table.simulated_count["instructions"] == truth
    assert table.tool["instructions"].startswith("qemu-aarch64")


@pytest.mark.timeout(3000)
def test_lines_that_threads_share_are_seen(perflib: Callable[..., Ended]) -> None:
    job = ("job=command", "job_command=/dev/shm/out/job threads 2 300", "parts=lines")
    ended = perflib(
        "run", "simulate", *(f"-p{one}" for one in (*job, "geometries=Haswell", "budget_s=1"))
    )
    assert ended.run is not None, ended.said
    counts = ended.run.samples.groupby("counter")["simulated_count"].first()
    assert 2 * ROUNDS * ROUND < counts["instructions"] < 2.1 * ROUNDS * ROUND
    assert counts["line transfers"] > 0


@pytest.mark.timeout(3000)
def test_libraries_code_blocks(perflib: Callable[..., Ended]) -> None:
    """A parity that differs from ours is an error, so samples mean that they agree."""
    libraries = ["isal", "jerasure_vandermonde"]
    given = (f"implementations={','.join(libraries)}", "budget_s=3", "block_mib=0.0625")
    ended = perflib("run", "erasure_coding", "--preset", "quick", *(f"-p{one}" for one in given))
    assert ended.run is not None, ended.said
    used = ended.run.samples[ended.run.samples["ok"]]
    assert set(used["implementation"]) == set(libraries)
