"""Bundles: what is found in them, what is refused, levels, several readers and writers."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perflib import kernels
from perflib.kernels import bundle, bundling, levels
from perflib.kernels.cache import compiled
from perflib.kernels.levels import BASELINE
from perflib.kernels.sources import Request, Source, request
from perflib.model.errors import MeasurementError, UserError
from perflib.store import paths
from tests.kernels.here import ASK, launched

HERE = Path(__file__).parents[1] / "kernels_c"
NOBODY = 65534
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
X86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="levels are those of x86-64")

SMALL = """/* A kernel of one function, and what it may use.
 *
 * @kernel
 * flags = ["-O1"]
 * [define]
 * ANSWER = 42
 */
// @interface
int small_answer(void);
int small_level(void);
// @end
int small_answer(void) { return ANSWER; }
int small_level(void) {
#if defined(__AVX2__)
  return 3;
#elif defined(__SSE4_2__)
  return 2;
#else
  return 1;
#endif
}
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one test compiled, the next has."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of kernels that the test may write to."""
    made = tmp_path / "kernels"
    made.mkdir()
    (made / "small.c").write_text(SMALL)
    for name in ("copied.c", "copied_part.inc", "declared.c"):
        shutil.copy(HERE / name, made)
    monkeypatch.setattr(paths, "kernels_dir", lambda: made)
    monkeypatch.setenv("PERFLIB_CACHE", str(cache))
    return made


def write(where: Path, *wanted: Request, level: str = BASELINE) -> str:
    return bundling.write(where, {level: [(one, compiled(one, level)) for one in wanted]})


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A bundle of two kernels, one of them also as a program."""
    where = tmp_path / "bundle"
    write(
        where, request("small"), request("declared", executable=True), request("copied", copies=3)
    )
    return where


@pytest.fixture
def node(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bundle on a machine without a compiler, where nothing was compiled before."""
    monkeypatch.setenv("PERFLIB_KERNELS", str(made))
    monkeypatch.setenv("PERFLIB_CC", "no-such-cc")
    monkeypatch.setenv("PERFLIB_CACHE", str(tmp_path / "nothing-here"))
    return made


def manifest(where: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((where / "bundle.json").read_text())
    return found


def change(where: Path, **values: Any) -> None:
    (where / "bundle.json").write_text(json.dumps(manifest(where) | values))


# --- what is found -----------------------------------------------------------------------------


def test_kernels_come_from_the_bundle_without_a_compiler_or_a_cache(node: Path) -> None:
    small = kernels.load("small")
    assert small.lib.small_answer() == 42
    assert small.build.library.is_relative_to(node)
    program = kernels.build("declared", executable=True)
    assert launched(program.library).returncode == 3
    assert kernels.load("copied", copies=3).build.provenance["copies"] == 3
    assert not (node.parent / "nothing-here").exists()


def test_what_is_not_in_the_bundle_is_compiled_where_that_can_be_done(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFLIB_KERNELS", str(made))
    kernel = kernels.load("small", define={"ANSWER": 7})
    assert kernel.lib.small_answer() == 7
    assert kernel.build.provenance["bundle"]["compiled_here"] is True
    assert not kernel.build.library.is_relative_to(made)


@pytest.mark.usefixtures("node")
def test_what_is_nowhere_is_named_with_the_command_that_builds_it(made: Path) -> None:
    with pytest.raises(UserError) as caught:
        kernels.build("small", define={"ANSWER": 7})
    assert f"not in the bundle {made} (baseline), and there is no C compiler" in str(caught.value)
    assert str(caught.value).endswith(f"perflib build {made} --kernel small --define ANSWER=7")
    with pytest.raises(
        UserError, match="copied', 5 copies, as a library is not in the bundle"
    ) as e:
        kernels.build("copied", copies=5)
    assert str(e.value).endswith(f"perflib build {made} --kernel copied --copies 5")


@pytest.mark.usefixtures("node")
def test_what_no_bundle_has_takes_a_compiler(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the command that would not build it."""
    monkeypatch.setattr(Source, "bundled", lambda _: iter(()))
    with pytest.raises(UserError, match="is in no bundle, and there is no C compiler here") as e:
        kernels.build("small", define={"ANSWER": 7})
    assert str(made) not in str(e.value)


@pytest.mark.usefixtures("node")
def test_whether_a_kernel_can_be_had_is_known_without_compiling_it() -> None:
    assert kernels.unavailable("small") == ""
    assert "no-such-cc" in kernels.unavailable("declared")  # there as a program alone


def test_what_did_not_compile_where_the_bundle_was_made_says_why(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "small.c").write_text(
        SMALL.replace("// @interface", "#include <none.h>\n// @interface")
    )
    wanted = request("small")
    with pytest.raises(MeasurementError, match=r"none\.h") as caught:
        compiled(wanted, BASELINE)
    where = tmp_path / "bundle"
    bundling.write(where, {BASELINE: [(wanted, str(caught.value))]})
    monkeypatch.setenv("PERFLIB_KERNELS", str(where))
    monkeypatch.setenv("PERFLIB_CC", "no-such-cc")
    with pytest.raises(MeasurementError, match=r"(?s)where the bundle .* was made, .*none\.h"):
        kernels.build("small")


def test_bundle_is_only_read(node: Path) -> None:
    """A shared folder need not be writable: not even Python leaves bytecode in it."""

    def state() -> list[tuple[Path, int]]:
        return [(path, path.stat().st_mtime_ns) for path in sorted(node.rglob("*"))]

    for path in [node, *node.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    before = state()
    for _ in range(2):
        done = launched(sys.executable, "-c", ASK, node.parent / "kernels", "small")
        assert Path(done.stdout.strip()).is_relative_to(node), done.stderr
    assert state() == before


# --- what is refused ---------------------------------------------------------------------------


def unreadable(where: Path) -> None:
    (where / "bundle.json").write_text((where / "bundle.json").read_text()[:-30])


def library(where: Path) -> Path:
    (found,) = where.glob("baseline/small-*/small.so")
    return found


def tampered(where: Path) -> None:
    raw = bytearray(library(where).read_bytes())
    raw[-1] ^= 1
    library(where).write_bytes(raw)


def other_interface(where: Path) -> None:
    module = library(where).with_name("_small.py")
    module.write_text(module.read_text() + "import os\n")


def linked(where: Path) -> None:
    elsewhere = where.parent / "elsewhere.so"
    place = library(where)
    place.rename(elsewhere)
    place.symlink_to(elsewhere)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (shutil.rmtree, "there is no such folder"),
        (lambda where: (where / "bundle.json").unlink(), "holds no bundle .*perflib build"),
        (unreadable, r"bundle\.json is damaged"),
        (lambda where: (where / "bundle.json").write_text("[]"), r"bundle\.json is damaged"),
        (lambda where: change(where, levels={BASELINE: {"builds": 3}}), "is damaged"),
        (lambda where: change(where, levels={"fast": {}}), "is damaged"),
        (lambda where: change(where, format=99), "has format 99, which this perflib does not read"),
        (lambda where: change(where, perflib="0.0.7"), "was built by perflib 0.0.7, and this is"),
        (lambda where: change(where, architecture="vax"), "is for vax, and this machine is"),
        (lambda where: change(where, glibc="2.999"), "needs glibc 2.999, and this system has"),
        (tampered, r"small\.so is not what its manifest says \(the SHA-256 differs\)"),
        (other_interface, r"_small\.py is not what its manifest says"),
        (lambda where: library(where).unlink(), r"small\.so cannot be read \(No such file"),
        (linked, r"small\.so is a symbolic link"),
        (lambda where: where.chmod(0o777), r"bundle can be written by others \(mode 777\)"),
        (lambda where: (where / "bundle.json").chmod(0o664), r"bundle\.json can be written by"),
        (lambda where: library(where).chmod(0o775), r"small\.so can be written by others"),
        (lambda where: library(where).parent.chmod(0o757), r"small-\w+ can be written by others"),
        (lambda where: (where / BASELINE).chmod(0o775), "baseline can be written by others"),
    ],
)  # fmt: skip
def test_bundle_that_does_not_fit_is_refused(
    node: Path, spoil: Callable[[Path], None], says: str
) -> None:
    assert kernels.build("small").library == library(node)
    spoil(node)
    with pytest.raises(UserError, match=says):
        kernels.build("small")


def test_kernel_whose_source_is_another_is_refused(node: Path, folder: Path) -> None:
    (folder / "small.c").write_text(SMALL + "\n")
    with pytest.raises(UserError, match=r"'small' in this perflib is not what the bundle .* build"):
        kernels.build("small")
    assert kernels.build("declared", executable=True).library.is_relative_to(node)


@ROOT
@pytest.mark.parametrize("part", ["folder", "manifest", "library"])
def test_what_another_user_owns_is_refused(node: Path, part: str) -> None:
    path = {"folder": node, "manifest": node / "bundle.json", "library": library(node)}[part]
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(UserError, match=f"{path.name} belongs to user id {NOBODY}, not to you"):
        kernels.build("small")


def test_file_system_without_execution_is_refused(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mounted:
        f_flag = os.ST_NOEXEC

    monkeypatch.setattr(os, "statvfs", lambda _path: Mounted())
    with pytest.raises(UserError, match=f"{node} is on a file system mounted with noexec"):
        kernels.build("small")


def test_other_c_library_is_refused(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(node, glibc="2.2")

    def confstr(_name: str) -> str:
        raise ValueError

    monkeypatch.setattr(os, "confstr", confstr)
    with pytest.raises(UserError, match=r"needs glibc 2\.2, and this system has another C library"):
        kernels.build("small")


# --- levels --------------------------------------------------------------------------------------

HAS = {  # what /proc/cpuinfo reports, in part
    "baseline": "fpu sse sse2 lm",
    "x86-64-v2": "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
    "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}


X86_LEVELS, ARM_LEVELS = list(HAS), ["baseline", "armv8-a+lse", "armv8-a+lse+sve"]


def processor(monkeypatch: pytest.MonkeyPatch, level: str, without: str = "") -> None:
    upto = X86_LEVELS[: X86_LEVELS.index(level) + 1]
    flags = frozenset(" ".join(HAS[one] for one in upto).split()) - {without}
    monkeypatch.setattr(levels, "_cpu_flags", lambda: flags)


@X86
@pytest.mark.parametrize(
    ("level", "without", "has"),
    [*((level, "", n) for n, level in enumerate(X86_LEVELS, 1)), ("x86-64-v4", "fma", 2)],
)
def test_level_needs_every_flag_and_those_of_the_lower_ones(
    level: str, without: str, has: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor(monkeypatch, level, without)
    assert levels.levels_here() == X86_LEVELS[:has]
    assert levels.required_level("native") == X86_LEVELS[has - 1]


@pytest.mark.parametrize(
    ("machine", "features", "has"),
    [
        ("aarch64", "fp asimd evtstrm crc32 cpuid", 1),  # Cortex-A72
        ("aarch64", "fp asimd atomics asimdrdm", 2),
        ("aarch64", "fp asimd atomics sve", 3),
        ("aarch64", "fp asimd sve", 1),
        ("riscv64", "", 1),
    ],
)
def test_elsewhere_levels_are_others(
    machine: str, features: str, has: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=machine))
    monkeypatch.setattr(levels, "_cpu_flags", lambda: frozenset(features.split()))
    assert levels.levels_here() == ARM_LEVELS[:has]
    assert levels.required_level("native") == ARM_LEVELS[has - 1]
    with pytest.raises(UserError, match=f"x86-64-v3 is a level of x86_64; of {machine} there is"):
        levels.required_level("x86-64-v3")


@pytest.fixture
def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    where = tmp_path / "bundle"
    for level in ("x86-64-v2", "x86-64-v3"):
        write(where, request("small"), level=level)
    monkeypatch.setenv("PERFLIB_KERNELS", str(where))
    return where


@X86
@pytest.mark.parametrize(
    ("has", "taken"),
    [("x86-64-v2", "x86-64-v2"), ("x86-64-v3", "x86-64-v3"), ("x86-64-v4", "x86-64-v3")],
)
def test_best_level_that_the_processor_has_is_taken(
    several: Path, has: str, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor(monkeypatch, has)
    bundle._read.cache_clear()
    kernel = kernels.load("small")
    assert kernel.build.library.is_relative_to(several / taken)
    assert kernel.lib.small_level() == int(taken[-1])
    assert kernel.build.provenance["flags"][-1] == f"-march={taken}"
    assert kernel.build.provenance["bundle"]["level"] == taken
    # What is not in the bundle is compiled for the same level.
    other = kernels.load("small", define={"ANSWER": 7})
    assert other.build.provenance["flags"][-1] == f"-march={taken}"
    assert other.lib.small_level() == int(taken[-1])


@X86
def test_levels_above_the_processors_are_refused(
    several: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor(monkeypatch, BASELINE)
    bundle._read.cache_clear()
    with pytest.raises(UserError) as caught:
        kernels.build("small")
    assert "is for x86-64-v2 and x86-64-v3 alone, and this processor has base" in str(caught.value)
    assert f"'perflib build {several} --march baseline' adds that" in str(caught.value)


@X86
def test_kernel_whose_instructions_are_measured_is_the_same_at_every_level(folder: Path) -> None:
    (folder / "small.c").write_text(SMALL.replace('["-O1"]', '["-O1"]\n * fixed = true'))
    one, other = (compiled(request("small"), level) for level in (BASELINE, "x86-64-v3"))
    assert one == other


# --- writing -------------------------------------------------------------------------------------


def test_two_bundles_of_the_same_kernels_have_the_same_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = set()
    for name in ("a", "b"):
        monkeypatch.setenv("PERFLIB_CACHE", str(tmp_path / f"cache-{name}"))
        wanted = [request("small"), request("copied", copies=3), request("declared", "slow")]
        hashes.add(write(tmp_path / name, *wanted))
    assert len(hashes) == 1


def test_what_a_changed_source_makes_outdated_is_to_be_built_again(
    made: Path, folder: Path
) -> None:
    write(made, request("small", define={"ANSWER": 7}))
    assert bundling.begun(made) == {BASELINE: []}
    (folder / "small.c").write_text(SMALL + "\n")
    outdated = bundling.begun(made)[BASELINE]
    assert sorted(one.define["ANSWER"] for one in outdated) == [7, 42]
    write(made, *outdated)
    assert bundling.begun(made) == {BASELINE: []}
    assert len(list((made / BASELINE).glob("small-*"))) == 2, "what is not used is gone"


def test_kernel_that_is_no_more_leaves_the_bundle(made: Path, folder: Path) -> None:
    (folder / "small.c").unlink()
    assert bundling.begun(made) == {BASELINE: []}
    write(made, request("copied", copies=3))
    assert not list((made / BASELINE).glob("small-*"))
    assert len(manifest(made)["levels"][BASELINE]["builds"]) == 2


def test_tampered_or_damaged_bundle_is_mended(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before, though a compiler is here: nothing else is taken in silence."""
    monkeypatch.delenv("PERFLIB_CC")
    for spoil in (tampered, unreadable):
        spoil(node)
        with pytest.raises(UserError, match=r"the SHA-256 differs|is damaged"):
            kernels.build("small")
        write(node, request("small"))
        assert kernels.load("small").lib.small_answer() == 42


def test_folder_that_holds_something_else_is_left_alone(tmp_path: Path, made: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("")
    with pytest.raises(UserError, match="home is not empty and holds no bundle"):
        write(tmp_path / "home", request("small"))
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["thesis.tex"]
    change(made, architecture="vax")
    with pytest.raises(UserError, match="holds a bundle for vax, and this machine is"):
        write(made, request("small"))


def test_folder_that_others_can_write_to_is_not_begun(tmp_path: Path) -> None:
    where = tmp_path / "open"
    where.mkdir()
    where.chmod(0o775)
    with pytest.raises(UserError, match=r"open can be written by others .mode 775.: no bundle"):
        write(where, request("small"))


def test_file_in_the_folders_place_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"no bundle can be written to .*file: Not a directory"):
        write(tmp_path / "file", request("small"))


@pytest.mark.parametrize("umask", [0o002, 0o077])
def test_everybody_may_read_it_and_nobody_else_write_it(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "bundle", request("small"), request("declared", executable=True))
    finally:
        os.umask(before)
    for path in (tmp_path / "bundle", *(tmp_path / "bundle").rglob("*")):
        runs = path.is_dir() or path.suffix in {".so", ""}
        assert path.stat().st_mode & 0o777 == (0o755 if runs else 0o644), path


def test_processes_that_write_and_read_at_once(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two add to the bundle and three take from it: each has a whole one."""
    monkeypatch.delenv("PERFLIB_CC")
    monkeypatch.setenv("PERFLIB_CACHE", str(node.parent / "cache"))  # new to both
    add = (
        "import sys\n"
        "from pathlib import Path\n"
        "from perflib.kernels import bundling\n"
        "from perflib.kernels.cache import compiled\n"
        "from perflib.kernels.sources import request\n"
        "from perflib.store import paths\n"
        "paths.kernels_dir = lambda: Path(sys.argv[1])\n"
        "for answer in range(int(sys.argv[3]), int(sys.argv[3]) + 3):\n"
        "    one = request('small', define={'ANSWER': answer})\n"
        "    bundling.write(Path(sys.argv[2]), {'baseline': [(one, compiled(one, 'baseline'))]})\n"
    )
    top, words = str(node.parent / "kernels"), [sys.executable, "-c"]
    writers = [[*words, add, top, str(node), str(first)] for first in (100, 200)]
    with ThreadPoolExecutor(5) as pool:
        readers = [[*words, ASK, top, "small"]] * 3
        ends = list(pool.map(lambda argv: launched(*argv), [*writers, *readers]))
    assert [end.returncode for end in ends] == [0] * 5, [end.stderr for end in ends]
    builds = manifest(node)["levels"][BASELINE]["builds"]
    answers = {dict(json.loads(key)[3]).get("ANSWER") for key in builds}
    assert answers >= {42, 100, 101, 102, 200, 201, 202}
