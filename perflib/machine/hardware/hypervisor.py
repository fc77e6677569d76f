"""Whether this machine is a virtual one, whose, and whether a container is around the process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from perflib.machine.files import fields, mounts, text
from perflib.machine.hardware.cpuid import Leaves, ascii_of

# CPUID leaf 4000_0000: what hypervisors sign with.
_SIGNATURES = {
    "KVMKVMKVM": "KVM",
    "Linux KVM Hv": "KVM",
    "Microsoft Hv": "Hyper-V",
    "VMwareVMware": "VMware",
    "XenVMMXenVMM": "Xen",
    "TCGTCGTCGTCG": "QEMU (emulated)",
    "VBoxVBoxVBox": "VirtualBox",
    "prl hyperv": "Parallels",
    "bhyve bhyve": "bhyve",
    "ACRNACRNACRN": "ACRN",
    "QNXQVMBSQG": "QNX",
}
_VENDORS = {  # /sys/class/dmi/id, the beginning of "vendor product"
    "QEMU": "QEMU",
    "VMware": "VMware",
    "innotek GmbH VirtualBox": "VirtualBox",
    "Xen": "Xen",
    "Microsoft Corporation Virtual Machine": "Hyper-V",
    "Parallels": "Parallels",
    "Google Google Compute Engine": "KVM",
    "OpenStack Foundation": "KVM",
}
_BOARD = "linux,dummy-virt"  # the board of arm64 guests without firmware, whoever runs them
_KVM_STEAL_TIME = 1 << 5  # leaf 4000_0001, eax
# In the names of a container's control groups, where it sees the host's.
_IN_GROUPS = {
    "/docker": "docker",
    "libpod-": "podman",
    "/kubepods": "kubernetes",
    "/lxc/": "lxc",
}
_IMAGE_FILESYSTEMS = ("overlay", "aufs", "btrfs", "zfs", "fuse.fuse-overlayfs")


def hypervisor(root: Path = Path("/"), leaves: Leaves | None = None) -> str | None:
    """The hypervisor's name; ``None``: nothing hints at one, so this is taken for bare metal.

    From CPUID, else from /sys/hypervisor, the firmware's tables and the device tree.
    """
    if leaves and (0x40000000, 0) in leaves:
        _, ebx, ecx, edx = leaves[0x40000000, 0]
        signed = ascii_of(ebx, ecx, edx)
        return _SIGNATURES.get(signed, f"unknown hypervisor ({signed!r})")
    reported = text(root / "sys/hypervisor/type")
    if reported:
        return {"xen": "Xen"}.get(reported, reported)
    dmi = root / "sys/class/dmi/id"
    firmware = f"{text(dmi / 'sys_vendor') or ''} {text(dmi / 'product_name') or ''}"
    for beginning, name in _VENDORS.items():
        if firmware.startswith(beginning):
            return name
    device_tree = text(root / "proc/device-tree/hypervisor/compatible")
    if device_tree:
        return "Xen" if "xen" in device_tree else device_tree.strip("\0")
    if _BOARD in (text(root / "proc/device-tree/compatible") or "").split("\0"):
        return f"unknown hypervisor ({_BOARD})"
    if "hypervisor" in fields(root / "proc/cpuinfo").get("flags", "").split():
        return "unknown hypervisor"
    return None


def reports_steal(leaves: Leaves) -> bool | None:
    """Whether the hypervisor reports to the guest how long its CPUs waited for a core.

    ``None``: it is not KVM, or nothing is known.
    """
    if (0x40000001, 0) not in leaves or hypervisor(leaves=leaves) != "KVM":
        return None
    return bool(leaves[0x40000001, 0][0] & _KVM_STEAL_TIME)


def container(root: Path = Path("/"), environment: Mapping[str, str] | None = None) -> str | None:
    """The container that this process runs in (docker, podman ...); ``None``: none can be seen.

    The files that mark a container are also in virtual machines that were made from a container's
    image; there the root is a plain disk and no image's layers.

    Parameters
    ----------
    root
        Where /proc and the files that mark a container are found.
    environment
        This process's variables, some of which show it; ``None``: its own, of this machine.
    """
    if environment is None:
        environment = os.environ if root == Path("/") else {}
    if environment.keys() & {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"}:
        return "apptainer"
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    reported = text(root / "run/systemd/container") or _of_the_first_process(root)
    if reported:
        return {"oci": "podman"}.get(reported, reported)
    if _root_filesystem(root) in (None, *_IMAGE_FILESYSTEMS):
        if (root / ".dockerenv").exists():
            return "docker"
        if (root / "run/.containerenv").exists():
            return "podman"
    if (root / ".singularity.d").is_dir():
        return "apptainer"
    if (root / "var/run/secrets/kubernetes.io").is_dir():
        return "kubernetes"
    groups = text(root / "proc/1/cgroup") or ""
    return next((kind for mark, kind in _IN_GROUPS.items() if mark in groups), None)


def _of_the_first_process(root: Path) -> str | None:
    """How the container's first process is marked, as systemd, podman and LXC do it."""
    entries = (text(root / "proc/1/environ") or "").split("\0")
    marks = (entry.partition("=")[2] for entry in entries if entry.startswith("container="))
    return next(marks, None)


def _root_filesystem(root: Path) -> str | None:
    return next((system[0] for mount, system in mounts(root) if mount[4] == "/"), None)
