"""Samples of KV as a machine with known faults would give them."""

from __future__ import annotations

import numpy as np
import pandas as pd


def samples(
    seed: int = 1,
    *,
    cores: int = 4,
    rounds: int = 60,
    events: int = 20,
    slow: dict[int, float] | None = None,
    burst_share: dict[int, float] | None = None,
    drift: float = 0.2,
    noise: float = 0.02,
) -> pd.DataFrame:
    """Rows as ``kv_per_core`` makes them; 100 ms a turn.

    ``slow``: a core's slowdown. ``burst_share``: the share of time in which a core takes twice as
    long, in bursts of three seconds. ``drift``: how much slower the whole machine is at the end.
    """
    generator = np.random.default_rng(seed)
    cost_ns = generator.lognormal(0, 1, events)
    cost_ns *= 100e6 / cost_ns.sum()
    slow, burst_share = slow or {}, burst_share or {}
    total_s = rounds * cores * 0.1
    bursts = {
        cpu: bursts_of(generator, share, 3.0, 3 * total_s) for cpu, share in burst_share.items()
    }
    now_s = 0.0
    parts = []
    for round_ in range(rounds):
        for position, cpu in enumerate(generator.permutation(cores)):
            factor = np.full(events, 1 + drift * now_s / total_s)
            factor *= 1 + slow.get(int(cpu), 0.0)
            if any(begin <= now_s < end for begin, end in bursts.get(int(cpu), [])):
                factor *= 2
            time_ns = cost_ns * factor * np.exp(generator.normal(0, noise, events))
            start_ns = now_s * 1e9 + np.cumsum(time_ns) - time_ns
            parts.append(
                pd.DataFrame(
                    {
                        "round": round_,
                        "position": position,
                        "cpu": int(cpu),
                        "event": np.arange(events),
                        "start_ns": start_ns.astype(np.int64),
                        "time_ns": time_ns.astype(np.int64),
                    }
                )
            )
            now_s += float(time_ns.sum()) / 1e9
    return pd.concat(parts, ignore_index=True)


def bursts_of(
    generator: np.random.Generator, share: float, length_s: float, until_s: float
) -> list[tuple[float, float]]:
    """When bursts begin and end, which take a share of the time."""
    found = []
    now_s = 0.0
    while now_s < until_s:
        now_s += generator.exponential(length_s * (1 - share) / share)
        found.append((now_s, now_s + length_s))
        now_s += length_s
    return found


def bracketed(
    seed: int = 1,
    *,
    cores: int = 2,
    seconds: float = 30.0,
    events: int = 12,
    slices: int = 20,
    slow: dict[int, float] | None = None,
    clock: dict[int, float] | None = None,
    busy: dict[int, float] | None = None,
    taken: dict[int, float] | None = None,
    stolen: dict[int, float] | None = None,
    unseen: dict[int, float] | None = None,
) -> pd.DataFrame:
    """Rows as ``kv_per_core`` makes them between probes: slices of events, cores by turns.

    ``slow``: how much longer a core takes in itself. ``clock``: how much longer its cycles are.
    ``busy``: the share of time in which its sibling works, in bursts of 5 to 500 ms, at a cost
    that differs from burst to burst; 0: never, 1: always. ``taken``, ``stolen``: the share of the
    wall time of other tasks and of the hypervisor, in slices of 3 and 1 ms. ``unseen``: the
    share of time in which samples take 6 % longer though probes do not, in bursts of three seconds.
    Processes, which live for three seconds, differ by 0.4 %. A timer's tick costs 15 us each 4 ms.
    """
    generator = np.random.default_rng(seed)
    slow, clock, busy = slow or {}, clock or {}, busy or {}
    taken, stolen = taken or {}, stolen or {}
    hidden = {
        cpu: bursts_of(generator, share, 3.0, 2 * seconds) for cpu, share in (unseen or {}).items()
    }
    costs = generator.lognormal(0, 0.3, (events, slices))
    costs *= 0.25e6 / costs.mean()
    now_ns, round_, parts = 0.0, 0, []
    sibling = {cpu: (busy.get(cpu, 0.3) >= 1, 1.4, 0.0) for cpu in range(cores)}  # on, cost, until
    born = dict.fromkeys(range(cores), (-1e9 * 3600, 0.0))
    while now_ns < seconds * 1e9:
        for cpu in map(int, generator.permutation(cores)):
            if now_ns - born[cpu][0] > 3e9:
                born[cpu] = (now_ns, generator.normal(0, 0.004))
            begin_ns = now_ns
            cpu_ns = costs * (1 + slow.get(cpu, 0.0)) * (1 + clock.get(cpu, 0.0))
            cpu_ns = cpu_ns * np.exp(born[cpu][1] + generator.normal(0, 0.004, costs.shape))
            if any(begin <= now_ns / 1e9 < end for begin, end in hidden.get(cpu, [])):
                cpu_ns *= 1.06
            cpu_ns += 15e3 * (generator.random(costs.shape) < cpu_ns / 4e6)
            offset = np.cumsum(cpu_ns.ravel()) - cpu_ns.ravel()
            extra, place = np.empty(costs.size), 0
            share = busy.get(cpu, 0.3)
            while place < costs.size:  # a turn for each burst and each pause
                on, factor, until = sibling[cpu]
                end = costs.size
                if 0 < share < 1:
                    end = max(place, int(np.searchsorted(offset, until - begin_ns, "right")))
                extra[place:end] = factor - 1 if on else 0.0
                place = end
                if place < costs.size:
                    length_ns = generator.exponential(50e6 * (1 - share if on else share)) + 1e6
                    until = begin_ns + offset[place] + length_ns
                    sibling[cpu] = (not on, 1 + generator.uniform(0.15, 0.6), until)
            cost = 1 + extra * generator.uniform(0.7, 1, costs.size)
            probes = 1 + extra * generator.uniform(0.6, 1.1, (2, costs.size))
            cpu_ns = cpu_ns.ravel() * cost
            ports = 4076 * (1 + clock.get(cpu, 0.0)) * probes
            chain = 1743 * (1 + clock.get(cpu, 0.0)) * (1 + 0.15 * (probes - 1))
            quantised = [np.round(v * np.exp(generator.normal(0, 0.0015, v.shape)), -1)
                         for v in (ports, chain)]  # fmt: skip
            waits = {}
            for name, shares, chunk_ns in (("taken", taken, 3e6), ("stolen", stolen, 1e6)):
                share = shares.get(cpu, 0.0)
                hits = generator.poisson(share / (1 - share) * cpu_ns / chunk_ns)
                waits[name] = hits * chunk_ns
            wall_ns = cpu_ns + waits["taken"] + waits["stolen"]
            start_ns = begin_ns + np.cumsum(wall_ns) - wall_ns
            columns = {
                "round": np.full(costs.size, round_),
                "cpu": np.full(costs.size, cpu),
                "event": np.repeat(np.arange(events), slices),
                "slice": np.tile(np.arange(slices), events),
                "start_ns": start_ns.astype(np.int64),
                "time_ns": wall_ns,
                "cpu_time_ns": cpu_ns,
                "run_delay_ns": waits["taken"],
                "throttled_ns": np.full(costs.size, np.nan),
                "probe_before_ns": quantised[0][0],
                "probe_after_ns": quantised[0][1],
                "chain_before_ns": quantised[1][0],
                "chain_after_ns": quantised[1][1],
            }
            parts.append(columns)
            now_ns = begin_ns + float(wall_ns.sum()) + 2e6
        round_ += 1
    return pd.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
