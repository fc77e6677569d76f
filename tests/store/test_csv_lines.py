"""Each line of a CSV file is a sample, a comment, before the header, or refused by its number."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perflib.model.errors import UserError
from perflib.store.reading import read_table

TABLE = "round,what,x\n0,a,1.5\n1,b,2.5\n"


def written(folder: Path, data: str | bytes) -> Path:
    path = folder / "table.csv"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        TABLE,
        TABLE.replace(",", ";"),
        TABLE.replace(",", "\t"),
        TABLE.replace("\n", "\r\n"),
        "\ufeff" + TABLE,
        "made by a script\n\n" + TABLE,
        "# made by a script, on a day\n" + TABLE,
        TABLE.replace("1,b", "# paused\n\n1,b"),
        TABLE.replace(",a,", ',"a",') + "\n\n",
    ],
)
def test_the_same_table(tmp_path: Path, text: str) -> None:
    found = read_table(written(tmp_path, text))
    assert found.to_dict("list") == {"round": [0, 1], "what": ["a", "b"], "x": [1.5, 2.5]}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (TABLE + "round,what,x,y\n0,a,1,2\n", r"line 4 is of 4 columns where the header has 3"),
        (TABLE + "round;what;x\n0;a;1\n", r"line 4 is of 1 column where"),
        (TABLE + TABLE, r"line 4 is the header again"),
        (TABLE + "Killed\n", r"line 4 is of 1 column .*'Killed'"),
        (TABLE + "2,c\n" + TABLE, r"line 4 is of 2 columns"),
        (TABLE.replace("0,a", '0,"a\nb"') + "2,c\n", r"line 5 is of 2 columns"),
        (TABLE.replace("\n", "\r\n") + "2,c,3\n", r"line 4 ends otherwise"),
        (TABLE.replace("b", "é").encode("latin-1"), r"line 3 is no UTF-8 \(byte 0xe9"),
        (TABLE.encode("utf-16"), "is UTF-16"),
        ("# nothing\n\n", "no lines but comments"),
    ],
)
def test_what_is_no_sample_is_named(tmp_path: Path, data: str | bytes, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_table(written(tmp_path, data))


@pytest.mark.parametrize("name", ["a[1]", "a*", "a?"])
def test_a_name_is_no_pattern(tmp_path: Path, name: str) -> None:
    """Each would match the other file, too."""
    for stem, value in ((name, 1), ("a1", 2)):
        (tmp_path / f"{stem}.csv").write_text(f"round,x\n0,{value}\n")
        source = f"(SELECT {value} AS x)"
        with duckdb.connect() as connection:
            connection.execute(f"COPY {source} TO '{tmp_path}/{stem}.parquet' (FORMAT parquet)")
    for suffix in ("csv", "parquet"):
        assert read_table(tmp_path / f"{name}.{suffix}")["x"].tolist() == [1]


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6))
def test_no_row_is_lost_whatever_its_texts(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    out = io.StringIO()
    maker = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    maker.writerows([("first", "second"), *rows])
    path = written(tmp_path, out.getvalue())
    if ("first", "second") in rows:
        with pytest.raises(UserError, match="is the header again"):
            read_table(path)
    else:
        assert len(read_table(path)) == len(rows)
