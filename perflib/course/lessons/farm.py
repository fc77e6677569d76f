"""What the notebook of farms asks."""

from __future__ import annotations

from typing import Any

from perflib.course.items import Choice, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import near

__all__ = ["LESSON"]

_DAY = 17  # on which the simulated node became slower


def _named(how: str, what: str) -> Any:
    def measured(named: Any) -> Measured | str:
        return Measured(named[how], named[how], named[how], f"{what} of {named['cores']} cores")

    return measured


def _single_nodes(farm: Any) -> Measured | str:
    count = len(farm.found.where(claim="node_slower"))
    return Measured(count, count, count, "single nodes named")


def _three(answer: Any, few: Any) -> Judged:
    """The verdict on the position, and how many single cores are named."""
    try:
        word, cores = answer
    except (TypeError, ValueError):
        return Judged(0.0, "give two things: (verdict on the position, single cores named)")
    (position,) = few.findings.where(claim="position_slower", cpu=8)
    single = len(few.found.where(claim="core_slower"))
    right = [str(word).strip().lower() == position.verdict, int(number(cores)) == single]
    says = f"the position is {position.verdict}; single cores named: {single}"
    return Judged(sum(right) / 2, says)


def _smallest(answer: Any, by_part: Any) -> Judged:
    """The smallest slowdown that is named."""
    named = by_part.loc[by_part["verdict"] == "supported", "slower_percent"]
    if named.empty:
        return Judged(1.0, "none of these is named here")
    given, right = number(answer), float(named.min())
    return Judged(float(abs(given - right) < 1e-6), f"from {right:g} % on")


LESSON = Lesson(
    name="farm",
    title="Farm: which machine stands out, and what the outliers have in common",
    minutes=60,
    objectives=[
        "Predict how many of a thousand healthy cores a naive test accuses.",
        "Tell a position, a node and a group apart in one picture.",
        "Say why an attribute that slow nodes share is an association, and how to know more.",
        "Name what one day, or three nodes, cannot show.",
    ],
    items=[
        Prediction(
            name="named one by one",
            unit="cores",
            measured=_named("each by itself", "named one by one"),
            hints=["One in twenty."],
        ),
        Prediction(
            name="named together",
            unit="cores",
            measured=_named("together", "named by a test of all"),
            hints=["At most one in twenty of what is named is false, on average."],
        ),
        Choice(
            name="easier",
            question="Which is easier to find: a node that is 3 % slower, or a core position that "
            "is 3 % slower on thirty nodes?",
            options={
                "a": "The node: all of its cores show it.",
                "b": "The position: thirty nodes are thirty witnesses.",
                "c": "Both alike: 3 % are 3 %.",
            },
            right="b",
            because={
                "a": "Its cores share its days: one bad day makes all of them slow together.",
                "b": "Nodes are independent of one another; the cores of one node are not.",
                "c": "What counts is how many independent observations there are.",
            },
            wrong=[("a", "takes cores of one node for independent")],
            hints=["How many independent observations does each have?"],
        ),
        Prediction(
            name="single nodes named",
            unit="nodes",
            measured=_single_nodes,
            hints=["What a group explains is taken out before nodes are compared."],
        ),
        Relation(
            name="day",
            holds=near(
                _DAY - 1,
                _DAY + 1,
                "the 17th day, as simulated",
                "count the rows of the calendar until the colour changes",
            ),
            wrong=[(1, "takes the first day of the series")],
            hints=["A row is a day; the first row is day 1."],
        ),
        Relation(
            name="1",
            points=2,
            holds=_three,
            wrong=[(("supported", 0), "takes three nodes for thirty")],
            hints=["Five nodes of a model are the least for an interval between nodes."],
        ),
        Choice(
            name="2",
            question="The same farm, measured on its first day only. Which findings remain?",
            options={
                "a": "All of them.",
                "b": "None: one day is no evidence.",
                "c": "The single bad node alone.",
                "d": "The position and the BIOS.",
            },
            right="d",
            because={
                "a": "The single bad node was measured once: a bad day is no bad node.",
                "b": "A position's evidence is its nodes, not its days.",
                "c": "Its witnesses are days, and there is one.",
                "d": "Their witnesses are nodes, and there are many on one day.",
            },
            wrong=[("a", "forgets what the evidence of a node is"), ("b", "forgets the nodes")],
            hints=["Look at the table 'How it is compared': what is the evidence of each?"],
        ),
        Choice(
            name="3",
            question="Each rack has a switch of its own, and one rack is slow. What is it called?",
            options={
                "a": "A slow rack, with the remark that the same nodes share the switch.",
                "b": "A slow switch: that is what the nodes share.",
                "c": "Many slow nodes.",
            },
            right="a",
            because={
                "a": "Nothing tells them apart. Swap two nodes between racks, and measure again.",
                "b": "Rack and switch name the very same nodes: no test can choose.",
                "c": "What a group explains is taken out before nodes are compared.",
            },
            wrong=[("b", "takes an association for a cause")],
            hints=["Is there a node with the switch that is not in the rack?"],
        ),
        Relation(
            name="4",
            holds=_smallest,
            wrong=[(0.5, "forgets the threshold of 1 %")],
            hints=["The whole interval must lie above the threshold: read the table."],
        ),
    ],
)
