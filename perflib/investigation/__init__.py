"""From a symptom to a verdict: which run comes next, by what the last one found, and what it means.

``evidence``: what is known so far. ``signs``: what that shows, by name. ``rules``: the table that
chooses the next run. ``investigation``: measures, keeps, resumes and replays. ``correction``: the
anomaly claims of all runs, judged together. ``causes``, ``ledger`` and ``conclusion``: what all of
it says.
"""
