from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from perflib.instruments.profile import annotate as module
from perflib.instruments.profile import disassembly
from perflib.instruments.profile.annotate import annotate
from perflib.model.errors import UserError
from tests.instruments.profile.tables import TYPES, sample, table

pytestmark = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("objdump")),
    reason="needs both: apt-get install gcc binutils",
)

SOURCE = """\
static __attribute__((noinline)) double work(int n)
{
    double sum = 0;
    for (int i = 1; i < n; i++)
        sum += 1.0 / i;
    return sum;
}
double other(int n);
int main(int argc, char **argv)
{
    (void) argv;
    return (int) (work(argc) + other(argc));
}
"""
OTHER = """\
static __attribute__((noinline)) double work(int n)
{
    double product = 1;
    for (int i = 1; i < n; i++)
        product *= 2.0 / i;
    return product;
}
double other(int n)
{
    return work(n);
}
"""


def compiled(folder: Path, *flags: str, name: str = "job", sources: str = "main other") -> Path:
    texts = {"main": SOURCE, "other": OTHER}
    files = []
    for part in sources.split():
        file = folder / f"{part}.c"
        file.write_text(texts[part])
        os.utime(file, (1_000_000_000, 1_000_000_000))
        files.append(str(file))
    target = folder / name
    subprocess.run(["gcc", "-O1", *flags, "-o", str(target), *files], check=True, cwd=folder)
    return target


def address_of(path: Path, name: str) -> list[int]:
    listed = subprocess.run(
        ["nm", "--defined-only", str(path)], capture_output=True, text=True, check=True
    ).stdout
    return sorted(int(line.split()[0], 16) for line in listed.splitlines() if line.endswith(name))


def hits(path: Path, offsets: list[int], at: int = 0, symbol: str = "work") -> pd.DataFrame:
    """Samples at these offsets of a function that began at the address ``at`` in the process."""
    rows = [
        sample(f"main;{symbol}", offset=offset, ip=at + offset if at else 0, object=str(path))
        for offset in offsets
    ]
    return table(rows)


@pytest.mark.parametrize("flags", [["-pie", "-fPIE"], ["-no-pie"], ["-shared", "-fPIC"]])
def test_instructions_samples_and_source_of_any_kind_of_object(
    tmp_path: Path, flags: list[str]
) -> None:
    sources = "other" if "-shared" in flags else "main other"
    job = compiled(tmp_path, "-g", *flags, sources=sources)
    first = address_of(job, " t work")[0]
    bias = 0 if "-no-pie" in flags else 0x5555_5555_4000
    plain = annotate(hits(job, [0], bias + first), "work").table
    offsets = [int(offset) for offset in plain["offset"]]
    assert offsets[0] == 0
    hot = offsets[5]
    shown = annotate(hits(job, [0, hot, hot, hot], bias + first), "work")
    assert shown.object == str(job)
    lines = shown.table
    assert list(lines.columns) == [
        "offset", "address", "instruction", "samples", "percent",
        "source_file", "source_line", "source_text",
    ]  # fmt: skip
    assert lines["address"].iloc[0] == first
    assert lines["instruction"].notna().all()
    assert lines.set_index("address")["samples"].loc[first + hot] == 3
    assert lines["percent"].sum() == pytest.approx(100)
    (division,) = lines[lines["instruction"].str.startswith("divsd")][:1].index
    source = SOURCE if "-shared" not in flags else OTHER
    assert lines["source_line"].loc[division] == 5
    assert lines["source_text"].loc[division] == source.splitlines()[4]
    assert Path(lines["source_file"].loc[division]).name.endswith(".c")
    assert "+0x0" in str(shown)
    assert "for (int i = 1; i < n; i++)" in str(shown)


def test_functions_of_one_name_are_distinguished_by_where_they_began(tmp_path: Path) -> None:
    job = compiled(tmp_path, "-g")
    first, second = address_of(job, " t work")
    both = pd.concat([hits(job, [0], 0x7000 + first), hits(job, [0, 0], 0x9000 + second)])
    shown = annotate(both.astype(TYPES), "work")
    by_address = shown.table.set_index("address")["samples"]
    assert by_address.loc[first] == 1
    assert by_address.loc[second] == 2
    assert by_address.sum() == 3
    assert any("has 2 functions of this name" in said for said in shown.remarks)
    files = [Path(name).name for name in shown.table["source_file"].unique()]
    assert files == ["main.c", "other.c"]


@pytest.mark.parametrize(
    ("flags", "at"),
    [([], 0), (["-falign-functions=4096"], 0x7000_0000_0000)],
    ids=["no address", "both begin a page"],
)
def test_samples_that_fit_two_functions_stand_with_the_first_and_that_is_said(
    tmp_path: Path, flags: list[str], at: int
) -> None:
    job = compiled(tmp_path, *flags)
    shown = annotate(hits(job, [0, 0], at), "work")
    assert shown.table.set_index("address")["samples"].loc[address_of(job, " t work")[0]] == 2
    assert "Samples that may be in either are with the first." in shown.remarks


def test_without_debug_information_there_are_instructions_and_no_source(tmp_path: Path) -> None:
    job = compiled(tmp_path, "-g0", "-no-pie")
    shown = annotate(hits(job, [0], address_of(job, " T main")[0], "main"), "main")
    assert shown.table["instruction"].notna().all()
    assert shown.table["source_line"].isna().all()
    assert shown.table["source_text"].isna().all()
    assert shown.remarks == ()


def test_demangled_names_are_found(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler: apt-get install g++")
    (tmp_path / "job.cpp").write_text(
        "namespace geo { template <class T> __attribute__((noinline)) T half(T x)"
        " { return x / 3; }\n struct S { int operator()(int a) const; };\n"
        " int S::operator()(int a) const { return a * 7; } }\n"
        "int main(int n, char **) { return geo::half(n) + geo::S()(n); }\n"
    )
    subprocess.run(["g++", "-O1", "-o", "job", "job.cpp"], check=True, cwd=tmp_path)
    for name in ("geo::half<int>", "geo::S::operator()"):
        shown = annotate(hits(tmp_path / "job", [0], 0, name), name)
        assert shown.table["instruction"].notna().all(), shown.remarks
        assert shown.table["samples"].iloc[0] == 1


# --- what cannot be disassembled: a sentence, and the offsets -------------------------------------


def offsets_only(shown: module.Annotation, sentence: str) -> None:
    assert any(sentence in said and "only the offsets" in said for said in shown.remarks), (
        shown.remarks
    )
    assert list(zip(shown.table["offset"], shown.table["samples"], strict=True)) == [(4, 2), (9, 1)]
    assert shown.table["instruction"].isna().all()
    assert shown.table["source_text"].isna().all()
    assert list(shown.table["percent"].round(1)) == [66.7, 33.3]
    assert sentence in str(shown)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("[kernel.kallsyms]", "is the running kernel"),
        ("[vdso]", "is no file that can be disassembled"),
        ("[unknown]", "is no file that can be disassembled"),
        ("//anon", "is not here"),
        ("/nowhere/libmissing.so", "is not here (removed since"),
        ("/nowhere/job (deleted)", "/nowhere/job is not here"),
        ("inlined", "is no file"),
    ],
)
def test_what_is_no_file_gives_the_offsets(name: str, sentence: str) -> None:
    offsets_only(annotate(hits(Path(name), [4, 9, 4]), "work"), sentence)


def test_a_file_that_is_no_program_gives_the_offsets(tmp_path: Path) -> None:
    path = tmp_path / "job"
    for content in (b"", b"hello\n", bytes(range(256)) * 40, b"\x7fELF\x02\x01\x01" + bytes(60)):
        path.write_bytes(content)
        shown = annotate(hits(path, [4, 9, 4]), "work")
        offsets_only(shown, str(path))
    path.unlink()
    path.mkdir()
    offsets_only(annotate(hits(path, [4, 9, 4]), "work"), "is not here")


def test_without_objdump_the_offsets_come_and_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = compiled(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    shown = annotate(hits(job, [4, 9, 4]), "work")
    offsets_only(shown, "is not installed ('apt-get install binutils'")


def test_a_tool_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = compiled(tmp_path)
    (tmp_path / "nm").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "nm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(disassembly, "_TOOL_TIMEOUT_S", 0.1)
    offsets_only(annotate(hits(job, [4, 9, 4]), "work"), "nm did not finish")


def test_a_program_that_was_changed_since_is_reported(tmp_path: Path) -> None:
    job = compiled(tmp_path)
    began = address_of(job, " t work")[0]
    (tmp_path / "job").unlink()
    moved = annotate(hits(compiled(tmp_path), [0], began + 0x104), "work")
    assert any("the file was changed since" in said for said in moved.remarks)
    shown = annotate(hits(job, [1, 10_000], began), "work")
    assert any("2 of 2 samples are on no instruction" in said for said in shown.remarks)
    assert shown.table["samples"].sum() == 2  # none is lost


def test_a_deleted_program_whose_name_is_taken_is_doubted(tmp_path: Path) -> None:
    job = compiled(tmp_path)
    shown = annotate(hits(Path(f"{job} (deleted)"), [0]), "work")
    assert any("was deleted while it ran" in said for said in shown.remarks)
    assert shown.table["instruction"].notna().all()


def test_source_that_is_missing_or_newer_is_reported(tmp_path: Path) -> None:
    job = compiled(tmp_path, "-g")
    (tmp_path / "main.c").unlink()
    os.utime(tmp_path / "other.c", (4_000_000_000, 4_000_000_000))
    shown = annotate(hits(job, [0], address_of(job, " t work")[0]), "work")
    said = " ".join(shown.remarks)
    assert f"Source that is not here: {tmp_path / 'main.c'}." in said
    assert f"Source changed after the object was built: {tmp_path / 'other.c'}." in said


# --- which samples -------------------------------------------------------------------------------


def test_samples_without_offset_are_counted() -> None:
    shown = annotate(hits(Path("/nowhere/a"), [-1, 4, -1]), "work")
    assert "2 of 3 samples have no offset in the function." in shown.remarks
    assert list(zip(shown.table["offset"], shown.table["samples"], strict=True)) == [
        (-1, 2),
        (4, 1),
    ]
    shown = annotate(hits(Path("/nowhere/a"), [-1]), "work")
    assert any("-F +symoff" in said for said in shown.remarks)


def test_one_of_several_objects_is_chosen() -> None:
    made = table(
        [
            sample("work", offset=4, object="/lib/a.so"),
            sample("work", offset=4, object="/lib/b.so"),
            sample("work", offset=9, object="/lib/b.so"),
        ]
    )
    shown = annotate(made, "work")
    assert shown.object == "/lib/b.so"
    assert "The function has samples in other objects too: /lib/a.so (1)." in shown.remarks
    assert annotate(made, "work", "a.so").table["samples"].sum() == 1
    with pytest.raises(UserError, match=r"unknown object of 'work' '/lib/c\.so': did you mean"):
        annotate(made, "work", "/lib/c.so")
