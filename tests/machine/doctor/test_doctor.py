from __future__ import annotations

from pathlib import Path

from perflib.machine.doctor.diagnose import Check, diagnose
from perflib.machine.hardware.hypervisor import hypervisor
from tests.machine import trees
from tests.machine.dumps import dump


def checks(root: Path, machine: str | None = None) -> dict[str, Check]:
    found = diagnose(root, leaves=dump(machine) if machine else {}, interval_s=0)
    assert len({check.name for check in found}) == len(found)
    return {check.name: check for check in found}


def test_a_server_as_it_comes_from_the_shop(tmp_path: Path) -> None:
    found = checks(trees.haswell_ep(tmp_path), "haswell_ep")
    warned = {name for name, check in found.items() if check.state == "warn"}
    others = "numa_balancing nmi_watchdog perf_event_paranoid isolated_cores clocksource"
    assert warned == {"governor", "turbo", "smt", "thp", "aslr", *others.split()}
    assert found["governor"].now == "powersave"
    assert found["governor"].command.startswith("echo performance | sudo tee")
    assert found["turbo"].command.startswith("echo 1 | sudo tee")
    assert found["smt"].now == "on (24 cores run more than one thread)"
    assert found["aslr"].command == "setarch --addr-no-randomize COMMAND"
    assert found["clocksource"].command.startswith("echo tsc | sudo tee")
    assert "isolcpus=domain,managed_irq,23,47" in found["isolated_cores"].command
    assert found["hypervisor"].state == "good"
    assert found["steal"].state == "unknown"
    assert found["load"].state == "good"


def test_a_guest_shows_little(tmp_path: Path) -> None:
    found = checks(trees.kvm_guest(tmp_path), "guest")
    assert found["governor"].now == "not visible: the host decides"
    assert found["smt"].state == "unknown"
    assert found["hypervisor"].now == "KVM"
    assert found["perf_event_paranoid"].state == "good"  # root counts all the same
    assert found["numa_balancing"].state == "good"
    assert found["cpu_quota"].now == "none"
    assert found["steal"].state == "warn"
    assert found["steal"].now.startswith("0.99%")


def test_steal_that_is_not_reported_is_unknown_and_not_none(tmp_path: Path) -> None:
    trees.kvm_guest(tmp_path)
    leaves = dict(dump("guest")) | {(0x40000001, 0): (0, 0, 0, 0)}
    (steal,) = [
        check for check in diagnose(tmp_path, leaves=leaves, interval_s=0) if check.name == "steal"
    ]
    assert (steal.state, steal.now) == ("unknown", "this hypervisor does not report it")


def test_a_container(tmp_path: Path) -> None:
    found = checks(trees.container(tmp_path))
    assert found["cpu_quota"].state == "warn"
    assert found["cpu_quota"].now == ("1.5 CPUs' time in each 100 ms, used up in 12 of 400 periods")
    assert found["cpu_quota"].command == "(on the host) docker update --cpu-quota=-1 CONTAINER"
    assert found["cpuset"].state == "warn"
    assert found["cpuset"].now == (
        "CPUs 0-3 of 0-7 may be used; their siblings 4-7 belong to others"
    )


def test_a_quota_outside_of_a_container_is_lifted_in_its_group(tmp_path: Path) -> None:
    trees.container(tmp_path)
    (tmp_path / ".dockerenv").unlink()
    command = checks(tmp_path)["cpu_quota"].command
    assert command == "echo max | sudo tee /sys/fs/cgroup/cpu.max"


def test_a_hot_core_and_a_limited_one_are_named(tmp_path: Path) -> None:
    trees.haswell_ep(tmp_path)
    hot = f"{trees.CPU}/cpu8/thermal_throttle/core_throttle_count"
    limited = f"{trees.CPU}/cpu9/cpufreq/scaling_max_freq"
    trees.write(tmp_path, {hot: "17", limited: "2500000"})
    found = checks(tmp_path)
    assert found["thermal_throttling"].state == "warn"
    assert found["thermal_throttling"].now == "since the start: cpu8 17 times"
    assert found["frequency_limits"].state == "warn"
    assert found["frequency_limits"].now == ("CPUs 0-8,10-47 up to 3.30 GHz; CPUs 9 up to 2.50 GHz")
    assert found["frequency_limits"].command.startswith("echo 3300000 | sudo tee")


def test_a_busy_machine(tmp_path: Path) -> None:
    found = checks(trees.write(tmp_path, {"proc/loadavg": "7.10 3 1 9/99 4"}))
    assert found["load"].state == "warn"
    assert found["load"].command.startswith("ps ")


def test_nothing_to_see_is_unknown_and_no_error(tmp_path: Path) -> None:
    found = checks(tmp_path)
    for name in ("governor", "turbo", "load", "steal", "cpuset", "clocksource", "pmu", "sharing"):
        assert found[name].state == "unknown"
        assert found[name].now


def test_this_machine_is_examined() -> None:
    found = {check.name: check for check in diagnose(interval_s=0.01, probe_s=0.01)}
    for name in ("governor", "smt", "pmu", "load", "steal", "hypervisor", "sharing"):
        assert found[name].state in ("good", "warn", "unknown")
    assert (found["hypervisor"].state == "warn") == (hypervisor() is not None)
