"""Groups of comparable results: those whose configs differ only in paradigm and seed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from fcamlib import store
from fcamlib.paradigms import label_of

Result = Any  # a result of the store: config, history, summary, arrays, folder, is_recorded
ORDER = ("soft", "hard", "lvml", "hybrid")  # the paper's order; others follow
MACHINE = {"precision", "memory_layout", "threads", "device"}  # settings of the training


def kind(result: Result) -> str:
    """run, captions, fixed_focus, study or cross-validation."""
    return str(getattr(result.config, "kind", "run"))


def seed(result: Result) -> int:
    """The seed of a run; 0 for results over several seeds."""
    return int(getattr(result.config, "seed", 0))


def label(name: str) -> str:
    """The label of a paradigm, a schedule or a method of a cross-validation."""
    return {"abmil": "ABMIL", "gated-abmil": "gated ABMIL"}.get(name) or label_of(name)


def ordered(names: Iterable[str]) -> list[str]:
    """Distinct names of paradigms in the paper's order, then others by name."""
    return sorted(set(names), key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))


def paradigms(results: Iterable[Result]) -> list[str]:
    """The paradigms among runs, in the paper's order."""
    return ordered(result.config.paradigm for result in results)


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is 1."""
    return f"{number} {noun}{'s' * (number != 1)}"


def title(result: Result) -> str:
    """One line that describes the task of a result."""
    config, name = result.config, str(result.summary["title"])
    match kind(result):
        case "cross-validation":
            return f"{name}, {config.repeats} cross-validations of {config.folds} folds"
        case "study":
            *fewer, most = dict.fromkeys(sum(phase.epochs for phase in phases) for phases in config.schedules)
            epochs = ", ".join([*map(str, fewer), counted(most, "epoch")])
            first, *others = config.tasks
            numbers = ", ".join(f"{task.num_segments:,}" for task in config.tasks) if others else ""
            data = f"m = {numbers}, {first.num_train:,} {first.noun}" if others else first.described
            trainings = f"{counted(config.steps, 'training')} over {counted(len(config.seeds), 'seed')}"
            return f"{name}, {data}, {epochs}, {trainings}"
        case "fixed_focus":
            return f"{name}, {config.data.described}, {counted(config.epochs, 'epoch')}"
        case "captions":
            network = f"state sees the {config.model.state_sees}"
        case _:
            network = config.model.encoder
    epochs = counted(sum(phase.epochs for phase in config.phases), "epoch")
    if getattr(config.phases[0], "optimizer", "") == "adam":
        epochs += " with Adam"
    return ", ".join(filter(None, [name, config.data.described, network, epochs]))


def tasks(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Title -> results whose configs differ only in paradigm and seed, sorted by seed.

    Whole numbers in titles sort by size. Differing settings are appended to equal titles. If runs of a paradigm differ
    in their phases, each learning rate and each switch of a hybrid is a separate task.
    """
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(json.dumps(_shared(result), sort_keys=True), []).append(result)
    flat: dict[str, Any] = {shared: pd.json_normalize(json.loads(shared)).iloc[0].to_dict() for shared in groups}
    parts = [
        (title(part[0]) + tag, flat[shared], part)
        for shared, group in groups.items()
        for tag, part in _by_schedule(group).items()
    ]
    found = {}
    for name, shared, part in parts:
        alike = [other for its_name, other, _ in parts if its_name == name]
        apart = [field for field in shared if any(other.get(field) != shared[field] for other in alike)]
        tags = [f", {field.rsplit('.', 1)[-1].replace('_', ' ')} {shared[field]}" for field in apart]
        found["".join([name, *tags])] = sorted(part, key=seed)
    return {name: found[name] for name in sorted(found, key=_by_numbers)}


def _by_numbers(name: str) -> list[str | int]:
    """Words and numbers of a title, alternating, so that m = 5 sorts before m = 20."""
    parts = re.split(r"(\d(?:[\d,]*\d)?)", name)
    return [int(part.replace(",", "")) if place % 2 else part for place, part in enumerate(parts)]


def _shared(result: Result) -> dict[str, Any]:
    """What results of one task share: the config without paradigm, rates, seed and settings of the machine."""
    kept: dict[str, Any] = result.config.portable.model_dump(
        mode="json", exclude={"seed": True, "phases": True, "training": MACHINE}
    )
    if phases := getattr(result.config, "phases", ()):
        kept["epochs"] = sum(phase.epochs for phase in phases)
        kept["optimizer"] = [getattr(phases[0], name, None) for name in ("optimizer", "momentum")]
    return kept


def _by_schedule(group: Sequence[Result]) -> dict[str, list[Result]]:
    """Parts in which each paradigm has one schedule, by their difference; a paradigm with one schedule is in all parts.

    Runs are first separated by the rates of their first phase, then by the rest.
    """
    parts = {"": list(group)}
    for described in (_first_rates, _phases) if hasattr(group[0].config, "phases") else ():
        for tag, part in list(parts.items()):
            found = {name: {described(run) for run in part if run.config.paradigm == name} for name in paradigms(part)}
            several = {text for texts in found.values() if len(texts) > 1 for text in texts}
            joining = [name for name, texts in found.items() if not texts & several]
            for text in sorted(several):
                parts[f"{tag}, {text}"] = [r for r in part if described(r) == text or r.config.paradigm in joining]
            if several:
                del parts[tag]
    return parts


def _first_rates(run: Result) -> str:
    return f"learning rate {_rates(run.config.phases[0])}"


def _phases(run: Result) -> str:
    told = (f"{counted(phase.epochs, 'epoch')} at {_rates(phase)}" for phase in run.config.phases)
    return ", then ".join(told)


def _rates(phase: Any) -> str:
    rates = getattr(phase, "learning_rates", None) or (phase.decoder_learning_rate, phase.encoder_learning_rate)
    return "/".join(f"{rate:g}" for rate in rates)


def recorded(like: Sequence[Result], config: Any = None, same: bool = False) -> tuple[str, list[Result]]:
    """Title and results of a recorded task of the same kind as `like`, of its paradigms alone.

    Of several, the one with the largest training set, then most results. With `same`, only the task of `like`; with
    `config`, the recorded result of that config. If nothing is recorded, `like`, with a title that says so.
    """
    kept: dict[str, list[Result]] = {}
    if config is None:
        own, wanted = like[0].config, {getattr(one.config, "paradigm", "") for one in like}
        alike = [r for r in store.every(type(own), recorded=True) if type(r.config.data) is type(own.data)]
        kept = tasks(r for r in alike if getattr(r.config, "paradigm", "") in wanted)
        kept = {name: group for name, group in kept.items() if not same or _shared(group[0]) == _shared(like[0])}
    elif (found := store.find(config)) and found.is_recorded:
        return title(found), [found]
    if not kept:
        return "no result of this kind is recorded here; the results above are shown again", list(like)
    return max(kept.items(), key=lambda task: (task[1][0].config.data.num_train, len(task[1])))
