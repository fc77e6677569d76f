from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perflib.machine.doctor import attempts
from perflib.machine.doctor.permissions import PERMISSIONS, attempt, judged
from tests.users import as_ordinary, needs_two_users

ALLOWED = {one.name: "" for one in PERMISSIONS}
# docker's own filter without any capability added, as far as it concerns us
DOCKER = ALLOWED | dict.fromkeys(
    ["perf_events", "perf_system", "fifo_priority", "numa_policy", "page_nodes", "aslr_off"],
    "EPERM",
) | {"host_processes": "ESRCH"}  # fmt: skip
FORBID = """
import ctypes, errno, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
load, equal, give = 0x20, 0x15, 0x06  # LD|W|ABS, JMP|JEQ|K, RET|K
forbidden, number_of_personality = {forbidden}, {personality}
refuse, allow = 0x00050000 | errno.EPERM, 0x7FFF0000
program = [(load, 0, 0, 0)]
for number in forbidden:
    program += [(equal, 0, 1, number), (give, 0, 0, refuse)]
program += [(equal, 0, 3, number_of_personality), (load, 0, 0, 16)]
program += [(equal, 1, 0, 0xFFFFFFFF), (give, 0, 0, refuse), (give, 0, 0, allow)]
raw = b"".join(struct.pack("HBBI", *one) for one in program)
held = ctypes.create_string_buffer(raw)
filter = struct.pack("HxxxxxxP", len(program), ctypes.addressof(held))
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.c_char_p(filter)) == 0, ctypes.get_errno()  # PR_SET_SECCOMP
os.execv(sys.executable, [sys.executable, "-I", "-S", sys.argv[1]])
"""


def tried(argv: list[str]) -> dict[str, str]:
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    found: dict[str, str] = json.loads(answer.stdout)
    return found


# --- what is said --------------------------------------------------------------------------------


def test_in_docker_the_doctor_says_the_options_that_grant_what_is_missing() -> None:
    check = judged(DOCKER, "docker", root=True)
    assert check.state == "warn"
    assert check.now.startswith("in a docker container: no perf_events (EPERM): counters, ")
    assert check.command == (
        "(on the host) docker run --cap-add PERFMON --pid host --cap-add SYS_NICE "
        "--security-opt seccomp=unconfined ..."
    )
    assert {"name": "trace", "allowed": True, "answer": ""} in check.values


def test_podman_s_filter_answers_as_if_the_kernel_had_no_such_call() -> None:
    one = ALLOWED | {"aslr_off": "ENOSYS"}
    check = judged(one, "podman", root=True)
    assert check.command == "(on the host) podman run --security-opt seccomp=unconfined ..."
    assert judged(one, None, root=True).state == "good"  # there, the kernel has none


def test_privileges_bring_the_rest() -> None:
    check = judged(DOCKER | {"settings": "EROFS"}, "docker", root=True)
    assert check.command == "(on the host) docker run --pid host --privileged ..."


def test_apptainer_s_user_is_the_host_s() -> None:
    check = judged(ALLOWED | {"fifo_priority": "EPERM"}, "apptainer", root=False)
    assert "limits.conf" in check.command
    assert "--cap-add" not in check.command


def test_other_containers_get_docker_s_words() -> None:
    check = judged(ALLOWED | {"perf_events": "EPERM"}, "kubernetes", root=True)
    assert check.command == "(on the host) what docker calls: docker run --cap-add PERFMON ..."


# --- what is tried -------------------------------------------------------------------------------


def test_every_permission_is_tried_and_nothing_stays() -> None:
    before = os.sched_getscheduler(0)
    assert list(attempt()) == [one.name for one in PERMISSIONS]
    assert os.sched_getscheduler(0) == before


def test_an_ordinary_user_may_less() -> None:
    needs_two_users()
    found = tried(as_ordinary([sys.executable, "-I", "-S", attempts.__file__]))
    assert found["fifo_priority"] == "EPERM"
    assert found["settings"] == found["control_groups"] == "EACCES"
    assert found["trace"] == found["page_nodes"] == found["aslr_off"] == ""


@pytest.mark.parametrize(
    ("capability", "name"), [("sys_nice", "fifo_priority"), ("sys_admin,-perfmon", "perf_system")]
)
def test_root_without_a_capability(capability: str, name: str) -> None:
    needs_two_users()
    paranoid = Path("/proc/sys/kernel/perf_event_paranoid")
    if name == "perf_system" and (not paranoid.exists() or int(paranoid.read_text()) < 1):
        pytest.skip("here everybody may profile everything")
    without = ["setpriv", f"--bounding-set=-{capability}", f"--inh-caps=-{capability}"]
    found = tried([*without, sys.executable, "-I", "-S", attempts.__file__])
    assert found[name] in ("EPERM", "EACCES")


def test_a_process_namespace_of_its_own_is_seen() -> None:
    needs_two_users()
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    found = tried([*apart, sys.executable, "-I", "-S", attempts.__file__])
    assert found["host_processes"] == "ESRCH"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the filter is written for x86-64")
def test_a_filter_of_system_calls_as_containers_have_it() -> None:
    """perf_event_open, set_mempolicy, move_pages; of personality all but the question."""
    script = FORBID.format(forbidden="(298, 238, 279)", personality=135)
    free = attempt()
    found = tried([sys.executable, "-c", script, attempts.__file__])
    refused = {"perf_events", "perf_system", "numa_policy", "page_nodes", "aslr_off"}
    assert {name for name, answer in found.items() if answer == "EPERM"} >= refused
    assert {name: found[name] for name in found.keys() - refused} == {
        name: free[name] for name in free.keys() - refused
    }
    filtered = {name: "EPERM" if name in refused else "" for name in found}
    check = judged(filtered, "docker", root=True)  # an ordinary user here lacks more than that
    assert "--security-opt seccomp=unconfined" in check.command
