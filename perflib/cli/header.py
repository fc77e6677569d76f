"""The command that writes the header for C and C++: header."""

from __future__ import annotations

import click

from perflib.cli.output import examples, put


@click.command(
    epilog=examples(
        "perflib header > perflib_bracket.h",
        "PERFLIB_SAMPLES=samples.csv ./my-benchmark",
        "perflib analyse bracketed --samples samples.csv",
    )
)
def header() -> None:
    """Print perflib_bracket.h, for benchmarks in C and C++.

    One file without dependencies: PERFLIB_SAMPLE("name") { ... } writes samples between probes,
    which 'perflib analyse bracketed' reads, and 'perflib run bracketed' takes.
    """
    from perflib.kernels.single_header import single_header

    for line in single_header().splitlines():
        put(line)
