"""Lists of nodes: from a file, or from Slurm's ``sinfo``."""

from __future__ import annotations

import csv
import io
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perflib.model.errors import UserError, choose
from perflib.model.escape import csv_cell, from_csv_cell

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_HOSTLIST = re.compile(r"[A-Za-z0-9._-]+\[[0-9,-]+\]")  # Slurm's short form of several names
_RESERVED = ("node", "hostname")
_TITLES = ("nodes", "name", "host", "hostname", "machine")  # what a list may have above its names
_MOST_NODES = 100_000

_SINFO = ("node", "hostname", "partition", "features", "cpus", "memory_mb")
_SINFO_FORMAT = "%N|%n|%P|%f|%c|%m"  # of the node: its name, its host's, and so on


@dataclass(frozen=True)
class Node:
    """A node as the scheduler names it, the name that its kernel reports, and what else is known.

    ``attributes`` are texts by name, such as the model and the rack.
    """

    name: str
    hostname: str
    attributes: Mapping[str, str] = field(default_factory=dict)


def read(path: Path) -> list[Node]:
    """The nodes of a file.

    Raises
    ------
    UserError
        It cannot be read, or is no list of nodes (`parse`).
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        msg = f"the list of nodes {path} cannot be read: {why}"
        raise UserError(msg) from error
    return parse(text, str(path))


def parse(text: str, origin: str) -> list[Node]:
    r"""The nodes of a text: a CSV table with a column ``node``, or a name a line.

    The column ``hostname`` is the name that a node's kernel reports, where that differs; all
    further columns are attributes. A line that begins with # is left out.

    >>> parse("node,rack\nn1,A\nn2,B\n", "here")[0]
    Node(name='n1', hostname='n1', attributes={'rack': 'A'})
    >>> [node.name for node in parse("n1\nn2\n", "here")]
    ['n1', 'n2']

    Raises
    ------
    UserError
        It is empty, a name is none of a host or is given twice, or a row has too many cells.
    """
    kept = "".join(line for line in text.splitlines(True) if not line.startswith("#"))
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(kept)) if row]
    except csv.Error as error:
        msg = f"{origin} is no CSV: {error}"
        raise UserError(msg) from error
    rows = [row for row in rows if any(row)]
    if not rows:
        msg = f"{origin} names no nodes: write a name a line, or a CSV table with a column 'node'"
        raise UserError(msg)
    header = rows[0]
    if "node" in header:
        return _checked(_named(header, rows[1:], origin), origin)
    if len(header) > 1:
        msg = f"{origin} has no column 'node': {choose('column', 'node', header)}"
        raise UserError(msg)
    if header[0].lower() in _TITLES:
        msg = f"{origin} begins with {header[0]!r}: call that column 'node', or leave the line out"
        raise UserError(msg)
    return _checked(_named(["node"], rows, origin), origin)


def from_sinfo(text: str) -> list[Node]:
    """The nodes of ``sinfo``'s output; a node of several partitions comes once."""
    found: dict[str, Node] = {}
    for line in filter(str.strip, text.splitlines()):
        cells = [cell.strip() for cell in line.split("|")]
        known = {
            name: cell
            for name, cell in zip(_SINFO, cells, strict=False)
            if cell not in ("", "(null)")
        }
        if name := known.pop("node", ""):
            found.setdefault(name, Node(name, known.pop("hostname", name), known))
    return _checked(list(found.values()), "sinfo")


def query_sinfo(partition: str | None) -> list[Node]:
    """The nodes that Slurm has, or those of one partition.

    Raises
    ------
    UserError
        There is no ``sinfo`` here, it fails, or it names none.
    """
    words = ["sinfo", "--noheader", "--Node", f"--format={_SINFO_FORMAT}"]
    if partition:
        words.append(f"--partition={partition}")
    try:
        output = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=120, check=False
        )
    except FileNotFoundError:
        msg = "there is no sinfo here: call perflib where the scheduler's clients are"
        raise UserError(msg) from None
    except subprocess.TimeoutExpired:
        msg = "sinfo did not answer within two minutes"
        raise UserError(msg) from None
    if output.returncode:
        msg = f"sinfo fails: {output.stderr.strip() or f'status {output.returncode}'}"
        raise UserError(msg)
    return from_sinfo(output.stdout)


def as_csv(nodes: Sequence[Node]) -> str:
    """The nodes as the table that `parse` reads; a cell that no node has is empty."""
    names = dict.fromkeys(name for node in nodes for name in node.attributes)
    with io.StringIO(newline="") as text:
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow([*_RESERVED, *map(csv_cell, names)])
        for node in nodes:
            cells = [csv_cell(node.attributes.get(name, "")) for name in names]
            rows.writerow([node.name, node.hostname, *cells])
        return text.getvalue()


def _named(header: list[str], rows: Iterable[list[str]], origin: str) -> list[Node]:
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        msg = f"{origin} has two columns {twice!r}"
        raise UserError(msg)
    nodes = []
    for number, row in enumerate(rows, 1):
        if len(row) > len(header):
            msg = f"{origin}: node {number} has {len(row)} cells for {len(header)} columns: {row!r}"
            raise UserError(msg)
        cells = dict(zip(header, map(from_csv_cell, row), strict=False))
        name = cells.pop("node", "")
        hostname = cells.pop("hostname", "") or name
        attributes = {key: cell for key, cell in cells.items() if key and cell}
        nodes.append(Node(name, hostname, attributes))
    return nodes


def _checked(nodes: list[Node], origin: str) -> list[Node]:
    """They are there, each is one host's name, and none is there twice."""
    if not nodes:
        msg = f"{origin} names no nodes"
        raise UserError(msg)
    if len(nodes) > _MOST_NODES:
        msg = f"{origin} names {len(nodes)} nodes; a plan takes at most {_MOST_NODES}"
        raise UserError(msg)
    seen: set[str] = set()
    for number, node in enumerate(nodes, 1):
        for name in (node.name, node.hostname):
            if not _NAME.fullmatch(name):
                msg = f"{origin}: node {number} is called {name!r}, which is no host's name"
                if _HOSTLIST.fullmatch(name):
                    msg += f": write each by itself ('scontrol show hostnames {name}' lists them)"
                raise UserError(msg)
        if node.name in seen:
            msg = f"{origin} names {node.name!r} twice: leave one line of it"
            raise UserError(msg)
        seen.add(node.name)
    return nodes
