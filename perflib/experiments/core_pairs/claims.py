"""What can be claimed of any matrix of cores."""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = ["GROUPS", "KERNEL", "SLOWER"]

# Why a matrix shows groups, or none, or cannot tell: of the groups, and of what the kernel names.
_SHOWN = {
    "classes": "The classes of distance are {latencies:list .0f} {latency_unit} (p = {p:.2g}).",
    "halves": "One group was found: no two halves of the cores are more than {bound:.1f} % apart.",
    "own": "One group was found: no core is more than {bound:.1f} % farther from another than from "
    "itself.",
    "cells": "One group was found: no cell is more than {bound:.1f} % away from the mean of all.",
    "wide": "The noise could hide groups that are {apart:g} % apart.",
    "far": "The cores are farther from each other than from themselves: {latencies:list .0f} "
    "{latency_unit} (p = {p:.2g}).",
    "pair": "Of two cores, without the latency of each to itself, nothing shows whether they are "
    "near each other.",
    "too_few": "It takes two cores or more, in two batches or more.",
    "sparse": "One group was found, but of {share:.0%} of the pairs of cores: too few to say what "
    "the others hide.",
}

GROUPS = Claim(
    name="groups",
    kind="description",
    subject="groups",
    quantity="number of groups of cores",
    unit="groups",
    exact="by the latency of {what}, the cores are several groups, more than {apart:g} % apart",
    plain={
        "supported": "by the latency of {what}, the cores are {effect:.0f} groups: it is "
        "{latencies:list .0f} {latency_unit}",
        "refuted": "by the latency of {what}, all cores are one group: differences are below "
        "{bound:.2g} %",
        "inconclusive": "whether the cores are several groups by the latency of {what} stays open",
    },
    reasons=_SHOWN,
)

KERNEL = Claim(
    name="kernel",
    kind="description",
    subject="kernel",
    quantity="share of the pairs of cores that are together, or apart, by the latencies and by the "
    "kernel",
    unit="percent of pairs",
    exact="the groups of cores that were found are among those that the kernel names",
    plain={
        "supported": "the kernel names the groups of cores that were found ({count} by {kind})",
        "refuted": "the kernel does not name the groups of cores that were found: {count} found, "
        "while it names {named:list}",
        "inconclusive": "whether the kernel names the groups of cores stays open",
    },
    reasons={
        **_SHOWN,
        "alike": "Groups found: {count}; the kernel names the same cores by {kind}.",
        "unlike": "Groups found: {count}; the kernel names {named:list}.",
    },
)

SLOWER = Claim(
    name="slower",
    kind="anomaly",
    subject="cpu{cpu}",
    quantity="slowdown compared with the median of the other cores, beside what is usual between "
    "their groups",
    unit="percent",
    exact="cpu{cpu} is more than {threshold:g} % slower than the other cores of its group {doing}",
    plain={
        "supported": "cpu{cpu} is slower than the other cores of its group {doing}: {estimate}",
        "refuted": "cpu{cpu} is as fast as the other cores of its group {doing}: {estimate}",
        "inconclusive": "whether cpu{cpu} is slower than the other cores of its group {doing} "
        "stays open: {estimate}",
    },
    together={
        "refuted": "All {count} cores are as fast as the others of their groups {doing} (widest "
        "interval: {widest})",
    },
    reasons={"where": "It is {where}."},
)
