from __future__ import annotations

from dataclasses import asdict

import pytest

from perflib.machine.hardware.cpuid import signature
from perflib.machine.hardware.known_tlbs import KnownTlbs, known_tlbs, tlbs_of
from perflib.machine.hardware.microarch import Microarchitecture, microarchitecture
from perflib.machine.hardware.tlbs import decode_tlbs, reach_bytes
from tests.machine.dumps import dump

K4 = 4 << 10


def test_what_cpuid_reports_comes_before_what_is_published() -> None:
    leaves = dump("skylake_sp")
    known = known_tlbs(leaves, microarchitecture(signature(known=leaves)))
    assert known == KnownTlbs(decode_tlbs(leaves), "CPUID")


def test_where_cpuid_is_silent_the_published_stands_in_and_is_marked() -> None:
    leaves = dump("emerald_rapids")
    known = known_tlbs(leaves, microarchitecture(signature(known=leaves)))
    assert known.origin == "published for Raptor Cove"
    assert known.source
    assert reach_bytes(known.tlbs, "instruction", level=1) == 256 * K4
    assert reach_bytes(known.tlbs, "data", level=2) == 2048 * K4


@pytest.mark.parametrize("name", ["Golden Cove + Gracemont", "unknown (X, family 1, model 2)"])
def test_nothing_is_made_up(name: str) -> None:
    assert known_tlbs({}, Microarchitecture(name, "")) == KnownTlbs()


@pytest.mark.parametrize(
    ("dumped", "name"), [("rome", "Zen 2"), ("genoa", "Zen 4"), ("turin", "Zen 5")]
)
def test_rows_from_cpuid_say_what_cpuid_says(dumped: str, name: str) -> None:
    reported = decode_tlbs(dump(dumped))
    published = known_tlbs({}, Microarchitecture(name, "")).tlbs
    for use in ("instruction", "data"):
        for level in (1, 2):
            assert reach_bytes(published, use, level) == reach_bytes(reported, use, level)


def test_a_recorded_machine_keeps_who_said_it() -> None:
    known = known_tlbs({}, Microarchitecture("Zen 4", "Genoa"))
    tlbs = [asdict(tlb) for tlb in known.tlbs]
    machine = {"tlbs": tlbs, "tlbs_origin": known.origin, "tlbs_source": known.source}
    assert tlbs_of(machine) == known
    assert tlbs_of({"tlbs": tlbs}).origin == "CPUID"  # recorded before there was a table
    assert tlbs_of({}) == KnownTlbs()
