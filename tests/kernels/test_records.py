"""Structs as numpy dtypes: the offsets and sizes are the compiler's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perflib import kernels
from perflib.kernels import record, records
from perflib.model.errors import UserError
from perflib.store import paths

SOURCE = Path(__file__).parents[1] / "kernels_c" / "recorded.c"


HEADER = "// @interface\ntypedef struct { int8_t a; int64_t b; } small;\n// @end\n"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "header.h").write_text(HEADER)
    (tmp_path / "empty.h").write_text("")
    (tmp_path / "odd.h").write_text("// @interface\nnonsense\n// @end\n")
    shutil.copy(SOURCE, tmp_path)
    monkeypatch.setenv("PERFLIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(paths, "kernels_dir", lambda: tmp_path)
    records._of_file.cache_clear()


def test_c_writes_what_numpy_reads() -> None:
    kernel = kernels.load("recorded")
    dtype = record(kernel.build, "mixed")
    rows = np.zeros(2, dtype)
    kernel.lib.fill(kernel.ffi.from_buffer("mixed[]", rows, require_writable=True))
    row: Any = rows[1]
    assert (row["small"], row["wide"], row["name"], row["good"]) == (-7, 2.5, b"five", True)
    assert row["counts"].tolist() == [[1, 2, 3], [4, 5, 65535]]
    assert row["points"].tolist() == [(1, 2, 3), (4, 5, 255)]
    assert (row["shade"], row["place"], row["last"]) == (1, -1, -9)
    assert [dtype[name].kind for name in ("shade", "good")] == ["u", "b"]
    assert dtype.itemsize == kernel.ffi.sizeof("mixed")
    assert record("recorded", "mixed") == dtype  # without a compiler
    assert record("recorded", "struct tagged") == np.dtype([("a", "i4")])


@pytest.mark.parametrize(
    ("struct", "match"),
    [
        (
            "pointing",
            r"^to of pointing of 'recorded' has the type 'int64_t \*', which",
        ),
        ("bits", r"bits of 'recorded' has bits of an integer \(a\)"),
        ("nested", r"both of nested of 'recorded' has the type"),
        ("wide", r"much of wide of .* has the type 'long double'"),
        ("open_end", r"rest of open_end of .* has the type"),
        ("hidden", r"hidden of 'recorded' has the type"),
        ("mixt", r"unknown struct of 'recorded' 'mixt': did you mean 'mixed'"),
        ("colour", r"unknown struct of"),
    ],
)
def test_what_numpy_cannot_hold_is_refused(struct: str, match: str) -> None:
    with pytest.raises(UserError, match=match):
        record("recorded", struct)


# --- headers --------------------------------------------------------------------------------------


def declare(folder: Path, files: dict[str, str]) -> None:
    """Files whose text is their includes, and ``| `` before what they declare."""
    for name, text in files.items():
        includes, _, own = text.partition("| ")
        lines = [f'#include "{header}"' for header in includes.split()]
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([*lines, *(["// @interface", own, "// @end"] * bool(own))]))


def test_a_header_is_declared_after_those_that_it_includes(tmp_path: Path) -> None:
    declare(
        tmp_path,
        {
            "common/a.h": "z.h| typedef struct { zs first; } as;",
            "common/z.h": "silent.h common/m.h| typedef struct { ms first; } zs;",
            "common/m.h": "| typedef struct { int32_t number; } ms;",
            "common/silent.h": "",
            "own.c": "common/a.h common/m.h stdio.h| typedef struct { as all; ms one; } mine;",
        },
    )
    headers = records.included([tmp_path / "own.c"])
    assert [header.name for header in headers] == ["silent.h", "m.h", "z.h", "a.h"]
    assert record("own", "mine")["all"]["first"]["first"].names == ("number",)
    assert record("a", "as") == record("own", "mine")["all"]


def test_a_header_that_is_named_in_several_ways_is_declared_once(tmp_path: Path) -> None:
    declare(
        tmp_path,
        {
            "common/m.h": "| typedef struct { int32_t number; } ms;",
            "common/n.h": "m.h| typedef struct { ms first; } ns;",
            "tools/own.c": "../common/m.h common/m.h ../common/n.h| typedef struct { ns n; } mine;",
        },
    )
    path = tmp_path / "tools" / "own.c"
    assert [header.name for header in records.included([path])] == ["m.h", "n.h"]
    assert records.declarations(path).count("ms;") == 1
    assert record("own", "mine").names == ("n",)


def test_headers_that_include_each_other_come_to_an_end(tmp_path: Path) -> None:
    declare(tmp_path, {"common/p.h": "q.h| int p(void);", "common/q.h": "p.h| int q(void);"})
    assert [header.name for header in records.included([tmp_path / "common/p.h"])] == ["q.h"]
    declare(tmp_path, {"own.c": "common/p.h| int own(void);"})
    text = records.declarations(tmp_path / "own.c")
    assert [text.count(name) for name in ("p(", "q(", "own(")] == [1, 1, 1]
    assert text.index("own(") > max(text.index("p("), text.index("q("))
