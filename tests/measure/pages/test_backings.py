"""Which pages code can be placed on, on this machine and on others."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from perflib.measure.pages import backings
from perflib.measure.pages.backings import pool_pages, why_not
from perflib.measure.pages.kinds import BACKINGS, DATA_BACKINGS
from perflib.measure.pages.refusals import explain
from tests.machine import trees

THP = "sys/kernel/mm/transparent_hugepage"
POOL = "sys/kernel/mm/hugepages/hugepages-2048kB"


def machine(root: Path, **changes: str) -> Path:
    """A machine on which all backings can be had, but for the changes: file by file."""
    files = {
        f"{THP}/enabled": "always [madvise] never",
        f"{THP}/hpage_pmd_size": "2097152",
        f"{THP}/hugepages-2048kB/enabled": "always [inherit] madvise never",
        "proc/self/status": "Name:\tcat\nTHP_enabled:\t1",
        "proc/sys/kernel/osrelease": "6.18.44-fc",
        "proc/sys/vm/nr_hugepages": "8",
        "proc/meminfo": "MemTotal: 16000000 kB\nHugepagesize:       2048 kB",
        "proc/mounts": "none /huge hugetlbfs rw,relatime,pagesize=2M 0 0",
        "huge/.keep": "",
    } | pool(8, 8)
    return trees.write(root, files | changes)


def pool(total: int, free: int, promised: int = 0, overcommit: int = 0) -> dict[str, str]:
    return {
        f"{POOL}/nr_hugepages": str(total),
        f"{POOL}/free_hugepages": str(free),
        f"{POOL}/resv_hugepages": str(promised),
        f"{POOL}/nr_overcommit_hugepages": str(overcommit),
        f"{POOL}/surplus_hugepages": "0",
    }


def reason(name: str, root: Path, pages_needed: int = 4, *, may_reserve: bool = False) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "which", lambda program: f"/bin/{program}")
        return why_not(name, root, pages_needed, may_reserve=may_reserve)


def test_the_numbers_are_those_of_the_kernels() -> None:
    assert BACKINGS == {"loaded": 0, "4k": 1, "thp": 2, "collapse": 3, "hugetlb": 4}
    assert DATA_BACKINGS == {"4k": 1, "thp": 2, "collapse": 3, "hugetlb": 4, "hugetlb_1g": 5}


# --- transparent huge pages ----------------------------------------------------------------------


def test_thp_never(tmp_path: Path) -> None:
    machine(tmp_path, **{f"{THP}/enabled": "always madvise [never]"})
    assert reason("thp", tmp_path) == (
        "transparent huge pages are switched off (never). As root: perflib run ... "
        "-p settings=thp=madvise, or: "
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    )
    assert reason("collapse", tmp_path) == ""  # it works all the same


def test_thp_of_2_mib_alone(tmp_path: Path) -> None:
    one_size = f"{THP}/hugepages-2048kB/enabled"
    machine(tmp_path, **{one_size: "always inherit madvise [never]"})
    assert reason("thp", tmp_path).endswith(f"echo inherit | sudo tee /{one_size}")
    off = {f"{THP}/enabled": "always madvise [never]"}
    machine(tmp_path, **off, **{one_size: "always inherit [madvise] never"})
    assert reason("thp", tmp_path) == ""
    (tmp_path / one_size).unlink()  # before Linux 6.8
    assert "switched off (never)" in reason("thp", tmp_path)


@pytest.mark.parametrize("name", ["thp", "collapse"])
def test_where_there_are_no_transparent_huge_pages(tmp_path: Path, name: str) -> None:
    machine(tmp_path, **{"proc/self/status": "THP_enabled:\t0"})
    assert "PR_SET_THP_DISABLE" in reason(name, tmp_path)
    machine(tmp_path, **{f"{THP}/hpage_pmd_size": "536870912"})  # arm64 with 64 KiB pages
    assert "have 536870912 bytes here" in reason(name, tmp_path)
    (tmp_path / THP / "enabled").unlink()
    assert "CONFIG_TRANSPARENT_HUGEPAGE" in reason(name, tmp_path)


@pytest.mark.parametrize(
    ("release", "has_collapse"),
    [
        ("5.14.0-427.el9.x86_64", False),
        ("6.0.19", False),
        ("6.1.0-13-amd64", True),
        ("6.18.44-fc-v669", True),
        ("10.0-rc1", True),
        ("strange", True),  # not known: it is tried
        ("", True),
    ],
)
def test_collapse_came_with_6_1(tmp_path: Path, release: str, *, has_collapse: bool) -> None:
    machine(tmp_path, **{"proc/sys/kernel/osrelease": release})
    assert (reason("collapse", tmp_path) == "") == has_collapse
    if not has_collapse:
        assert f"({release}) has no MADV_COLLAPSE" in reason("collapse", tmp_path)
    assert reason("thp", tmp_path) == ""


def test_this_kernel_is_asked_and_not_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = why_not("collapse")
    if "transparent huge pages" in lacking:
        pytest.skip(lacking)
    release = os.uname().release
    if tuple(map(int, release.split(".")[:2])) >= (6, 1):
        assert lacking == ""
    monkeypatch.setattr(backings, "_MADV_COLLAPSE", 9999)
    assert f"this kernel ({release}) has no MADV_COLLAPSE" in why_not("collapse")


# --- the pool ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hugetlb", "hugectl"])
def test_an_empty_pool(tmp_path: Path, name: str) -> None:
    machine(tmp_path, **pool(0, 0))
    assert pool_pages(tmp_path) == (0, 0)
    assert reason(name, tmp_path, 4) == (
        "the pool of huge pages is empty, and 4 of 2 MiB are needed. Root may reserve them: "
        "perflib does so by itself when it runs as root, and gives them back; or: "
        "sudo sysctl -w vm.nr_hugepages=4"
    )
    assert "and 1 of 2 MiB are needed" in reason(name, tmp_path, 0)
    assert reason(name, tmp_path, 4, may_reserve=True) == ""


def test_a_pool_that_is_promised_to_others(tmp_path: Path) -> None:
    machine(tmp_path, **pool(16, 6, promised=4))
    assert pool_pages(tmp_path) == (16, 2)
    assert reason("hugetlb", tmp_path, 2) == ""
    assert reason("hugetlb", tmp_path, 3).endswith("vm.nr_hugepages=17")
    machine(tmp_path, **pool(4, 4))
    assert reason("hugetlb", tmp_path, 4) == ""


def test_pages_that_come_when_they_are_asked_for(tmp_path: Path) -> None:
    machine(tmp_path, **pool(0, 0, overcommit=4))
    assert reason("hugetlb", tmp_path, 4) == ""
    assert reason("hugetlb", tmp_path, 5)
    assert pool_pages(tmp_path) == (0, 0)


def test_whether_it_may_be_enlarged_is_seen_from_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(tmp_path, **pool(0, 0))
    requested: list[Path] = []

    def access(path: Path, mode: int) -> bool:
        requested.append(path)
        return mode != os.W_OK

    assert why_not("hugetlb", tmp_path, 4) == ""
    monkeypatch.setattr(os, "access", access)
    assert "pool of huge pages is empty" in why_not("hugetlb", tmp_path, 4)
    assert requested == [tmp_path / "proc/sys/vm/nr_hugepages"]


def test_a_machine_without_a_pool(tmp_path: Path) -> None:
    trees.write(tmp_path, {f"{THP}/enabled": "always [madvise] never"})
    assert pool_pages(tmp_path) == (0, 0)
    for may_reserve in (False, True):
        assert "reserves no pages of 2 MiB" in reason("hugetlb", tmp_path, may_reserve=may_reserve)


def test_a_machine_whose_default_is_1_gib(tmp_path: Path) -> None:
    machine(tmp_path, **pool(0, 0), **{"proc/meminfo": "Hugepagesize:    1048576 kB"})
    # The setting nr_hugepages would reserve pages of 1 GiB: perflib cannot help itself.
    for may_reserve in (False, True):
        sentence = reason("hugetlb", tmp_path, 4, may_reserve=may_reserve)
        assert sentence.endswith(f"As root: echo 4 | sudo tee /{POOL}/nr_hugepages")


def test_the_pool_of_1_gib_is_another(tmp_path: Path) -> None:
    machine(tmp_path)
    assert "reserves no pages of 1 GiB" in reason("hugetlb_1g", tmp_path, may_reserve=True)
    gigantic = f"{POOL.removesuffix('2048kB')}1048576kB"
    counts = {name.replace(POOL, gigantic): count for name, count in pool(3, 1).items()}
    machine(tmp_path, **pool(0, 0), **counts)
    assert pool_pages(tmp_path, "hugetlb_1g") == (3, 1)
    assert reason("hugetlb_1g", tmp_path, 1) == ""
    assert reason("hugetlb_1g", tmp_path, 2) == (
        "1 of the pool's 3 huge pages are free, and 2 of 1 GiB are needed. Root may reserve them: "
        "perflib does so by itself when it runs as root, and gives them back; or: "
        f"echo 4 | sudo tee /{gigantic}/nr_hugepages"
    )
    assert reason("hugetlb_1g", tmp_path, 2, may_reserve=True) == ""


# --- hugectl -------------------------------------------------------------------------------------


def test_hugectl_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(tmp_path)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert why_not("hugectl", tmp_path) == (
        "hugectl is not installed: apt-get install libhugetlbfs-bin libhugetlbfs-dev"
    )


@pytest.mark.parametrize(
    "mounts", ["/dev/vda / ext4 rw 0 0", "none /big hugetlbfs rw,relatime,pagesize=1024M 0 0", ""]
)
def test_hugectl_without_its_file_system(tmp_path: Path, mounts: str) -> None:
    machine(tmp_path, **{"proc/mounts": mounts})
    assert reason("hugectl", tmp_path).startswith("hugetlbfs is not mounted")
    assert reason("hugetlb", tmp_path) == ""


def test_hugectl_where_others_may_write(tmp_path: Path) -> None:
    machine(tmp_path, **{"proc/mounts": "none /nowhere hugetlbfs rw,relatime,pagesize=2M 0 0"})
    assert "may not write" in reason("hugectl", tmp_path)


# --- answers of code_lay -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stage", "number", "said"),
    [
        ("thp", 1, errno.EINVAL, "the loader did not align the library to 2 MiB"),
        ("hugetlb", 2, errno.ENOMEM, "name it in backings and run as root"),
        ("hugetlb", 6, errno.EINVAL, "before 5.16"),
        ("loaded", 1, errno.EINVAL, "no loader mapped this pattern"),
        ("4k", 3, errno.EINVAL, "built without transparent huge pages"),
        ("collapse", 4, errno.EINVAL, "older than 6.1"),
        ("collapse", 4, errno.EAGAIN, "fragmented"),
        ("thp", 5, errno.EACCES, "SELinux execmem"),
        ("thp", 6, errno.ENOMEM, "there is not enough memory"),
    ],
)
def test_answers_with_a_known_cause(name: str, stage: int, number: int, said: str) -> None:
    sentence = explain(name, stage * 65536 + number)
    assert said in sentence
    assert f"{os.strerror(number)} ({errno.errorcode[number]})" in sentence


# --- this machine --------------------------------------------------------------------------------


def test_this_machine() -> None:
    assert why_not("loaded") == why_not("4k") == ""
    total, free = pool_pages()
    assert 0 <= free <= total
    if not Path("/", POOL).is_dir():
        pytest.skip("this kernel has no pool of 2 MiB pages")
    assert "nr_hugepages" in why_not("hugetlb", pages_needed=1 << 40, may_reserve=False)
