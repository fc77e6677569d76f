from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perflib.instruments.counters import pfm
from perflib.instruments.counters.aliases import aliases
from perflib.instruments.counters.events import CounterEvent, event, names
from perflib.instruments.counters.kernel_names import (
    GENERIC,
    tracepoints,
    unlisted_on_arm,
)
from perflib.model.errors import UserError
from tests.instruments.counters.libpfm import needs_libpfm
from tests.machine import trees

DEVICES = "sys/bus/event_source/devices"
TRACING = "sys/kernel/tracing/events"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    return trees.write(
        tmp_path,
        {
            f"{DEVICES}/cpu/type": "4",
            f"{DEVICES}/cpu/format/event": "config:0-7,32-35",
            f"{DEVICES}/cpu/format/umask": "config:8-15",
            f"{DEVICES}/cpu/format/edge": "config:18",
            f"{DEVICES}/cpu/format/ldlat": "config1:0-15",
            f"{DEVICES}/cpu/format/odd": "config9:0-15",
            f"{DEVICES}/cpu/events/mem-loads": "event=0xcd,umask=0x1,ldlat=3",
            f"{DEVICES}/cpu/events/mem-loads.scale": "1",
            f"{DEVICES}/cpu/events/parameter": "event=0x2,umask=?",
            f"{DEVICES}/power/type": "17",
            f"{DEVICES}/power/events/energy-pkg": "event=0x02",
            f"{DEVICES}/power/format/event": "config:0-7",
            f"{TRACING}/sched/sched_switch/id": "316",
            f"{TRACING}/sched/sched_wakeup/id": "319",
            f"{TRACING}/sched/closed/format": "",
        },
    )


def complaint(name: str, cpu: str | None = None, root: Path = Path("/")) -> str:
    with pytest.raises(UserError) as caught:
        event(name, cpu, root)
    return str(caught.value)


# --- the kernel's own names ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "config"),
    [
        ("cycles", 0, 0),
        ("cpu-cycles", 0, 0),
        ("ref-cycles", 0, 9),
        ("task-clock", 1, 1),
        ("cpu-migrations", 1, 4),
        ("cgroup-switches", 1, 11),
        ("L1-dcache-loads", 3, 0),
        ("l1-dcache-load-misses", 3, 0x10000),
        ("dTLB-store-misses", 3, 0x10103),
        ("node-prefetches", 3, 0x206),
        ("r01c2", 4, 0x1C2),
        ("rffffffffffffffff", 4, (1 << 64) - 1),
    ],
)
@pytest.mark.usefixtures("_without_libpfm")
def test_names_of_the_kernel_need_no_libpfm(name: str, kind: int, config: int) -> None:
    found = event(name)
    assert (found.type, found.config) == (kind, config)
    assert (found.exclude_user, found.exclude_kernel) == (False, False)
    assert found.cpu == ""


@pytest.mark.parametrize(
    ("asked", "name", "exclude_user", "exclude_kernel"),
    [
        ("cycles:u", "cycles:u", False, True),
        ("CYCLES:k", "cycles:k", True, False),
        ("cycles:uk", "cycles", False, False),
        ("  cycles:ku ", "cycles", False, False),
        ("r01c2:u", "r01c2:u", False, True),
        ("sched:sched_switch:k", "sched:sched_switch:k", True, False),
        ("cpu/event=0x3c/u", "cpu/event=0x3c/:u", False, True),
        ("cpu/event=0x3c/:k", "cpu/event=0x3c/:k", True, False),
    ],
)
def test_where_it_counts(
    machine: Path, asked: str, name: str, exclude_user: bool, exclude_kernel: bool
) -> None:
    found = event(asked, root=machine)
    assert found.name == name
    assert (found.exclude_user, found.exclude_kernel) == (exclude_user, exclude_kernel)


@pytest.mark.parametrize("name", ["cycles:p", "r01c2:pp", "cpu/event=1/P", "cycles:uuk"])
def test_a_modifier_that_is_none(machine: Path, name: str) -> None:
    assert "unknown modifier" in complaint(name, root=machine)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("cpu/event=0x3c,umask=0x1/", 4, (0x13C, 0, 0)),
        ("cpu/event=0x3c, umask=1 ,edge/", 4, (0x4013C, 0, 0)),
        ("cpu/event=0x3ff/", 4, (0x3000000FF, 0, 0)),
        ("cpu/mem-loads/", 4, (0x1CD, 3, 0)),
        ("cpu/mem-loads,ldlat=30/", 4, (0x1CD, 30, 0)),
        ("cpu/ldlat=30,mem-loads/", 4, (0x1CD, 30, 0)),
        ("cpu/parameter,umask=7/", 4, (0x702, 0, 0)),
        ("cpu/config=0x1ff,config1=2,config2=3/", 4, (0x1FF, 2, 3)),
        ("power/energy-pkg/", 17, (2, 0, 0)),
        ("power//", 17, (0, 0, 0)),
    ],
)
def test_terms_of_sysfs(machine: Path, name: str, kind: int, words: tuple[int, int, int]) -> None:
    found = event(name, root=machine)
    assert found == CounterEvent(name, kind, *words, source="sysfs")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cpx/event=1/", "unknown PMU 'cpx': did you mean 'cpu'? (all: cpu, power)"),
        ("../event=1/", "unknown PMU '..'"),
        ("cpu/evnt=1/", "unknown term of PMU 'cpu' 'evnt': did you mean 'event'"),
        ("cpu/mem-load/", "'mem-loads'"),
        ("cpu/event=0x1000/", "does not fit"),
        ("cpu/edge=2/", "does not fit"),
        ("cpu/event=ten/", "'ten' is no number"),
        ("cpu/event=-1/", "'-1' is no number"),
        ("cpu/parameter/", "'?' is no number"),
        ("cpu/odd=1/", "not one that is known here"),
    ],
)
def test_wrong_terms_of_sysfs(machine: Path, name: str, words: str) -> None:
    assert words in complaint(name, root=machine)


def test_tracepoints(machine: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = event("sched:sched_switch", root=machine)
    assert (found.type, found.config, found.source) == (2, 316, "tracepoint")
    assert tracepoints(machine) == ["sched:closed", "sched:sched_switch", "sched:sched_wakeup"]
    assert "did you mean 'sched:sched_switch'" in complaint("sched:sched_swich", root=machine)
    assert "exists, but only root may use it" in complaint("sched:closed", root=machine)
    bare = tmp_path_factory.mktemp("bare")
    assert tracepoints(bare) == []
    assert "mount -t tracefs" in complaint("sched:sched_switch", root=bare)


# --- names of the processor ----------------------------------------------------------------------


@needs_libpfm
def test_a_name_for_another_cpu() -> None:
    found = event("ITLB_MISSES:WALK_COMPLETED", cpu="skx")
    assert (found.type, found.config, found.cpu, found.source) == (4, 0xE85, "skx", "libpfm4")
    assert "TLB" in found.help
    assert event("skx::ITLB_MISSES:WALK_COMPLETED") == found
    assert event("skx::ITLB_MISSES:WALK_COMPLETED", cpu="Skylake-SP") == found
    user = event("ITLB_MISSES:WALK_COMPLETED:u", cpu="skx")
    assert (user.name, user.exclude_kernel) == ("ITLB_MISSES:WALK_COMPLETED:u", True)
    kernel = event("ITLB_MISSES:k:WALK_COMPLETED", cpu="skx")
    assert (kernel.exclude_user, kernel.exclude_kernel) == (True, False)
    assert "one of skx, but the requested CPU is spr" in complaint("skx::X", cpu="spr")


@needs_libpfm
@pytest.mark.parametrize(
    ("name", "cpu", "words"),
    [
        ("cycels", "skx", "of skx: did you mean 'cycles'"),
        ("4k-aliasin", "skx", "did you mean '4k-aliasing'"),
        ("itlb_miss:walk_completed", "skx", "did you mean 'ITLB_MISSES:WALK_COMPLETED'"),
        ("ITLB_MISSES:WALKED", "skx", "unknown unit mask or modifier 'WALKED'"),
        ("", "skx", "unknown event ''"),
        ("cycles", "skxx", "unknown CPU 'skxx': did you mean 'skx'"),
        ("4k-aliasing", "skxx", "unknown CPU"),
    ],
)
def test_a_wrong_name_brings_the_nearest(name: str, cpu: str, words: str) -> None:
    said = complaint(name, cpu)
    assert words in said
    assert "not installed" not in said


@given(st.text(max_size=60))
@settings(max_examples=40)
def test_any_text_is_an_event_or_a_users_mistake(text: str) -> None:
    try:
        found = event(text)
    except UserError:
        return
    assert found.name
    assert found.type >= 0


@needs_libpfm
def test_every_listed_name_is_an_event() -> None:
    listed = names("spr")
    assert len(set(listed)) == len(listed)
    assert {"cycles", "4k-aliasing", "ITLB_MISSES:WALK_COMPLETED"} <= set(listed)
    refused = []
    for name in listed:
        try:
            event(name, cpu="spr")
        except UserError as error:
            refused.append((name, str(error)))
    # Some unit masks count only with another one, of which there are hundreds of pairs.
    assert all("unit mask" in why or "combined" in why for _, why in refused), refused
    assert len(refused) < len(listed) / 5
    assert "4k-aliasing" not in names("zen4")


# --- aliases -------------------------------------------------------------------------------------


@needs_libpfm
@pytest.mark.parametrize("name", aliases())
def test_every_alias_encodes_for_every_cpu_it_lists(name: str) -> None:
    alias = aliases()[name]
    assert alias.meaning
    for pmu, native in alias.events.items():
        found = event(name, cpu=pmu)
        assert found.type == 4
        assert found.config & 0xFF
        assert (found.name, found.cpu) == (name, pmu)
        assert native in found.help
        # a raw code is bound to no processor, but an alias that has one is
        assert dict(found.__dict__, name="", help="") == dict(
            event(native, cpu=pmu).__dict__, name="", help="", cpu=pmu
        )


@needs_libpfm
@pytest.mark.parametrize("cpu", ["zen1", "zen2", "zen3", "zen4"])
def test_zen_has_no_event_for_4k_aliasing(cpu: str) -> None:
    said = complaint("4k-aliasing", cpu)
    assert f"_{cpu} has no event for '4k-aliasing'" in said
    assert "only Intel's processors have an event that counts it" in said
    assert "is not known for ivb" in complaint("4k-aliasing", "ivb")  # which has no aliases


# --- without libpfm4 -----------------------------------------------------------------------------


@pytest.mark.usefixtures("_without_libpfm")
def test_without_libpfm_the_error_says_what_would_know_more() -> None:
    assert event("cycles", cpu="skx").config == 0
    for name, cpu in [
        ("ITLB_MISSES:WALK_COMPLETED", None),
        ("ITLB_MISSES:WALK_COMPLETED", "skx"),
        ("4k-aliasing", None),
        ("skx::ITLB_MISSES:WALK_COMPLETED", None),
        ("itlb_misses:walk_completed", None),
    ]:
        assert "apt-get install libpfm4 more names are known" in complaint(name, cpu)
    assert "did you mean 'cycles'" in complaint("cylces")
    assert names() == list(GENERIC)
    with pytest.raises(UserError, match="apt-get install libpfm4"):
        names("skx")


@needs_libpfm
def test_a_processor_that_libpfm_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pfm, "this_cpu", lambda: None)
    assert event("cycles").config == 0
    assert "libpfm4 does not know this machine's processor" in complaint("ITLB_MISSES:STLB_HIT")
    assert names() == list(GENERIC)
    assert event("4k-aliasing", cpu="spr").config == 0x403


def test_what_arm_s_driver_does_not_list(tmp_path: Path) -> None:
    device = f"{DEVICES}/armv8_pmuv3"
    files = {f"{device}/events/cpu_cycles": "event=0x0011", f"{device}/events/odd": "event=0x4005"}
    old = trees.write(tmp_path / "old", files)
    assert unlisted_on_arm(old) == frozenset(range(0x31)) - {0x11}
    new = trees.write(tmp_path / "new", files | {f"{device}/caps/slots": "0x0"})
    assert unlisted_on_arm(new) == frozenset(range(0x40)) - {0x11}
    two = trees.write(tmp_path / "two", files | {f"{DEVICES}/armv8_cortex_a53/type": "9"})
    assert unlisted_on_arm(two) == unlisted_on_arm(tmp_path) == frozenset()
