"""What ``alias_environment`` can claim."""

from __future__ import annotations

from perflib.experiments.aliasing.alone import beside_sibling
from perflib.model.claim import Claim

__all__ = [
    "ALIASED_ORDERS",
    "ASLR",
    "ENVIRONMENT",
    "ENVIRONMENT_SHARED",
    "LINK_ORDER",
    "SIMULATED",
]

ENVIRONMENT = Claim(
    name="environment",
    kind="anomaly",
    subject="environment",
    quantity="additional time at the sizes of the environment at which addresses agree in the low "
    "12 bits",
    unit="percent",
    exact="sizes of the environment at which addresses agree in the low 12 bits make the program "
    "more than {threshold:g} % slower than the others",
    plain={
        "supported": "the program is slower at sizes of its environment at which addresses agree "
        "in the low 12 bits: {estimate}",
        "refuted": "the program is as fast at sizes of its environment at which addresses agree "
        "in the low 12 bits: {estimate}",
        "inconclusive": "whether the size of its environment makes the program slower stays open: "
        "{estimate}",
    },
    reasons={
        "no_interval": "It takes two rounds or more, and sizes that are not predicted.",
        "never_agree": "At none of the sizes do they agree: step_bytes=16 visits every place.",
        "at_most": "It is {most:.2g} % at most, {most_ns:.2g} ns an iteration.",
    },
)

ENVIRONMENT_SHARED = beside_sibling(ENVIRONMENT)

SIMULATED = Claim(
    name="simulated",
    kind="description",
    subject="simulated environment",
    quantity="sizes at which simulated spikes and printed addresses disagree",
    unit="sizes that disagree",
    exact="the simulated count of 4K aliases has its spikes at exactly the sizes at which the "
    "printed addresses agree",
    plain={
        "supported": "simulated 4K aliases appear at exactly the predicted sizes",
        "refuted": "simulated 4K aliases and the prediction disagree at {effect:.0f} sizes",
        "inconclusive": "whether simulated 4K aliases appear at the predicted sizes stays open",
    },
    reasons={
        "not_simulated": "Nothing was simulated.",
        "elsewhere": "At {count} sizes the simulated program had its variables elsewhere.",
        "never_agree": "At no size do addresses agree, and {spikes} have a spike (simulated).",
        "spikes": "{right} of {predicted} predicted sizes have a spike, and {others} others "
        "(simulated).",
    },
)

LINK_ORDER = Claim(
    name="link_order",
    kind="anomaly",
    subject="link order",
    quantity="additional time of the slowest link order, compared with the median of the others",
    unit="percent",
    exact="some link order of the same objects is more than {threshold:g} % slower than the median "
    "of the others, in the same environment",
    plain={
        "supported": "the program is slower with its objects linked in the order {slowest}: "
        "{estimate}",
        "refuted": "the program is as fast in every link order; the slowest: {estimate}",
        "inconclusive": "whether a link order makes the program slower stays open: {estimate}",
    },
    reasons={
        "nothing_to_compare": "It takes two orders or more, and two batches free of interference.",
        "chance": "With the orders' names exchanged at random it comes about too often "
        "(p = {p:.2g}, corrected for the number of orders): more rounds are needed.",
        "slowest": "The slowest has its objects in the order {slowest}.",
    },
)

ALIASED_ORDERS = Claim(
    name="aliased_orders",
    kind="anomaly",
    subject="link order aliases",
    quantity="additional time of link orders in which addresses agree in the low 12 bits",
    unit="percent",
    exact="link orders in which addresses agree in the low 12 bits are more than {threshold:g} % "
    "slower than the others, in the same environment",
    plain={
        "supported": "link orders in which addresses agree in the low 12 bits are slower: "
        "{estimate}",
        "refuted": "link orders in which addresses agree in the low 12 bits are as fast as the "
        "others: {estimate}",
        "inconclusive": "whether link orders in which addresses agree in the low 12 bits are "
        "slower stays open: {estimate}",
    },
)

ASLR = Claim(
    name="aslr",
    kind="description",
    subject="aslr",
    quantity="share of starts with random addresses, at a predicted size, in which addresses agree",
    unit="percent of starts",
    exact="with addresses randomised, the size of the environment no longer decides: at a "
    "predicted size less than half of the starts have addresses that agree",
    plain={
        "supported": "random addresses make the size of the environment irrelevant: addresses "
        "agree in {estimate}",
        "refuted": "the size of the environment decides in spite of random addresses: they agree "
        "in {estimate}",
        "inconclusive": "whether the size of the environment decides with random addresses stays "
        "open: they agree in {estimate}",
    },
    direction="below",
    reasons={
        "fixed": "Addresses are not randomised on this machine.",
        "as_expected": "{hits} of {starts} starts have them; by the share of places it should be "
        "{expected:.2g} %, which the interval holds.",
        "not_as_expected": "{hits} of {starts} starts have them; by the share of places it should "
        "be {expected:.2g} %, which the interval does not hold.",
    },
)
