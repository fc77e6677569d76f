"""Lists of nodes, from files and from what schedulers answered."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.fleet.nodes import Node, as_csv, from_sinfo, parse, query_sinfo, read
from perflib.model.errors import UserError

# Slurm 22.05: a node of two partitions, one whose host has another name, one without features.
SINFO = """\
node1|vm|lab*|(null)|2|2000
node1|vm|debug|(null)|2|2000
node2|vm|lab*|skylake,rack7|64|192000
"""


def test_a_table_keeps_all_that_it_says_of_a_node() -> None:
    text = "\ufeffrack,node,hostname,model\nA, n1 ,n1.farm.org,R640\n\nB,n2,,=1+1\n# n3,gone\n"
    nodes = parse(text.removeprefix("\ufeff"), "nodes.csv")
    assert nodes == [
        Node("n1", "n1.farm.org", {"rack": "A", "model": "R640"}),
        Node("n2", "n2", {"rack": "B", "model": "=1+1"}),
    ]
    assert parse(as_csv(nodes), "again") == nodes
    assert ",'=1+1" in as_csv(nodes)  # no formula for a spreadsheet


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no nodes"),
        ("# nothing\n\n", "names no nodes"),
        ("node,rack\n", "names no nodes"),
        ("nodes,rack\nn1,A\n", "did you mean 'nodes'"),
        ("hostname\nn1\n", "begins with 'hostname'"),
        ("n1\nn2\nn1\n", "names 'n1' twice"),
        ("node,node\nn1,n2\n", "two columns 'node'"),
        ("node,rack\nn1,A,B\n", "3 cells for 2 columns"),
        ("node,rack\n,A\n", "node 1 is called ''"),
        ("node[1-4]\n", "scontrol show hostnames node[1-4]"),
        ("n1; rm -rf ~\n", "no host's name"),
        ("n1 --exclusive\n", "no host's name"),
        ("-n1\n", "no host's name"),
        ("../n1\n", "no host's name"),
        ("n1\x1b[2J\n", r"'n1\x1b[2J', which is no host's name"),
        ("knoten-ä\n", "no host's name"),
        ("node,hostname\nn1,a b\n", "'a b', which is no host's name"),
    ],
)
def test_what_is_no_list_gets_a_sentence(text: str, says: str) -> None:
    with pytest.raises(UserError) as error:
        parse(text, "nodes.csv")
    assert says in str(error.value)
    assert str(error.value).startswith("nodes.csv")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"n1\xff\n")
    for name, says in (("none", "No such file"), ("bytes", "no UTF-8"), (".", "directory")):
        with pytest.raises(UserError, match=says):
            read(tmp_path / name)


@given(st.text(max_size=60))
def test_whatever_a_file_holds(text: str) -> None:
    try:
        nodes = parse(text, "any")
    except UserError:
        return
    assert parse(as_csv(nodes), "again") == nodes


def test_what_sinfo_answers() -> None:
    first, second = from_sinfo(SINFO)
    assert first == Node("node1", "vm", {"partition": "lab*", "cpus": "2", "memory_mb": "2000"})
    assert second.attributes["features"] == "skylake,rack7"
    with pytest.raises(UserError, match="sinfo names no nodes"):
        from_sinfo("\n")


def test_a_scheduler_that_is_not_there_or_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="there is no sinfo here"):
        query_sinfo(None)
    program = tmp_path / "sinfo"
    program.write_text('#!/bin/sh\necho "sinfo: error: $5" >&2; exit 1\n')
    program.chmod(0o755)
    with pytest.raises(UserError, match="sinfo fails: sinfo: error"):
        query_sinfo("no such partition")
    program.write_text('#!/bin/sh\necho "n1|h1|$4|(null)|2|20"\n')
    assert query_sinfo("batch")[0].attributes["partition"] == "--partition=batch"
