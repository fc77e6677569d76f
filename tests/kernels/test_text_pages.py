"""text_pages.h: running text put on pages of every kind, over and over, whatever fails."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perflib import kernels
from tests.kernels.here import launched

# They change, or depend on, the machine's huge pages: one after the other.
pytestmark = pytest.mark.xdist_group("huge pages")

MAP, ADVISE, COLLAPSE, PROTECT, MOVE = range(2, 7)
THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")

# What each child process begins with. The kernel's library is loaded there, so that nothing of
# what is done to it reaches the tests' own process.
PREAMBLE = """
import contextlib, ctypes, errno, hashlib, itertools, os, signal, sys, threading
from perflib import kernels
from tests.reference import code_segment as reference

kernel = kernels.load("code_segment")
ffi, lib = kernel.ffi, kernel.lib
RANDOM, PAGE, CHASE = range(3)
LOADED, SMALL, THP, COLLAPSE, HUGETLB = range(5)
sizes = ffi.new("int64_t[10]")
lib.code_bounds(sizes)
first = sizes[2]

gone = 0  # steps since the code was placed: a run resumes where the one before it ended

def lay(pattern, n, backing, seed=1):
    global gone
    span = ffi.new("uint64_t[2]")
    answer = lib.code_lay(pattern, n, backing, seed, span)
    gone = 0 if answer == 0 else gone
    return answer, (span[0], span[1])

def must_lay(*what):
    answer, span = lay(*what)
    assert answer == 0, (what, answer // 65536, os.strerror(answer % 65536))
    return span

def run(steps, warm=0):
    global gone
    sample = ffi.new("code_sample *")
    assert lib.code_run(warm, steps, 1, sample) == 0
    gone += warm + steps
    return sample

def check(n, seed=1, steps=2000, pattern="random"):
    expected = reference.run(pattern, seed, n, gone, steps, 128)
    found = run(steps)
    assert found.checksum == expected.checksum
    assert (found.first_ip, found.last_ip) == (first + expected.first, first + expected.last)

def mappings():
    with open("/proc/self/maps") as maps:
        return [line.split(maxsplit=5) for line in maps]

def kib(begin, end):
    # The mappings over a range, what they are and their kilobytes by kind.
    rows, inside = [], False
    with open("/proc/self/smaps") as smaps:
        for line in smaps:
            word, *rest = line.split()
            if not word.endswith(":"):
                low, high = (int(edge, 16) for edge in word.split("-"))
                inside = low < end and high > begin
                if inside:
                    rows.append({"begin": low, "end": high, "rights": rest[0], "path": rest[4:]})
            elif inside and rest[-1] == "kB":
                rows[-1][word[:-1]] = int(rest[0])
    return rows

def digest():
    return hashlib.sha256(ffi.buffer(ffi.cast("char *", first), sizes[6] - first)).hexdigest()

@contextlib.contextmanager
def meanwhile(works):
    # Another thread does one work after the other; the list of what came out grows.
    found, ended = [], threading.Event()
    def work():
        for one in works:
            found.append(one)
            if ended.is_set():
                return
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
"""


def child(script: str, *arguments: str, **environment: str) -> str:
    """What a script prints that begins with the preamble; it must end well."""
    whole = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment}
    words = [sys.executable, "-W", "error", "-c", PREAMBLE + script, *arguments]
    done = launched(*words, env=whole)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    kernels.build("code_segment")


# --- each backing ------------------------------------------------------------------------------

VERIFY = """
backing = int(sys.argv[1])

def verify(pattern, n):
    answer, (begin, end) = lay(pattern, n, backing)
    if answer:
        return f"{answer // 65536} {errno.errorcode[answer % 65536]}"
    extent = n * (128 if pattern == RANDOM else 4096)
    assert begin % 2**21 == 0 and end - begin == -(-extent // 2**21) * 2**21
    found = []
    for _ in range(2):  # before and after it ran
        rows = kib(begin, end)
        assert all(row["rights"] == "r-xp" for row in rows)
        if backing != LOADED:
            assert rows[0]["begin"] <= begin and rows[-1]["end"] >= end
            assert all(a["end"] == b["begin"] for a, b in itertools.pairwise(rows))
            size = sum(row["end"] - row["begin"] for row in rows) // 1024
            huge = sum(row["AnonHugePages"] for row in rows)
            pool = sum(row["Private_Hugetlb"] for row in rows)
            small = sum(row["Rss"] for row in rows) - huge
            assert size == (end - begin) // 1024
            found.append(f"{huge // 2048} {pool // 2048} {small // 2048}")
        else:
            found.append(str(rows[0]["path"][0] == str(kernel.build.library)))
        if pattern == CHASE:
            assert run(10 * n).checksum == 10
        else:
            check(n, pattern=["random", "page"][pattern])
    assert found[0] == found[1], found
    return found[0]

for case in sys.argv[2:]:
    print(verify(*map(int, case.split(","))))
"""
PATTERNS = ("0,5", "0,32768", "1,512", "1,600", "2,64", "2,1500")
PAGES = (1, 2, 1, 2, 1, 3)


def verified(backing: int) -> list[str]:
    return child(VERIFY, str(backing), *PATTERNS).splitlines()


def test_huge_pages_if_the_system_gives_them() -> None:
    if "[never]" in (THP.read_text() if THP.exists() else "[never]"):
        small = [f"0 0 {pages}" for pages in PAGES]
        assert verified(2) in (small, [f"{ADVISE} EINVAL"] * len(PAGES))
    else:
        assert verified(2) == [f"{pages} 0 0" for pages in PAGES]


@pytest.mark.usefixtures("pool")
def test_pages_of_the_pool_or_none() -> None:
    for found, pages in zip(verified(4), PAGES, strict=True):
        assert found in (f"0 {pages} 0", f"{MAP} ENOMEM")


@pytest.mark.usefixtures("pool")
def test_every_backing_follows_every_other_and_only_what_is_placed_stays() -> None:
    found = child("""
text, file = digest(), [str(kernel.build.library)]
kinds = set()
for pattern, one, other in itertools.product((RANDOM, PAGE, CHASE), range(5), range(5)):
    for n, backing in ((900, one), (300, other)):
        answer, (begin, end) = lay(pattern, n, backing)
        if answer:
            assert (backing, answer) in [(HUGETLB, 2 * 65536 + errno.ENOMEM),
                (THP, 3 * 65536 + errno.EINVAL), (COLLAPSE, 4 * 65536 + errno.EINVAL)
            ] or (pattern, backing, answer) == (CHASE, LOADED, 65536 + errno.EINVAL)
            continue
        kinds.add(backing)
        assert digest() == text
        if pattern == CHASE:
            assert run(2 * n).checksum == 2
        else:
            check(n, steps=200, pattern=["random", "page"][pattern])
        moved = [row for row in kib(first, sizes[6]) if row["path"] != file]
        kept = 0 if backing == LOADED or pattern == CHASE else end - begin
        assert sum(row["end"] - row["begin"] for row in moved) == kept
must_lay(RANDOM, 10, LOADED)
assert all(row["path"] == file for row in kib(first, sizes[6]))
print(sorted(kinds)[:2])
""")
    assert found == "[0, 1]\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees where pages are in memory")
def test_small_pages_that_are_neighbours_are_no_neighbours_physically() -> None:
    """A core would keep neighbours in one entry of its TLB."""
    child("""
import struct
begin, end = must_lay(RANDOM, 32768, SMALL)
with open("/proc/self/pagemap", "rb") as pagemap:
    pagemap.seek(begin // 4096 * 8)
    raw = pagemap.read((end - begin) // 512)
frames = [entry & 2**55 - 1 for (entry,) in struct.iter_unpack("<Q", raw)]
assert len(set(frames)) == 1024 and all(frames)
assert sum(abs(b - a) == 1 for a, b in itertools.pairwise(frames)) < 10
""")


@pytest.fixture
def own_cache(tmp_path: Path) -> str:
    """The compiled kernel again, in a cache that a test may remove."""
    folder = kernels.build("code_segment").library.parent
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    shutil.copytree(folder, cache / folder.name)
    return str(cache)


def test_file_that_is_gone_is_still_what_was_loaded(own_cache: str) -> None:
    """A cleaner removes the cache while a kernel of it is in use."""
    child(
        """
import shutil
must_lay(RANDOM, 10, SMALL)
shutil.rmtree(kernel.build.library.parent)
must_lay(RANDOM, 10, LOADED)
check(10)
assert "(deleted)" in kib(first, first + 1)[0]["path"]
""",
        PERFLIB_CACHE=own_cache,
    )


def test_text_whose_file_was_gone_before_stays_a_copy(own_cache: str) -> None:
    child(
        """
import shutil
shutil.rmtree(kernel.build.library.parent)
must_lay(RANDOM, 10, LOADED)  # where it is
must_lay(RANDOM, 10, SMALL)
assert lay(RANDOM, 10, LOADED)[0] == 2 * 65536 + errno.ENOENT
check(10)
must_lay(RANDOM, 20, THP)
check(20)
""",
        PERFLIB_CACHE=own_cache,
    )


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm")
def test_text_that_the_loader_did_not_align_is_not_moved() -> None:
    """A copy whose segments ask for less alignment, from where the kernel does not align either."""
    found = child("""
import pathlib, struct, tempfile
small = kernels.load("code_segment", define={"CASES": 32})
ffi = small.ffi
raw = bytearray(small.build.library.read_bytes())
at, = struct.unpack_from("<Q", raw, 32)
size, count = struct.unpack_from("<HH", raw, 54)
for header in range(at, at + size * count, size):
    if struct.unpack_from("<I", raw, header)[0] == 1:
        struct.pack_into("<Q", raw, header + 48, 4096)
kept = []
for _ in range(4):
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as copy:
        copy.write(raw)
        copy.flush()
        lib = ffi.dlopen(copy.name)
    kept.append(lib)
    lib.code_bounds(sizes)
    first = sizes[2]
    if first % 2**21:
        must_lay(RANDOM, 10, LOADED)
        for backing in (SMALL, THP, COLLAPSE, HUGETLB):
            assert lay(RANDOM, 10, backing)[0] == 65536 + errno.EINVAL
        must_lay(CHASE, 10, SMALL)
        must_lay(RANDOM, 10, LOADED)
        check(10)
        print("askew")
        break
""")
    if not found:
        pytest.skip("every copy was aligned by chance")
    assert found == "askew\n"


# --- failures ----------------------------------------------------------------------------------

FAIL = """
shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
cases = [(name, *map(int, rest)) for name, *rest in (case.split() for case in sys.argv[1:])]
for case, (pattern, n) in itertools.product(cases, ((RANDOM, 32768), (CHASE, 600))):
    name, backing, passing, failing, error, mode = case
    keep = ctypes.create_string_buffer(name.encode())
    must_lay(pattern, n, SMALL, 3)
    if backing == COLLAPSE and lay(pattern, n, COLLAPSE, 3)[0]:
        print("no collapse")
        continue
    must_lay(pattern, n, SMALL, 3)
    laps, text, before = run(5000).checksum, digest(), mappings()
    shim.arm(keep, passing, failing, error, mode)
    answer, _ = lay(pattern, 70, backing, 4)
    print(answer // 65536, errno.errorcode.get(answer % 65536), shim.left())
    shim.arm(b"", 0, 0, 0, 0)
    if answer and mappings() != before:  # Python makes one now and then, a leak each time
        before = mappings()
        shim.arm(keep, passing, failing, error, mode)
        lay(pattern, 70, backing, 4)
        shim.arm(b"", 0, 0, 0, 0)
    if answer:
        assert mappings() == before, "a mapping was left behind, or the target was touched"
        assert digest() == text
        if pattern == RANDOM:
            check(n, 3, 5000)
        else:
            assert run(5000).checksum == laps
    must_lay(pattern, 80, backing, 5)
    must_lay(pattern, 90, SMALL, 6)
    assert digest() == text
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = Path(__file__).with_name("failing.c")
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    compiler, _ = kernels.compiler()
    subprocess.run([compiler, "-fPIC", "-shared", source, "-o", library, "-ldl"], check=True)
    return library


FAILURES: list[tuple[str, int, int, int, int, int, tuple[int, str | None, int]]] = [
    ("madvise", 2, 0, 1, errno.EINVAL, 0, (ADVISE, "EINVAL", 0)),
    ("madvise", 1, 0, 1, errno.ENOMEM, 0, (ADVISE, "ENOMEM", 0)),
    ("madvise", 1, 0, 1, errno.EINVAL, 0, (0, None, 0)),  # a kernel without huge pages
    ("collapse", 3, 0, 1, errno.EINVAL, 0, (COLLAPSE, "EINVAL", 0)),
    ("collapse", 3, 0, 3, errno.EAGAIN, 0, (0, None, 0)),  # tried again
    ("collapse", 3, 0, 99, errno.EAGAIN, 0, (COLLAPSE, "EAGAIN", 89)),
    ("mprotect", 1, 0, 1, errno.EACCES, 0, (PROTECT, "EACCES", 0)),
    ("mprotect", 3, 0, 1, errno.EACCES, 0, (PROTECT, "EACCES", 0)),
    ("mremap", 2, 0, 1, errno.ENOMEM, 0, (MOVE, "ENOMEM", 0)),
    ("mremap", 1, 0, 1, errno.EINVAL, 1, (MOVE, "EINVAL", 0)),
    ("mremap", 1, 1, 1, errno.ENOMEM, 0, (MOVE, "ENOMEM", 0)),
]


def test_failure_leaves_nothing_behind_and_the_text_as_it_was(shim: Path) -> None:
    cases = [" ".join(map(str, case[:-1])) for case in FAILURES]
    found = child(FAIL, *cases, LD_PRELOAD=str(shim)).splitlines()
    expected = [" ".join(map(str, answer)) for *_, answer in FAILURES for _ in range(2)]
    assert len(found) == len(expected)
    collapsing = [case.split()[1] == "3" for case in cases for _ in range(2)]
    for one, other, collapses in zip(found, expected, collapsing, strict=True):
        assert one == other or (collapses and one == "no collapse")


def test_no_memory_leaves_the_text_as_it_was() -> None:
    found = child("""
import resource
must_lay(RANDOM, 32768, SMALL)
text, before = digest(), mappings()
pages = int(open("/proc/self/statm").read().split()[0])
for spare in (0, 3 << 20, 7 << 20):  # not even the copy, nor a place aside
    limit = pages * 4096 + spare
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    answer, _ = lay(RANDOM, 32768, SMALL)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(answer // 65536, errno.errorcode[answer % 65536])
    assert digest() == text and len(mappings()) <= len(before) + 1
check(32768)
""")
    assert found == 3 * f"{MAP} ENOMEM\n"


# --- running meanwhile -------------------------------------------------------------------------


def test_text_is_placed_under_a_running_thread_that_gets_signals() -> None:
    """It ends when enough of each has happened; a crash would be a signal's exit status."""
    child("""
signals = 0
def on_alarm(number, frame):
    global signals
    signals += 1

steps = 100_000
must_lay(RANDOM, 32768, LOADED, 11)
expected = run(steps).checksum
backings = itertools.cycle((SMALL, THP, LOADED, SMALL, COLLAPSE, THP))
signal.signal(signal.SIGALRM, on_alarm)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
runs = 0
with meanwhile((one, lay(RANDOM, 32768, one, 11)[0]) for one in backings) as answers:
    while len(answers) < 60 or runs < 20 or signals < 20:
        must_lay(RANDOM, 32768, SMALL, 11)  # from the beginning, whoever placed it last
        assert run(steps).checksum == expected
        runs += 1
signal.setitimer(signal.ITIMER_REAL, 0)
failures = {(backing, answer) for backing, answer in answers if answer}
assert failures <= {(COLLAPSE, 4 * 65536 + errno.EINVAL)}, failures
""")


def test_ring_is_not_placed_anew_while_it_runs() -> None:
    """Another ring, of other jumps, waits until the one that runs has ended."""
    child("""
n = 300
must_lay(CHASE, n, SMALL, 1)
runs = 0
rings = (must_lay(CHASE, n, (SMALL, THP)[seed % 2], seed) for seed in itertools.count())
with meanwhile(rings) as placed:
    while len(placed) < 50 or runs < 50:
        assert run(1000 * n).checksum == 1000
        runs += 1
""")
