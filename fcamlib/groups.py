"""Which results are compared: those that differ in nothing but paradigm and seed, as their configs say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from fcamlib.paradigms import label_of

ORDER = ("soft", "hard", "lvml", "hybrid")  # of the paper; others follow
Result = Any  # a result of the store: config, history, summary, arrays, folder, is_recorded
_OF_THE_MACHINE = ("training.precision", "training.memory_layout", "training.threads", "training.device")


def kind(result: Result) -> str:
    """run, captions, fixed_focus, study or cross-validation."""
    return str(getattr(result.config, "kind", "run"))


def title(result: Result) -> str:
    """One line on what a result was trained and tested on."""
    config, name = result.config, str(result.summary["title"])
    match kind(result):
        case "cross-validation":
            return f"{name}, {config.repeats} cross-validations of {config.folds} folds"
        case "study":
            epochs = sum(phase.epochs for phase in config.schedules[0])
            numbers = ", ".join(f"{task.num_segments:,}" for task in config.tasks)
            plural = "s" if len(config.seeds) > 1 else ""
            mosaics = f"{config.tasks[0].num_train:,} mosaics, {epochs} epochs"
            return f"{name}, m = {numbers}, {mosaics}, {config.steps} trainings over {len(config.seeds)} seed{plural}"
        case "fixed_focus":
            return f"{name}, {config.data.described}, {config.epochs} epochs"
    network = getattr(config.model, "encoder", "")
    if kind(result) == "captions":
        network = f"state sees the {config.model.state_sees}"
    epochs = sum(phase.epochs for phase in config.phases)
    return ", ".join(filter(None, [name, config.data.described, network, f"{epochs} epochs"]))


def paradigms(results: Iterable[Result]) -> list[str]:
    """The paradigms among runs, in the order of the paper."""
    return ordered(result.config.paradigm for result in results)


def label(name: str) -> str:
    """The label of a paradigm, a schedule or a method of a cross-validation."""
    return {"abmil": "ABMIL", "gated-abmil": "gated ABMIL"}.get(name) or label_of(name)


def ordered(names: Iterable[str]) -> list[str]:
    """Distinct names of paradigms in the order of the paper, then others by name."""
    present = set(names)
    return [name for name in ORDER if name in present] + sorted(present - set(ORDER))


def tasks(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Title -> results that differ in paradigm and seed alone, sorted by seed; numbers in titles sort by size.

    What the configs share decides, not the title: tasks of one title have what tells them apart behind it. Where runs
    of one paradigm differ in their phases, each learning rate, and each switch of a hybrid, is a task of its own.
    """
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(json.dumps(_shared(result), sort_keys=True), []).append(result)
    parts = [(json.loads(key), tag, part) for key, group in groups.items() for tag, part in _by_schedule(group).items()]
    titled: dict[str, list[tuple[dict[str, Any], str, list[Result]]]] = {}
    for shared, tag, part in parts:
        titled.setdefault(title(part[0]) + tag, []).append((shared, tag, part))
    found = {}
    for name, alike in titled.items():
        for shared, _, part in alike:
            found[name + _apart(shared, [other for other, *_ in alike])] = sorted(part, key=seed)
    return {name: found[name] for name in sorted(found, key=_by_numbers)}


def seed(result: Result) -> int:
    return int(getattr(result.config, "seed", 0))


def _shared(result: Result) -> dict[str, Any]:
    """What results of one task have in common: all of the config but paradigm, rates, seed and the machine's part."""
    config = _flat(result.config.model_dump(mode="json"))
    phases = getattr(result.config, "phases", ())
    kept = {n: v for n, v in config.items() if n != "seed" and not n.startswith("phases") and n not in _OF_THE_MACHINE}
    if phases:
        kept["epochs"] = sum(phase.epochs for phase in phases)
        kept["optimizer"] = [getattr(phases[0], name, None) for name in ("optimizer", "momentum")]
    return kept


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested mappings with dotted names; paths of users' data by their last part, as recorded configs have them."""
    if isinstance(value, dict):
        return {k: v for key, part in value.items() for k, v in _flat(part, f"{name}.{key}".lstrip(".")).items()}
    if name.endswith("source") and isinstance(value, str) and ":" in value:
        value = value.split(":", 1)[0] + ":" + value.rstrip("/").rsplit("/", 1)[-1].split(":", 1)[-1]
    return {name: value}


def _apart(shared: dict[str, Any], alike: Sequence[dict[str, Any]]) -> str:
    """What tells one task from others of its title: empty where it is the only one."""
    names = [name for name in shared if any(other.get(name) != shared[name] for other in alike)]
    return "".join(f", {name.rsplit('.', 1)[-1].replace('_', ' ')} {shared[name]}" for name in names)


def _by_schedule(group: Sequence[Result]) -> dict[str, list[Result]]:
    """Parts in which each paradigm has one schedule, by what tells them apart; a paradigm with one joins all parts.

    Runs that differ in the rates of their first phase come apart first, those that differ in the rest afterwards.
    """
    if not hasattr(group[0].config, "phases"):
        return {"": list(group)}
    for of in (_first_rates, _phases):
        found = {name: {of(run) for run in group if run.config.paradigm == name} for name in paradigms(group)}
        several = {text for texts in found.values() if len(texts) > 1 for text in texts}
        fixed = {name for name, texts in found.items() if len(texts) == 1 and (of is _phases or not texts & several)}
        if several:
            return {
                f", {text}{rest}": part
                for text in sorted(several)
                for rest, part in _by_schedule(
                    [r for r in group if of(r) == text or r.config.paradigm in fixed]
                ).items()
            }
    return {"": list(group)}


def _first_rates(run: Result) -> str:
    first = run.config.phases[0]
    rates = getattr(first, "learning_rates", None) or (first.decoder_learning_rate,)
    return "learning rate " + "/".join(f"{rate:g}" for rate in rates)


def _phases(run: Result) -> str:
    """Every phase with its settings."""
    described = []
    for phase in run.config.phases:
        rates = getattr(phase, "learning_rates", None) or (phase.decoder_learning_rate, phase.encoder_learning_rate)
        described.append(f"{phase.epochs} epochs at {'/'.join(f'{rate:g}' for rate in rates)}")
    return ", then ".join(described)


def _by_numbers(name: str) -> list[str | int]:
    """Words and numbers of a title in turn, so that m = 5 comes before m = 20."""
    parts = re.split(r"(\d(?:[\d,]*\d)?)", name)
    return [int(part.replace(",", "")) if place % 2 else part for place, part in enumerate(parts)]
