from __future__ import annotations

from pathlib import Path

import pytest

from perflib.machine.hardware.hypervisor import container, hypervisor, reports_steal
from tests.machine import trees
from tests.machine.dumps import dump


def test_by_cpuid(tmp_path: Path) -> None:
    assert hypervisor(tmp_path, dump("guest")) == "KVM"
    assert hypervisor(tmp_path, dump("xen")) == "Xen"
    assert hypervisor(tmp_path, dump("genoa")) is None
    strange = {(0x40000000, 0): (0, 0x41414141, 0x42424242, 0x43434343)}
    assert hypervisor(tmp_path, strange) == "unknown hypervisor ('AAAABBBBCCCC')"


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"sys/hypervisor/type": "xen"}, "Xen"),
        ({"sys/class/dmi/id/sys_vendor": "QEMU"}, "QEMU"),
        (
            {
                "sys/class/dmi/id/sys_vendor": "Microsoft Corporation",
                "sys/class/dmi/id/product_name": "Virtual Machine",
            },
            "Hyper-V",
        ),
        ({"sys/class/dmi/id/sys_vendor": "Dell Inc."}, None),
        ({"proc/device-tree/hypervisor/compatible": "linux,kvm"}, "linux,kvm"),
        (
            {"proc/device-tree/compatible": "linux,dummy-virt\0"},
            "unknown hypervisor (linux,dummy-virt)",
        ),
        ({"proc/device-tree/compatible": "raspberrypi,4-model-b\0brcm,bcm2711\0"}, None),
        ({"proc/cpuinfo": "flags\t: fpu hypervisor"}, "unknown hypervisor"),
        ({}, None),
    ],
)
def test_without_cpuid(tmp_path: Path, files: dict[str, str], name: str | None) -> None:
    assert hypervisor(trees.write(tmp_path, files)) == name


def test_who_reports_steal() -> None:
    assert reports_steal(dump("guest")) is True
    silent = dict(dump("guest")) | {(0x40000001, 0): (0x01007EDB, 0, 0, 0)}
    assert reports_steal(silent) is False
    assert reports_steal(dump("xen")) is None
    assert reports_steal({}) is None


def test_containers(tmp_path: Path) -> None:
    assert container(tmp_path) is None
    assert container(trees.container(tmp_path / "docker")) == "docker"
    assert container(trees.kvm_guest(tmp_path / "a virtual machine made from an image")) is None
    (tmp_path / "c/.singularity.d").mkdir(parents=True)
    assert container(tmp_path / "c") == "apptainer"


@pytest.mark.parametrize(
    ("files", "environment", "kind"),
    [
        ({"run/.containerenv": ""}, {}, "podman"),
        ({"run/systemd/container": "lxc"}, {}, "lxc"),
        ({"proc/1/environ": "PATH=/bin\0container=podman\0HOME=/"}, {}, "podman"),
        ({"proc/1/environ": "container=oci\0"}, {}, "podman"),
        ({"proc/1/environ": "container=systemd-nspawn\0"}, {}, "systemd-nspawn"),
        ({"proc/1/environ": "no_container=docker\0"}, {}, None),
        ({"proc/1/cgroup": "4:cpu:/docker/5b3c\n0::/"}, {}, "docker"),
        ({"proc/1/cgroup": "0::/machine.slice/libpod-5b3c.scope"}, {}, "podman"),
        ({"proc/1/cgroup": "0::/kubepods.slice/pod1"}, {}, "kubernetes"),
        ({"proc/1/cgroup": "0::/init.scope"}, {}, None),
        ({}, {"APPTAINER_CONTAINER": "/x.sif"}, "apptainer"),
        ({}, {"SINGULARITY_CONTAINER": "/y.sif"}, "apptainer"),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "x"}, "kubernetes"),
    ],
)
def test_containers_are_known_by_their_files_first_process_and_ours(
    tmp_path: Path, files: dict[str, str], environment: dict[str, str], kind: str | None
) -> None:
    assert container(trees.write(tmp_path, files), environment) == kind
