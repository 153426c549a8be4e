"""`fcam grid --list` and `--estimate`: what is stored, and how long the rest will take on this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from fcamlib import store
from fcamlib.config import RunConfig
from fcamlib.estimate import counted, duration, paces, seconds_like_stored
from fcamlib.provenance import device_name
from fcamlib.store import Result

Estimator = Callable[[RunConfig], float | None]


def listing(configs: Sequence[RunConfig], timed: bool) -> Iterator[str]:
    """A line for each run, with its estimated time where it is not stored; then the total, and how it was estimated.

    Parameters
    ----------
    configs : sequence of RunConfig
    timed : bool
        Whether to time training steps, rather than to go by stored runs.
    """
    begun = set(store.unfinished())
    found = {config.name: store.find(config) for config in configs}
    missing = [config for config in configs if found[config.name] is None]
    seconds, closing = _estimated(missing, timed) if missing else ({}, [])
    for config in configs:
        if stored := found[config.name]:
            yield f"{config.name}  {'recorded' if stored.is_recorded else 'stored'}"
            continue
        state = "begun" if config.name in begun else "to do"
        yield f"{config.name}  {state}" + (f"  {duration(seconds[config.name])}" if config.name in seconds else "")
    yield from closing


def _estimated(missing: Sequence[RunConfig], timed: bool) -> tuple[dict[str, float], list[str]]:
    """Seconds of the runs that an estimate was found for, by name, and the sentences about it."""
    if timed:
        from fcamlib.timing import NUM_STEPS, Stopwatch

        watch = Stopwatch()
        seconds = _seconds(missing, watch.seconds)
        how = f"{NUM_STEPS} training steps and one evaluation of each kind of run were timed just now"
        faults = Counter(filter(None, map(watch.fault, missing)))
        unknown = [f"{counted(number)} cannot be timed: {fault}" for fault, number in faults.items()]
    else:
        runs = [run for group in (store.stored_runs(), store.recorded_runs()) for run in group]
        seconds = like_stored(missing, runs)
        how = "stored runs on the same hardware with the same data, networks and losses were taken as a measure, "
        how += "scaled by their training instances"
        unknown = []
        if left := len(missing) - len(seconds):
            unknown = [
                f"No stored run on this hardware ({', '.join(_devices(missing))}) tells how long {counted(left)} will "
                "take; --estimate trains a few steps and times them."
            ]
    return seconds, [*_total(missing, seconds, how), *unknown]


def like_stored(missing: Sequence[RunConfig], runs: Sequence[Result]) -> dict[str, float]:
    """Seconds of training by name, as far as stored runs tell."""
    known = paces(runs, lambda config: device_name(config.training))
    return _seconds(missing, lambda config: seconds_like_stored(config, known))


def _seconds(configs: Sequence[RunConfig], estimator: Estimator) -> dict[str, float]:
    estimated = ((config.name, estimator(config)) for config in configs)
    return {name: seconds for name, seconds in estimated if seconds is not None}


def _total(missing: Sequence[RunConfig], seconds: dict[str, float], how: str) -> list[str]:
    """The sentence of the total."""
    if not seconds:
        return []
    whole = counted(len(missing)) if len(seconds) == len(missing) else f"{len(seconds)} of {counted(len(missing))}"
    devices = ", ".join(_devices(missing))
    return [
        f"In all {duration(sum(seconds.values()))} of training for {whole} not stored, one after the other, on "
        f"{devices}: {how}."
    ]


def _devices(configs: Sequence[RunConfig]) -> list[str]:
    return sorted({device_name(config.training) for config in configs})
