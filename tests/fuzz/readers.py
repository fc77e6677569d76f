"""Coverage-guided fuzzing of the C readers, by clang's libFuzzer under its sanitizers.

``python -m tests.fuzz.readers --seconds 600`` fuzzes one reader after the other, each for that
long, and ends with status 1 at the first finding; the input that shows it is then in the corpus,
where ``make test`` replays it. ``--merge`` adds to the corpus what covers more than it did.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from perflib.kernels.sources import BASE_FLAGS
from perflib.store import paths
from tests.instruments.perf import perf_files as made
from tests.instruments.perf.perf_texts import NAMES, RECORDED

FOLDER = Path(__file__).parent
CORPUS = FOLDER / "corpus"
READERS = ("perf_data", "perf_script", "thread_bins", "thread_states")
# Leaks cannot be looked for under every tracer and container; the harness counts memory itself.
NO_LEAKS = {"ASAN_OPTIONS": "detect_leaks=0"}
# The sanitizer's own memory grows with the runs; what a reader takes is bounded in fuzzed.h.
_LITTLE_MEMORY = {"ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=16:malloc_context_size=4"}
_SANITIZERS = "address,undefined"
_LONGEST, _SLOWEST_S, _MOST_MB = 16384, 20, 256
_INSTALL = "'apt-get install clang libclang-rt-14-dev' (Debian 12; later ones: their version)"


def compiled(
    compiler: str, folder: Path, reader: str, *more: str | Path, sanitizers: str = _SANITIZERS
) -> Path:
    """Compile a reader with what feeds it, under sanitizers that end the program at a finding.

    Raises
    ------
    subprocess.CalledProcessError
        The compiler refuses; its words are in ``stderr``.
    """
    program = folder / reader
    line = [compiler, *BASE_FLAGS, "-Werror", "-O1", "-g", f"-fsanitize={sanitizers}"]
    line += ["-fno-sanitize-recover=all", f"-I{paths.kernels_dir()}", f"-I{FOLDER}"]
    inputs = [FOLDER / f"{reader}.c", *more]
    subprocess.run([*line, *inputs, "-o", program], capture_output=True, text=True, check=True)
    return program


def _seeds(reader: str, folder: Path) -> None:
    """Inputs to begin with, where chance would take long to find the first one that is read."""
    folder.mkdir()
    if reader == "perf_script":
        for name in NAMES:
            (folder / name).write_bytes(b"\x00\x10\x08" + (RECORDED / name).read_bytes())
    if reader == "perf_data":
        event = made.FileEvent(ids=(1,), sample_type=0x107FF, read_format=31)
        records = [
            made.id_index([(1, 0), (2, 1)]),
            made.comm(event, b"some name", pid=1, tid=2),
            made.task(event, 7, pid=1, tid=2, ppid=3, ptid=4),
            made.mmap2(event, b"/lib/x", pid=1, address=2**63, size=2**62),
            made.mmap(event, b"/lib/y", pid=1, address=2**63, size=2**62),
            made.sample(event, 1, chain=[1, 2], counts=[1, 2], raw=bytes(40)),
            made.lost_record(event, 1, 3, time_ns=4),
            made.lost_samples(event, 1, 3),
            made.cpu_switch(event, tid=2, other=4, time_ns=5),
            made.finished_round(),
            made.record(71, (16).to_bytes(8, "little")) + bytes(16),
            made.record(66, (3).to_bytes(4, "little")) + bytes(8),
        ]
        head = bytes([1, 0xFF, 0x07, 0x01, 63, 1, *(3, 0, 2, 8, 1, 12, 0, 3), 99, 0, 4])
        for number, one in enumerate([*records, b"".join(records)]):
            (folder / str(number)).write_bytes(head + one)


def _clang() -> str:
    names = ["clang", *(f"clang-{n}" for n in range(22, 13, -1))]
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        sys.exit(f"no clang is on PATH: {_INSTALL}")
    return path


def _fuzz(program: Path, corpora: list[Path], seconds: int, findings: Path) -> int:
    """Run the fuzzer; what it found new goes to the first folder. Its exit status."""
    line: list[str | Path] = [program, f"-max_total_time={seconds}", f"-max_len={_LONGEST}"]
    line += [f"-timeout={_SLOWEST_S}", f"-malloc_limit_mb={_MOST_MB}", "-rss_limit_mb=0"]
    line += ["-use_value_profile=1", "-print_final_stats=1", "-verbosity=0"]
    line += [f"-artifact_prefix={findings}/found-", *corpora]
    return subprocess.run(line, env=os.environ | _LITTLE_MEMORY, check=False).returncode


def main() -> None:
    """Fuzz the readers that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.readers")
    parser.add_argument("--reader", action="append", choices=READERS, help="all, if none is named")
    parser.add_argument("--seconds", type=int, default=600, help="for each reader")
    parser.add_argument("--merge", action="store_true", help="add what is new to the corpus")
    chosen = parser.parse_args()
    clang = _clang()
    for reader in chosen.reader or READERS:
        with tempfile.TemporaryDirectory(prefix="perflib-fuzz-") as name:
            folder, known = Path(name), CORPUS / reader
            known.mkdir(parents=True, exist_ok=True)
            try:
                program = compiled(clang, folder, reader, sanitizers=f"fuzzer,{_SANITIZERS}")
            except subprocess.CalledProcessError as error:
                sys.exit(f"{clang} does not compile {reader} ({_INSTALL}):\n{error.stderr}")
            new, seeds = folder / "new", folder / "seeds"
            new.mkdir()
            _seeds(reader, seeds)
            print(f"--- {reader}, {chosen.seconds} s", flush=True)
            if _fuzz(program, [new, known, seeds], chosen.seconds, known):
                sys.exit(
                    f"{reader}: the input is in {known}; give it a name that says what it shows"
                )
            if chosen.merge:
                line: list[str | Path] = [
                    program,
                    "-merge=1",
                    f"-max_len={_LONGEST // 16}",
                    f"-artifact_prefix={folder}/",
                    known,
                    seeds,
                    new,
                ]
                subprocess.run(line, env=os.environ | _LITTLE_MEMORY, check=True)


if __name__ == "__main__":
    main()
