"""A farm, measured node by node: what is planned, what runs on a node, and what became of it.

A plan is a folder (`perflib.fleet.plan`). Each row of its manifest is a node, an experiment and
its parameters. The engine (`perflib.fleet.engine`) starts one job a row on its node
(`perflib.fleet.job`); the job publishes one file, and done means that this file is whole.
"""
