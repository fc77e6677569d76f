"""What ``threads`` can claim: of each version of a job, and of all together."""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = [
    "CLAIMS",
    "GAIN",
    "GAINS_BOUNDED",
    "LIMITING",
    "ORDER",
    "OVERHEAD",
    "PREDICTS",
    "RUN_QUEUE",
    "SERIAL",
    "SPINNING",
    "USES_CORES",
    "WAITS_AGREE",
]

OVERHEAD = Claim(
    name="overhead",
    kind="description",
    subject="{version} under the profile",
    quantity="by how much longer the job takes under the profile",
    unit="percent",
    exact="{version} takes at most {threshold:g} % longer under the profile",
    direction="below",
    plain={
        "supported": "the profile hardly slows {version}: {estimate}",
        "refuted": "the profile slows {version}: {estimate}",
        "inconclusive": "whether the profile slows {version} stays open: {estimate}",
    },
    together={
        "supported": "The profile hardly slows {count} versions (widest interval: {widest})",
        "inconclusive": "Whether the profile slows {count} versions stays open (widest interval: "
        "{widest})",
    },
)

PREDICTS = Claim(
    name="predicts",
    kind="description",
    subject="{version} concurrency over speed-up",
    quantity="by how much effective concurrency is above the speed-up",
    unit="percent",
    exact="effective concurrency predicts the speed-up of {version} to {threshold:g} %",
    direction="within",
    plain={
        "supported": "effective concurrency predicts the speed-up of {version}: it is off by "
        "{estimate}",
        "refuted": "effective concurrency does not predict the speed-up of {version}: it is off by "
        "{estimate}",
        "inconclusive": "whether effective concurrency predicts the speed-up of {version} stays "
        "open: it is off by {estimate}",
    },
    together={
        "supported": "Effective concurrency predicts the speed-up of {count} versions (widest "
        "interval: {widest})",
        "inconclusive": "Whether effective concurrency predicts the speed-up of {count} versions "
        "stays open (widest interval: {widest})",
    },
    reasons={
        "both": "Speed-up {speedup:interval}, effective concurrency {concurrency:interval}.",
        "not_all_gained": "Not all is gained that threads run beside each other.",
        "pessimistic": "The profile is the more pessimistic, as in Jones 2015.",
        "delayed": "Run-queue delay takes {share:.0f} % of the threads' time. Where other "
        "processes cause it, one thread alone shares its core as well, and the speed-up changes "
        "less than concurrency.",
    },
)

USES_CORES = Claim(
    name="uses_cores",
    kind="description",
    subject="{version} concurrency",
    quantity="effective concurrency, of what threads and cores allow",
    unit="percent",
    exact="{version} keeps more than {threshold:g} % of what threads and cores allow busy",
    plain={
        "supported": "{version} uses its cores well: {estimate} are busy",
        "refuted": "{version} leaves cores idle: {estimate} are busy",
        "inconclusive": "whether {version} uses its cores well stays open: {estimate} are busy",
    },
)

LIMITING = Claim(
    name="limiting_lock",
    kind="anomaly",
    subject="{version} limiting lock",
    quantity="share of the threads' time that they wait for the lock",
    unit="percent",
    exact="{lock} costs the threads of {version} more than {threshold:g} % of their time, and "
    "more than any other lock",
    plain={
        "supported": "{lock} limits {version}: it costs the threads {estimate} of their time",
        "refuted": "no lock limits {version}: {lock} costs the threads {estimate} of their time",
        "inconclusive": "whether a lock limits {version} stays open: {lock} costs the threads "
        "{estimate} of their time",
    },
    reasons={
        "first": "It is the first in {first} of {profiles} profiles.",
        "others_alike": "It is the first in {first} of {profiles} profiles only: others cost about "
        "as much.",
        "next": "The next is {next} with {share:.1f} %.",
        "condition": "It is a condition variable: threads may wait there for want of work.",
        "lost_events": "Events were lost: a wait may be among them.",
        "no_wait": "No thread was seen to wait for a lock.",
        "rare": "The interval allows for rare waits of {long_ms:g} ms.",
    },
    counted=True,  # from the recording
)

WAITS_AGREE = Claim(
    name="waits_agree",
    kind="description",
    subject="{version} waits beside the self-report",
    quantity="by how much the profile's waiting for a lock is above the self-reported one",
    unit="percent",
    exact="the profile's waiting for each lock of {version} is within {threshold:g} % of the job's "
    "self-reported waits",
    direction="within",
    plain={
        "supported": "the profile's waits are those that {version} reports: off by {estimate}",
        "refuted": "the profile's waits are not those that {version} reports: off by {estimate}",
        "inconclusive": "whether the profile's waits are those that {version} reports stays open: "
        "{estimate}",
    },
    together={
        "supported": "The profile's waits are those that the job reports, in {count} versions "
        "(widest interval: {widest})",
    },
    reasons={
        "farthest": "{lock} is farthest off, of {count} waited for long enough.",
        "no_long_wait": "The job waits for no lock for more than {threshold:g} % of its threads' "
        "time.",
    },
)

RUN_QUEUE = Claim(
    name="run_queue_delay",
    kind="anomaly",
    subject="{version} run-queue delay",
    quantity="share of the threads' time that is run-queue delay without a lock",
    unit="percent",
    exact="threads of {version} that wait for no lock have run-queue delay for more than "
    "{threshold:g} % of their time",
    plain={
        "supported": "threads of {version} wait for a core for {estimate} of their time",
        "refuted": "threads of {version} hardly wait for a core: {estimate} of their time",
        "inconclusive": "whether threads of {version} wait for a core stays open: {estimate} of "
        "their time",
    },
    together={
        "refuted": "Threads hardly wait for a core, in {count} versions (widest interval: "
        "{widest})",
        "inconclusive": "Whether threads wait for a core stays open in {count} versions (widest "
        "interval: {widest})",
    },
    reasons={
        "too_many_threads": "The job has {threads} threads and may use {cpus} CPUs.",
        "others_took": "The job has {threads} threads and may use {cpus} CPUs: other processes "
        "take what they lack.",
    },
    counted=True,  # from the recording
)

SPINNING = Claim(
    name="spinning",
    kind="anomaly",
    subject="{version} spinning",
    quantity="share of the threads' time that they spin",
    unit="percent",
    exact="the threads of {version} spin for more than {threshold:g} % of their time",
    plain={
        "supported": "threads of {version} spin for {estimate} of their time",
        "refuted": "threads of {version} hardly spin: {estimate} of their time",
        "inconclusive": "how long threads of {version} spin stays open: {estimate} of their time",
    },
    counted=True,  # from the recording
)

SERIAL = Claim(
    name="serial_part",
    kind="description",
    subject="{version} serial part",
    quantity="share of the recorded time that one thread works alone, at the begin and the end",
    unit="percent",
    exact="{version} is serial, at its begin and its end, for more than {threshold:g} % of what "
    "was recorded",
    plain={
        "supported": "{version} is serial at its begin and its end for {estimate} of the time",
        "refuted": "{version} is hardly serial at its begin and its end: {estimate} of the time",
        "inconclusive": "how long {version} is serial at its begin and its end stays open: "
        "{estimate} of the time",
    },
    together={
        "supported": "{count} versions are serial at their begin and end for more than "
        "{threshold:g} % of the time (widest interval: {widest})",
        "refuted": "{count} versions are hardly serial at their begin and end (widest interval: "
        "{widest})",
    },
    counted=True,  # from the recording
)

GAIN = Claim(
    name="gain",
    kind="description",
    subject="{version} without {point}",
    quantity="by how much the loop is shorter without the synchronisation point",
    unit="percent",
    exact="the loop of {version} is more than {threshold:g} % shorter without its synchronisation "
    "point '{point}'",
    plain={
        "supported": "{version} gains {estimate} without {point}",
        "refuted": "{version} gains hardly anything without {point}: {estimate}",
        "inconclusive": "what {version} gains without {point} stays open: {estimate}",
    },
    together={
        "refuted": "{count} synchronisation points cost hardly anything (widest interval: "
        "{widest})",
        "inconclusive": "What {count} synchronisation points cost stays open (widest interval: "
        "{widest})",
    },
    reasons={
        "predicted": "From the profile: {expected:.1f} % expected, {bound:.1f} % at most.",
    },
)

GAINS_BOUNDED = Claim(
    name="gains_bounded",
    kind="description",
    subject="{version} gains beyond the bound",
    quantity="what is gained without a synchronisation point, less the profile's bound",
    unit="percentage points",
    exact="no synchronisation point of {version} gains more, switched off, than the profile's "
    "bound and {threshold:g} percentage points",
    direction="below",
    plain={
        "supported": "no gain of {version} is above the profile's bound: {estimate} beside it",
        "refuted": "{version} gains more without {point} than the profile's bound: {estimate}",
        "inconclusive": "whether all gains of {version} are below the profile's bound stays open: "
        "{estimate}",
    },
    together={
        "inconclusive": "Whether all gains are below the profile's bounds stays open in {count} "
        "versions (widest interval: {widest})",
    },
    reasons={"farthest": "The farthest is '{point}'."},
)

ORDER = Claim(
    name="order",
    kind="description",
    subject="order of versions",
    quantity="how alike concurrency and speed-up order the versions",
    unit="rank correlation",
    exact="versions with more effective concurrency have more speed-up",
    plain={
        "supported": "versions with more effective concurrency are faster",
        "refuted": "versions with more effective concurrency are not always faster",
        "inconclusive": "whether versions with more effective concurrency are faster stays open",
    },
    reasons={
        "pairs": "Of {pairs} pairs of versions, {clear} differ clearly in both.",
        "alike": "All of them are ordered alike.",
        "against": "Against it: {against:list}.",
    },
)

CLAIMS = (
    OVERHEAD,
    PREDICTS,
    USES_CORES,
    LIMITING,
    WAITS_AGREE,
    RUN_QUEUE,
    SPINNING,
    SERIAL,
    GAIN,
    GAINS_BOUNDED,
    ORDER,
)
