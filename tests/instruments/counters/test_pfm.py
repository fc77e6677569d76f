from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.instruments.counters import pfm
from perflib.model.errors import UserError
from tests.instruments.counters.libpfm import forget, needs_libpfm
from tests.machine import trees

TOP = Path(__file__).parents[3]


# --- encodings -----------------------------------------------------------------------------------


@needs_libpfm
@pytest.mark.parametrize(
    ("pmu", "name", "config"),
    [
        ("hsw", "LD_BLOCKS_PARTIAL:ADDRESS_ALIAS", 0x107),
        ("spr", "LD_BLOCKS:ADDRESS_ALIAS", 0x403),
        ("skx", "ITLB_MISSES:WALK_COMPLETED", 0xE85),
        ("spr", "ITLB_MISSES:WALK_COMPLETED", 0xE11),
        ("spr", "itlb_misses:walk_completed", 0xE11),
        ("zen4", "L1_ITLB_MISS_L2_ITLB_HIT", 0x84),
        ("zen4", "L1_ITLB_MISS_L2_ITLB_MISS:IF4K", 0x185),
        ("Skylake-SP", "ITLB_MISSES:WALK_COMPLETED:c=1:e", 0x1040E85),
    ],
)
def test_encodings_known_from_the_manuals(pmu: str, name: str, config: int) -> None:
    code = pfm.encode(pmu, name)
    assert (code.type, code.config) == (4, config)
    assert (code.exclude_user, code.exclude_kernel) == (False, False)


@needs_libpfm
@pytest.mark.parametrize(
    ("pmu", "name", "words"),
    [
        ("skx", "ITLB_MISS", "did you mean 'ITLB_MISSES'"),
        ("skx", "ITLB_MISSES", "lacks a unit mask"),
        ("skx", "ITLB_MISSES:WALK_COMPLETE", "did you mean 'WALK_COMPLETED'"),
        ("spr", "FP_ARITH_INST_RETIRED:SCALAR_DOUBLE:SCALAR_SINGLE", "cannot be combined"),
        ("spr", "MEM_TRANS_RETIRED:LOAD_LATENCY:ldlat=99999999999", "out of its range"),
        ("skx_unc_cha0", "UNC_C_CLOCKTICKS", "no such device"),
        ("skxx", "ITLB_MISSES", "unknown CPU 'skxx': did you mean 'skx'"),
        ("zen9", "CYCLES_NOT_IN_HALT", "'zen4'"),
        ("skx", "", "unknown event ''"),
        ("skx", "ITLB_MISSES\0:WALK_COMPLETED", "unknown event"),
        ("skx", "ITLB_MISSES,INST_RETIRED", "unknown event"),
    ],
)
def test_a_wrong_name_is_the_users_mistake(pmu: str, name: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        pfm.encode(pmu, name)
    assert words in str(caught.value)


@needs_libpfm
@given(st.text(max_size=80) | st.from_regex(r"ITLB_MISSES(:[a-z]{1,3}(=-?[0-9]{1,25})?){1,5}"))
def test_no_text_does_worse_than_an_error(text: str) -> None:
    try:
        code = pfm.encode("skx", text)
    except UserError:
        return
    assert 0 < code.config < 1 << 64
    assert code.type == 4


# --- what there is -------------------------------------------------------------------------------


@needs_libpfm
@pytest.mark.parametrize(
    ("vendor", "family", "model", "stepping", "pmu"),
    [
        ("GenuineIntel", 6, 63, 2, "hsw_ep"),
        ("GenuineIntel", 6, 0x4F, 1, "bdw_ep"),
        ("GenuineIntel", 6, 85, 4, "skx"),
        ("GenuineIntel", 6, 85, 7, "clx"),
        ("GenuineIntel", 6, 0x6A, 6, "icx"),
        ("GenuineIntel", 6, 143, 8, "spr"),
        ("GenuineIntel", 6, 0xCF, 2, "spr"),
        ("GenuineIntel", 6, 0xFE, 1, None),
        ("AuthenticAMD", 23, 49, 0, "amd64_fam17h_zen2"),
        ("AuthenticAMD", 25, 17, 1, "amd64_fam19h_zen4"),
        ("somebody", 1, 1, 1, None),
    ],
)
def test_a_processor_has_its_pmu_without_having_counters(
    tmp_path: Path, vendor: str, family: int, model: int, stepping: int, pmu: str | None
) -> None:
    text = trees.cpuinfo(vendor, family, model, stepping, "a processor", "fpu")
    assert pfm.this_cpu(trees.write(tmp_path, {"proc/cpuinfo": text})) == pmu


@needs_libpfm
def test_every_name_in_the_table_of_designs_is_one_of_libpfms() -> None:
    known = {pmu.name for pmu in pfm.pmus()}
    newer = {"amd64_fam1ah_zen5"}  # since 4.14
    arm = {name for name in pfm._PMU_OF.values() if name.startswith("arm_")}
    assert set(pfm._PMU_OF.values()) - newer - arm <= known
    for name in arm - known:  # names are a table of one architecture, numbers are not
        assert pfm.pmu_named(name) == name
        assert pfm.pmu_events(name) == {}


# --- the library itself --------------------------------------------------------------------------


@pytest.mark.usefixtures("_without_libpfm")
def test_without_libpfm_everything_says_what_to_install() -> None:
    assert "apt-get install libpfm4" in pfm.missing()
    for ask in (pfm.pmus, pfm.this_cpu, lambda: pfm.encode("skx", "X")):
        with pytest.raises(UserError, match="apt-get install libpfm4"):
            ask()


def test_a_library_that_is_another_is_no_libpfm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pfm, "LIBRARY", "libc.so.6")
    forget()
    try:
        assert "libc.so.6 is there, but it is no libpfm4" in pfm.missing()
    finally:
        forget()


@needs_libpfm
@pytest.mark.parametrize("before", [None, "", "0", "yes"])
def test_the_environment_is_put_back(before: str | None) -> None:
    given = {} if before is None else {"LIBPFM_ENCODE_INACTIVE": before}
    # What a program started later inherits is C's environment, which printenv shows.
    code = (
        "import os\n"
        "from perflib.instruments.counters import pfm\n"
        "assert pfm.encode('spr', 'LD_BLOCKS:ADDRESS_ALIAS').config == 0x403\n"
        "assert pfm.encode('zen4', 'RETIRED_OPS').config == 0xc1\n"
        "print(repr(os.environ.get('LIBPFM_ENCODE_INACTIVE')), flush=True)\n"
        "os.execvp('sh', ['sh', '-c', 'echo ${LIBPFM_ENCODE_INACTIVE-None}'])"
    )
    argv = [sys.executable, "-c", code]
    said = subprocess.check_output(argv, text=True, cwd=TOP, env=os.environ | given)
    assert said == f"{before!r}\n{before}\n"
