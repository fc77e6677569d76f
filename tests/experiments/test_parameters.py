"""What an experiment's own rules refuse; bounds, choices and names are tests/framework's."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from perflib.experiments import NAMES, get
from perflib.measure.process import Worker
from perflib.model.errors import MeasurementError, UserError

REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "alias_map": [
        ({"step_bytes": 6}, "'step_bytes': 6"),
        ({"reach_bytes": 12}, "'reach_bytes': 12"),
        ({"pairs": 1040}, "'pairs': 1040"),
    ],
    "alias_offsets": [
        ({"offsets": [0, 6]}, "parameter 'offsets'"),
        ({"offsets": "8"}, "parameter 'offsets'"),
        ({"offsets": [0, -4]}, "parameter 'offsets'"),
        ({"elements": [4]}, "parameter 'elements'"),
    ],
    "allocators": [
        ({"sizes": []}, "parameter 'sizes'"),
        ({"sizes": "0"}, "parameter 'sizes'"),
        ({"timed_sizes": [1022]}, "parameter 'timed_sizes'"),
    ],
    "code_segment": [
        ({"backings": ","}, "parameter 'backings'"),
        ({"patterns": "compield"}, r"did you mean 'compiled'\? \(all: chase, compiled, line"),
        ({"sizes_kib": [64, 3]}, "parameter 'sizes_kib'"),
    ],
    "coherence": [
        ({"protocols": "cas_one_lin"}, "did you mean 'cas_one_line'"),
        ({"states": ["modifed"]}, "did you mean 'modified'"),
        ({"accesses": "store"}, "accesses: unknown access 'store'"),
        ({"protocols": [], "states": []}, "there is no state with an access"),
        ({"protocols": [], "accesses": []}, "there is no state with an access"),
    ],
    "contention": [
        ({"kinds": "tiket"}, "kinds: unknown kind 'tiket': did you mean 'ticket'"),
        ({"kinds": "all,mcs"}, "kinds: unknown kind 'all'"),
    ],
    "count": [
        ({"job": "running"}, "go together"),
        ({"job_pid": 5}, "go together"),
        ({"job": "cgroup"}, "go together"),
        ({"job": "command"}, "go together"),
    ],
    "counters": [
        ({"jobs": "0,1"}, "greater than or equal to 1"),
        ({"jobs": "two"}, "valid integer"),
        ({"sets": "sofware"}, "did you mean 'software'"),
        ({"job": "command"}, "go together"),
        ({"job_begin": "("}, "job_begin"),
    ],
    "data_tlb": [
        ({"strides": [4, 12]}, "strides: 12 is no power of two; the nearest is 16"),
        ({"strides": [16, 4]}, "strides: 4 comes after 16; give them ascending, each once"),
        ({"strides": [16, 16]}, "strides: 16 comes after 16"),
        ({"strides": [1024]}, "parameter 'strides"),
    ],
    "erasure_coding": [
        ({"implementations": "ours_tabel"}, "did you mean 'ours_table'"),
        ({"layouts": "staggered"}, "it takes 'staggered' and another one"),
        ({"layouts": "aligned,shifted"}, "it takes 'staggered' and another one"),
        ({"layouts": "aligned,stagered"}, "did you mean 'staggered'"),
        ({"block_mib": 0.001}, r"no whole pages of 4 KiB; give a multiple of 0.00390625"),
    ],
    "event_profile": [
        ({"job": "command"}, "job=command and job_command=... go together"),
        ({"job": "running"}, "job=running and job_pid=... go together, job_log=... with both"),
        ({"job": "running", "job_pid": 1}, "event=... and job_log=... go together; for all"),
        ({"job": "running", "job_log": "x"}, "job=running and job_pid=... go together"),
        ({"job_pid": 1, "job_log": "x"}, "job=running and job_pid=... go together"),
        ({"job": "running", "job_pid": 1, "event": ""}, "job=running without an event: say how l"),
        ({"job": "running", "job_pid": 1, "job_log": "x", "event": ""}, "go together; for all"),
        ({"job": "cpus"}, "job=cpus has no log and no events: event='73' must be empty"),
        ({"job": "cpus", "event": ""}, "job=cpus without an event: say how long with duration_s"),
        ({"duration_s": 3}, "duration_s is for recordings without an event"),
        ({"event": "", "slowest_percent": 1}, "slowest_percent is of events: say which"),
        ({"job": "command", "job_command": "x", "event": "(a"}, "wanted events is no regular"),
        ({"event": r"(?P<evnt>\d)"}, "the only named group is 'event', not 'evnt'"),
        ({"event": "abc"}, "events of job=program have numbers from 0: event='abc' is none"),
        ({"job": "pythia", "event": "-1"}, "of job=pythia .* event='-1'"),
        ({"event": "7|x"}, "events of job=program have numbers from 0: event='7|x'"),
        ({"costlier_core": 1, "job": "pythia"}, "costlier_core needs job=program"),
        ({"sampled_event": "cycles,instructions"}, "is several: their samples cannot be added"),
        ({"sampled_event": "{cycles,cycles}"}, "is several"),
        ({"job_begin": "begin"}, "lacks the named group 'event'"),
        ({"job_end": "("}, "event's end is no regular expression"),
    ],
    "kv_per_core": [
        ({"job": "command"}, "go together"),
        ({"job_command": "x"}, "go together"),
        ({"job_begin": "(unclosed"}, "unclosed"),
        ({"job_begin": "no group"}, "event"),
        ({"settings": {"tph": "always"}}, "did you mean 'thp'"),
    ],
    "memory_levels": [
        ({"orders": "windw"}, "orders: unknown order 'windw': did you mean 'window'"),
        ({"backings": ","}, "parameter 'backings'"),
    ],
    "memory_load": [
        ({"kinds": "tirad"}, "kinds: unknown kind 'tirad': did you mean 'triad'"),
        ({"rates": [0]}, "parameter 'rates'"),
        ({"rates": "100"}, "parameter 'rates'"),
    ],
    "bracketed": [
        ({"job": "command"}, "go together"),
    ],
    "random_calls": [
        ({"functions": 1 << 20, "function_bytes": 128}, "128 MiB of code; 64 MiB is the most"),
        ({"function_bytes": 100}, "parameter 'function_bytes': 100: .*multiple of 64"),
    ],
    "simulate": [
        ({"parts": ["cache"]}, "parts='cache' is none"),
        ({"parts": ["caches", "caches"]}, "names one twice"),
        ({"parts": ["line"]}, "parts='line' is none: caches, TLBs, lines"),
        ({"job": "command"}, "go together"),
    ],
    "threads": [
        ({"job": "running"}, "job=running and job_pid=... go together"),
        ({"job_pid": 5}, "job=running and job_pid=... go together"),
        ({"job": "command"}, "job=command and job_command=... go together"),
        ({"keep_threads": "("}, "parameter 'keep_threads': '\\(': it is no regular expression"),
    ],
    "sharing": [
        ({"resources": ["port"]}, "did you mean 'ports'|resource"),
        ({"alternations": 20}, "400 ms .*300 ms is the most"),
    ],
    "sensitivity": [
        ({"job": "command"}, "go together"),
        ({"traffic": [0]}, "traffic"),
        ({"occupied": [120]}, "occupied"),
        ({"response": "event"}, "our own jobs write no log"),
        ({"functions": True}, "functions are those of all of a job=command"),
        ({"job_begin": "no group"}, "job_begin, job_end: .*lacks the named group 'event'"),
    ],
    "correctness": [
        ({"classes": "avx3"}, "unknown class 'avx3': did you mean 'avx2' or 'avx512'"),
        ({"states": ["worm"]}, "unknown state 'worm': did you mean 'warm'"),
    ],
    "what_if": [
        ({"job": "command"}, "go together"),
        ({"sizes": ["formla=3"]}, "NAME=NUMBER"),
        ({"points": ["formla"]}, "did you mean 'formula'"),
        ({"speedups": [50, 50]}, "twice"),
        ({"most_functions": 0, "most_locks": 0}, "nothing is a target"),
    ],
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_parameters_are_sentences(name: str) -> None:
    for given, says in REFUSED[name]:
        with pytest.raises(UserError, match=says):
            get(name).params(given)


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_measures_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured beforehand is measured in the pilot, with the journal open."""
    called: list[str] = []
    real = Worker.begin

    def begin(self: Worker, function: str, *arguments: Any) -> None:
        called.append(function)
        real(self, function, *arguments)

    monkeypatch.setattr(Worker, "begin", begin)
    experiment = get(name)
    with contextlib.suppress(UserError, MeasurementError):  # what this machine cannot do
        experiment.plan(experiment.params({}))
    assert all(function.endswith("_bounds") for function in called)
