"""Results are compared on many inputs, in a process that may do anything."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from perflib.course.fix import fix
from perflib.course.fix.problems import NAMES, get
from perflib.course.fix.validation import Validated, cases
from perflib.model.errors import UserError
from tests.course.fix.edits import edited
from tests.processes import is_gone
from tests.slow import mostly_slow

INPUTS = 25
WAYS = [(name, way) for name in NAMES for way in ("", "mended", *get(name).others)]


def validated(name: str, code: str, **more: float) -> Validated:
    return fix(name).validate(code, inputs=INPUTS, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "way"), mostly_slow(WAYS, 3))
def test_every_original_and_every_solution_is_right(name: str, way: str) -> None:
    problem = fix(name)
    found = validated(name, problem.solution(way) if way else problem.code)
    assert found, found
    assert found.inputs == INPUTS + len(problem.problem.always)
    assert "unchanged" in found.says


def test_right_answers_of_other_kinds_are_right() -> None:
    counted = edited(
        "false_sharing",
        ("  for (int64_t i", "  int64_t found = 0;\n  for (int64_t i"),
        (
            "      atomic_fetch_add_explicit(&tallies[thread].found, 1, memory_order_relaxed);\n}",
            "      found++;\n  atomic_fetch_add(&tallies[thread].found, found);\n}",
        ),
    )
    assert validated("false_sharing", counted)
    locked = "  pthread_mutex_lock(&formula_lock);\n  corrected += n;\n"
    locked += "  pthread_mutex_unlock(&formula_lock);\n"
    at_once = edited(
        "event_loop_lock",
        ("    pthread_mutex_lock(&formula_lock);\n", ""),
        ("    corrected++;\n", ""),
        ("    pthread_mutex_unlock(&formula_lock);\n  }\n", f"  }}\n{locked}"),
    )
    assert validated("event_loop_lock", at_once)


# --- wrong answers -------------------------------------------------------------------------------

WRONG = {
    "additions are lost": (
        "event_loop_lock",
        [
            ("    pthread_mutex_lock(&formula_lock);\n", ""),
            ("    pthread_mutex_unlock(&formula_lock);\n", ""),
            ("static int64_t corrected", "static volatile int64_t corrected"),
        ],
        "jets_corrected()",
    ),
    "the formula's last term is dropped": (
        "event_loop_lock",
        [("i < own->terms; i++", "i < own->terms - 1; i++")],
        "the correction of jet 0 of thread 0",
    ),
    "more terms than there is room for": (
        "event_loop_lock",
        [(" && own->terms < MOST_TERMS", "")],
        "crashes|the correction|does not",
    ),
    "one item too many": (
        "false_sharing",
        [("i < n", "i <= n")],
        r"kinds = \[\[\], \[\]\].*crashes \(SIGSEGV\)",
    ),
    "one counter for both": (
        "false_sharing",
        [("&tallies[thread]", "&tallies[0]")],
        r"tally_found\(.\) after 20 calls .* is \d+, not \d+",
    ),
    "another value each time": (
        "false_sharing",
        [
            ("&tallies[thread].found, 1,", "&tallies[thread].found, calls++ % 7 == 6 ? 2 : 1,"),
            ("static tally tallies", "static _Thread_local int calls;\nstatic tally tallies"),
        ],
        "tally_found",
    ),
    "no room for the shift": (
        "aliased_buffers",
        [("(memory + bytes)", "(memory + bytes + 2048)")],
        "crashes|next to",
    ),
    "memory that is not cleared": (
        "aliased_buffers",
        [("  memset(memory, 0, 2 * bytes);\n", "")],
        r"rank\[0\]",
    ),
    "a step when there is none to take": (
        "aliased_buffers",
        [
            (
                "for (uint32_t step = 1; step <= steps; step++) {",
                "uint32_t step = 0;\n  do {\n    step++;",
            ),
            ("    at = next[at];\n  }", "    at = next[at];\n  } while (step < steps);"),
        ],
        r"rank\[0\] is 1, not 0",
    ),
    "a pointer to what is gone": (
        "page_chase",
        [
            ("memcpy(one->raw, raw + i * RAW_BYTES, RAW_BYTES)", "one->raw = raw + i * RAW_BYTES"),
            ("unsigned char raw[RAW_BYTES];", "const unsigned char *raw;"),
        ],
        r"crashes \(SIGSEGV\)",
    ),
    "raw data left out": (
        "page_chase",
        [("    memcpy(one->raw, raw + i * RAW_BYTES, RAW_BYTES);\n", "")],
        r"store_raw\(s, 0, 0\)",
    ),
    "32 bits for energies": (
        "page_chase",
        [("  int64_t sum", "  int sum")],
        r"store_walk\(s, 0, 2\)",
    ),
    "no room for the last record": (
        "page_chase",
        [("((size_t)n + 1) * sizeof(record)", "(size_t)(n > 2 ? n - 1 : n) * sizeof(record)")],
        "crashes",
    ),
    "freed twice": (
        "page_chase",
        [("{ free(s->records); }", "{\n  free(s->records);\n  free(s->records);\n}")],
        "crashes",
    ),
    "channels that are not ours": (
        "large_switch",
        [("  if (channel >= CHANNELS) // no channel of ours\n    return 0;\n", "")],
        r"channel \d+\) is|crashes",
    ),
    "one term too few": (
        "large_switch",
        [("k < TERMS", "k < TERMS - 1")],
        "the calibration of hit 0",
    ),
}


@pytest.mark.parametrize("what", mostly_slow(list(WRONG), 3))
def test_a_wrong_answer_is_refused_with_the_first_input_that_fails(what: str) -> None:
    name, changes, said = WRONG[what]
    solution = "mended" if name == "large_switch" else ""
    found = validated(name, edited(name, *changes, solution=solution))
    assert not found, what
    assert found.failing == list(cases(get(name), 1, INPUTS))[found.inputs]
    assert re.search(said, found.says), found.says
    assert len(found.says) < 1000


def test_the_first_inputs_are_small_and_the_same_each_time() -> None:
    for name in NAMES:
        problem = get(name)
        once, again = (list(cases(problem, 3, INPUTS)) for _ in range(2))
        assert once == again != list(cases(problem, 4, INPUTS))
        assert len(problem.words(once[0])) <= 12
        for case in once:
            words = problem.words(case)
            assert all(0 <= word < 2**64 for word in [*words, *problem.expected(case)])


# --- code that does anything ----------------------------------------------------------------------


def doing(what: str, head: str = "") -> str:
    """Code that does something the first time that it is called."""
    once = f"{head}\nstatic int begun;\n"
    return edited(
        "aliased_buffers",
        ("typedef struct {", f"{once}typedef struct {{"),
        (
            "  const uint32_t *next = c->next;",
            f"  if (begun++ == 4) {{ {what} }}\n  const uint32_t *next = c->next;",
        ),
    )


WAITS = """
#include <pthread.h>
#include <unistd.h>
static void *waits(void *p) { for (;;) pause(); return p; }
"""
BAD = {
    "crash": ("*(volatile int *)8 = 1;", "", r"crashes \(SIGSEGV\)"),
    "exit": ("exit(0);", "", r"ends the process \(exit status 0\)"),
    "failed exit": ("_exit(3);", "#include <unistd.h>", r"ends the process \(exit status 3\)"),
    "says why it aborts": ("assert(begun < 5);", "#include <assert.h>", r"It said: .*begun < 5"),
    "signal to itself": ("raise(SIGKILL);", "#include <signal.h>", r"crashes \(SIGKILL\)"),
    "thread": (
        "pthread_t t; pthread_create(&t, NULL, waits, NULL);",
        WAITS,
        "leaves 1 threads? running",
    ),
}


@pytest.mark.parametrize("how", BAD)
def test_code_that_crashes_or_ends_costs_a_sentence(how: str) -> None:
    what, head, said = BAD[how]
    found = validated("aliased_buffers", doing(what, head))
    assert not found
    assert re.search(said, found.says), found.says


def test_code_that_does_not_end_is_killed() -> None:
    began = time.monotonic()
    found = validated("aliased_buffers", doing("for (;;) begun = 5;"), patience_s=4.0)
    assert not found
    assert "does not end" in found.says
    assert time.monotonic() - began < 60
    assert found.failing == get("aliased_buffers").always[2]  # each input is tried twice


def test_a_flood_of_words_ends_at_a_limit() -> None:
    flood = doing(
        "for (;;) fputs(words, stderr);", "#include <stdio.h>\nstatic char words[1 << 16] = {1};"
    )
    flood = flood.replace("= {1};", "= {1};\n#define words (memset(words, 'x', 65535), words)\n")
    found = validated("aliased_buffers", flood, patience_s=4.0)
    assert not found
    assert len(found.says) < 1000


def test_what_code_forks_is_gone_afterwards(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    forks = doing(
        f"int pid = fork(); if (pid == 0) {{ setsid(); for (;;) pause(); }} "
        f'FILE *f = fopen("{note}", "w"); fprintf(f, "%d", pid); fclose(f);',
        "#include <stdio.h>\n#include <unistd.h>",
    )
    assert validated("aliased_buffers", forks)
    assert is_gone(int(note.read_text()))


# --- code that is none ----------------------------------------------------------------------------


def test_the_compilers_first_errors_name_lines_of_the_code() -> None:
    code = fix("false_sharing").code
    line = code.count("\n") + 1
    found = validated("false_sharing", code + "int broken(void) { return missing; }\n")
    assert not found
    assert found.inputs == 0
    assert found.failing is None
    assert f"false_sharing.c:{line}:" in found.says
    assert "missing" in found.says
    assert "perflib-scratch" not in found.says


def test_a_function_that_is_not_there_is_named() -> None:
    code = edited(
        "false_sharing", ("int64_t tally_found(int thread) {", "int64_t tally_fund(int thread) {")
    )
    found = validated("false_sharing", code)
    assert not found
    assert "tally_found" in found.says
    code = edited(
        "false_sharing",
        ("      atomic_fetch_add_explicit(", "      nowhere(1), atomic_fetch_add_explicit("),
    )
    found = validated("false_sharing", "int nowhere(int);\n" + code)
    assert not found
    assert "nowhere" in found.says


@pytest.mark.parametrize(
    "text", ["\n", "int x;\n", "/* never closed\n", "#error no\n", "}\n" * 500]
)
def test_any_other_text_does_not_compile(text: str) -> None:
    found = validated("false_sharing", text)
    assert not found
    assert "does not compile" in found.says
    assert len(found.says.splitlines()) <= 6


def test_a_source_that_cannot_be_read_is_a_users_mistake(tmp_path: Path) -> None:
    binary, large = tmp_path / "a.out", tmp_path / "large.c"
    binary.write_bytes(b"\x7fELF\xff\xfe")
    large.write_text("\n" * (1 << 20) + "x")
    problem = fix("false_sharing")
    for given, said in (
        (tmp_path / "none.c", "No such file"), ("nowhere.c", "No such file"),
        (tmp_path, "directory"), (binary, "no text"), (large, "1 MiB"), ("\0\n", "no text"),
        ("a\ud800\n", "no text"), ("", "directory"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=said):
            problem.validate(given)


def test_the_processes_of_validation_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert validated("aliased_buffers", fix("aliased_buffers").code)
    assert list(tmp_path.iterdir()) == []
