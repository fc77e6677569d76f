"""What ``memory_load`` can claim."""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = ["CLAIMS", "KNEE", "PEAK", "RISES", "SLOWER", "TOGETHER"]

_FROM = "cpu{cpu}, memory of node {memory_node}"
_LOADED = {
    "one_core": "There is no other core that could load memory: name two in 'cores', or take a "
    "machine with more.",
    "no_valid": "Hardly any sample under load is valid: the streaming cores got {share:.0f} % "
    "of their time. Others use them: measure when it is quiet, or longer.",
    "few_valid": "{percent:.0f} % of the samples under load are valid: in the others a core "
    "did not get its time.",
    "control": "With the same cores busy in their own caches a load takes {cache:interval %} "
    "longer than with idle cores: that much is not memory's.",
    "against_idle": "Compared with idle cores the rise is {idle:interval %}: that does not agree.",
    "against_cache": "Compared with cores that are as busy, but stay in their caches.",
    "alone": "From samples whose core was alone ({percent:.0f} % of all).",
    "from_all": "From all valid samples: those with the core alone ({percent:.0f} %) scatter more.",
    "not_alone": "The probes say of too few samples under load that their core was alone, so all "
    "count: a core that streams may be a hidden thread of the core that loads.",
}  # fmt: skip

RISES = Claim(
    name="latency_rises",
    kind="description",
    subject=_FROM,
    quantity="additional latency while the other cores stream as fast as they can, compared with "
    "the same cores busy in their own caches",
    unit="percent",
    exact="a load from memory takes over {threshold:g} % longer while other cores use memory, too",
    plain={
        "supported": "a load from memory takes {estimate} longer while other cores move "
        "{moved:.3g} GB/s ({place}): {loaded_ns:.3g} ns instead of {idle_ns:.3g} ns",
        "refuted": "other cores that move {moved:.3g} GB/s hardly delay a load from memory "
        "({place}): {estimate}",
        "inconclusive": "whether other cores delay a load from memory stays open ({place}): "
        "{estimate}",
    },
    reasons=_LOADED,
)

KNEE = Claim(
    name="knee",
    kind="description",
    subject=f"knee of {_FROM}",
    quantity="bandwidth from which on a load takes longer",
    unit="GB/s",
    exact="there is a bandwidth from which on a load takes over {apart:g} % longer",
    plain={
        "supported": "from {estimate} on, a load from memory takes over {apart:g} % longer "
        "({place})",
        "refuted": "up to {moved:.3g} GB/s, no load from memory takes over {apart:g} % longer "
        "({place})",
        "inconclusive": "from which bandwidth on a load takes over {apart:g} % longer stays open "
        "({place})",
    },
    reasons={
        **_LOADED,
        "between": "Below {low:.3g} GB/s it surely has not risen, from {high:.3g} GB/s on it "
        "surely has; between, the curve crosses {apart:g} %.",
        "up_to": "From {high:.3g} GB/s on it surely has risen; at which lower rates it has not is "
        "not sure: more rounds would narrow it.",
        "from_start": "It has risen at the lowest rate already.",
        "never": "At every rate the whole interval lies below {apart:g} %.",
        "unsure": "At no rate does the whole interval lie beyond {apart:g} %, and not at every one "
        "does it lie below.",
    },
)

TOGETHER = Claim(
    name="more_together",
    kind="description",
    subject="cores of node {core_node}, memory of node {memory_node}, {traffic}",
    quantity="bandwidth of all cores of a node together, above that of its fastest core alone",
    unit="percent",
    exact="all cores of a node move over {threshold:g} % more together than one of them alone",
    plain={
        "supported": "{count} cores of a node move {estimate} more together than one alone "
        "({traffic}): {together_gb_s:.3g} GB/s instead of {alone_gb_s:.3g} GB/s",
        "refuted": "one core alone moves about all that {count} cores of its node do together "
        "({traffic}): {alone_gb_s:.3g} and {together_gb_s:.3g} GB/s",
        "inconclusive": "whether {count} cores of a node move more together than one alone stays "
        "open ({traffic}): {estimate}",
    },
    together={
        "supported": "all cores of a node move more together than one alone, in {count} kinds of "
        "traffic: {each[traffic]:list}",
        "refuted": "one core alone moves about all that its node's cores do together, in {count} "
        "kinds of traffic: {each[traffic]:list}",
        "inconclusive": "in {count} kinds of traffic it stays open whether all cores of a node "
        "move more together than one alone: {each[traffic]:list}",
    },
    reasons={
        "few_valid": _LOADED["few_valid"],
        "nothing": "It takes two rounds whose samples are valid, of a core alone and of all "
        "together.",
    },
)

SLOWER = Claim(
    name="core_moves_less",
    kind="anomaly",
    subject="cpu{cpu}",
    quantity="time to move the same bytes, compared with the median of the other cores",
    unit="percent",
    exact="cpu{cpu} alone takes over {threshold:g} % longer than the other cores to move the same "
    "bytes ({traffic})",
    plain={
        "supported": "cpu{cpu} moves less from memory than the other cores ({traffic}): it takes "
        "{estimate} longer",
        "refuted": "cpu{cpu} moves as much from memory as the other cores ({traffic}): {estimate}",
        "inconclusive": "whether cpu{cpu} moves less from memory than the others stays open "
        "({traffic}): {estimate}",
    },
    together={
        "refuted": "{count} cores move as much from memory as each other: {each[cpu]:list}",
        "inconclusive": "of {count} cores it stays open whether they move less: {each[cpu]:list}",
    },
    reasons={
        "few_valid": _LOADED["few_valid"],
        "nodes": "Cores of different nodes are compared, each with memory of its own node.",
    },
)

PEAK = Claim(
    name="below_peak",
    kind="description",
    subject="peak",
    quantity="highest bandwidth measured, of the most that the memory modules can deliver",
    unit="percent of the peak",
    exact="no more is measured than the memory modules can deliver at most",
    direction="below",
    plain={
        "supported": "{estimate} were reached: {best_gb_s:.3g} of {peak_gb_s:.4g} GB/s, if each "
        "module has a channel of its own",
        "refuted": "more was measured than the memory modules can deliver: {best_gb_s:.3g} of "
        "{peak_gb_s:.4g} GB/s; caches answered, or the firmware is wrong",
        "inconclusive": "what the memory modules can deliver at most cannot be known here",
    },
    reasons={
        "unknown": "The firmware's table of memory modules cannot be read, or lacks their speeds. "
        "Only root may read it, and a virtual machine's says nothing of the real modules.",
        "virtual": "This is a virtual machine: its firmware's table says nothing of the real "
        "memory modules.",
        "modules": "{modules}: the sum of their speeds times 8 bytes. Modules that share a channel "
        "deliver less.",
    },
)  # fmt: skip

CLAIMS = (RISES, KNEE, TOGETHER, SLOWER, PEAK)
"""The claims, in the order in which they are made."""
