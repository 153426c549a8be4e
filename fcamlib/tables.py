"""Results -> tables: one long table, one formatter of means with intervals, one table of provenance.

`frame` puts results of any kind into one long table, a row a measure; `means` makes a table for readers of it. What is
compared differs in nothing but paradigm and seed: `tasks` groups results by what their configs share.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcamlib import claims as claim_tests
from fcamlib import store
from fcamlib.claims import Criterion, Evidence, gain_frame, verdict
from fcamlib.metrics import PairedTest, corrected_t_test, t_interval
from fcamlib.paradigms import label_of
from fcamlib.provenance import figure_record

ORDER = ("soft", "hard", "lvml", "hybrid")  # of the paper; others follow
METRICS = ("accuracy", "focus_accuracy", "saif")
MEASURES = (*METRICS, "ftpt")
TRUTHLESS = ("accuracy", "auc", "calibration_error", "loss", "attention_entropy")  # need no truth about segments
AGREEMENT = ("token_f1", "auprc", "comprehensiveness", "sufficiency")  # with rationales
BLEU = ("bleu1", "bleu2", "bleu3", "bleu4")  # in percent
OBJECTS = ("saif", "a_z", "s_y", "focus_accuracy", "mentioned")  # of captions
CAPTIONS = ["bleu4", "a_z", "s_y", "saif"]  # over the epochs
TITLES = {
    "accuracy": "accuracy",
    "focus_accuracy": "focus accuracy", "saif": "SAIF", "ftpt": "FTPT", "auc": "AUC", "loss": "training loss",
    "calibration_error": "calibration error", "attention_entropy": "attention entropy", "token_f1": "token F1",
    "auprc": "AUPRC", "cider": "CIDEr", **{f"bleu{order}": f"BLEU-{order}" for order in range(1, 5)},
    "num_segments": "m", "soft_share": "soft share", "learning_rate": "learning rate",
}  # fmt: skip
PAIRS = (("hybrid", "soft"), ("hybrid", "hard"), ("lvml", "soft"), ("soft", "abmil"), ("hybrid", "abmil"))
Result = Any  # a result of the store: config, history, summary, arrays, folder, is_recorded
LABELS = {name: label_of(name) for name in (*ORDER, "logit_mixture")}  # alias, to be removed
SETTINGS = ("num_segments", "focus", "classifier", "soft_share", "learning_rate")  # columns of a study
_OF_THE_MACHINE = ("training.precision", "training.memory_layout", "training.threads", "training.device")


# --- groups ---------------------------------------------------------------------------------------------------------


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
            return f"{name}, m = {numbers}, {mosaics}, {len(config)} trainings over {len(config.seeds)} seed{plural}"
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
    parts = [(json.loads(key), tag, part) for key, group in groups.items() for tag, part in _parts(group).items()]
    titled: dict[str, list[tuple[dict[str, Any], str, list[Result]]]] = {}
    for shared, tag, part in parts:
        titled.setdefault(title(part[0]) + tag, []).append((shared, tag, part))
    found = {}
    for name, alike in titled.items():
        for shared, _, part in alike:
            found[name + _apart(shared, [other for other, *_ in alike])] = sorted(part, key=_seed)
    return {name: found[name] for name in sorted(found, key=_by_numbers)}


def _parts(group: Sequence[Result]) -> dict[str, list[Result]]:
    return _by_schedule(group) if hasattr(group[0].config, "phases") else {"": list(group)}


def _seed(result: Result) -> int:
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


# --- one long table, and what readers see of it ---------------------------------------------------------------------


def frame(results: Iterable[Result], split: str = "test") -> pd.DataFrame:
    """A row for each measure of each training, in the paper's order of paradigms.

    Returns
    -------
    Columns task, paradigm, seed, what varies within a study, measure, value. Of a cross-validation `paradigm` is the
    method and `seed` the repeat, with the mean over folds weighted by their test bags. A measure that a training does
    not have, as one that diverged, is NaN.
    """
    results = list(results)
    names = ordered(getattr(result.config, "paradigm", "") for result in results)
    results.sort(key=lambda result: (names.index(getattr(result.config, "paradigm", "")), _seed(result)))
    return pd.concat([_rows(result, split).assign(task=title(result)) for result in results], ignore_index=True)


def _rows(result: Result, split: str) -> pd.DataFrame:
    history = result.history
    if kind(result) == "study":
        keys = [*varied(result), "paradigm", "seed"]
        return history[[*keys, *METRICS, "loss"]].melt(keys, var_name="measure")
    if kind(result) == "cross-validation":
        keys, names = ["method", "repeat"], [name for name in TITLES if name in history]
        long = history.melt([*keys, "n"], names, "measure").dropna(subset="value")
        sums = long.assign(value=long["value"] * long["n"]).groupby([*keys, "measure"])[["value", "n"]].sum()
        rows = (sums["value"] / sums["n"]).rename("value").reset_index()
        place = {name: number for number, name in enumerate(ordered(rows["method"]))}
        rows = rows.sort_values("method", key=lambda names: names.map(place), kind="stable")
        return rows.rename(columns={"method": "paradigm", "repeat": "seed"})
    found = result.summary["splits"].get(split, {}) | (result.summary.get("agreement", {}) if split == "test" else {})
    values = {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
    rows = pd.DataFrame({"measure": list(values), "value": list(values.values())})
    return rows.assign(paradigm=result.config.paradigm, seed=result.config.seed)


def varied(study: Result) -> list[str]:
    """The columns of a study that tell its trainings apart, beside paradigm and seed.

    Learning rates that were chosen on validation differ between seeds, and are no setting.
    """
    rows = study.history
    found = [name for name in SETTINGS if rows[name].nunique() > 1]
    if rows.loc[rows["paradigm"] == "hybrid", "soft_share"].nunique() < 2:
        found = [name for name in found if name != "soft_share"]
    others = [name for name in SETTINGS if name != "learning_rate"]
    if not rows.duplicated([*others, "paradigm", "seed"]).any():
        found = [name for name in found if name != "learning_rate"]
    return found


def means(
    table: pd.DataFrame,
    by: Sequence[str] = (),
    measures: Sequence[str] = MEASURES,
    digits: int = 3,
    spread: Literal["t", "sd"] = "t",
) -> pd.DataFrame:
    """Mean over seeds of each measure of `frame`, with its interval; "-" where it is not known.

    One row for each combination of the columns `by`, without them of what varies and paradigm. The repeats of a
    cross-validation share their data and have no interval: `spread="sd"` shows their standard deviation.
    """
    by = list(by) or [*(name for name in SETTINGS if name in table), "paradigm"]
    rows = []
    for key, group in table.groupby(by, sort=False, dropna=False):
        known = group[group["measure"].isin(measures)].dropna(subset="value")
        seeds, finished = group["seed"].nunique(), known["seed"].nunique()
        row = dict(zip(by, key, strict=True)) | {
            "seeds" if spread == "t" else "repeats": str(seeds) if finished == seeds else f"{finished} of {seeds}"
        }
        for measure in measures:
            values = known.loc[known["measure"] == measure, "value"].to_numpy(dtype=np.float64)
            row[measure] = _estimate(values, digits, spread) if len(values) else "-"
        rows.append(row | ({"paradigm": label(str(row["paradigm"]))} if "paradigm" in row else {}))
    return pd.DataFrame(rows).rename(columns=TITLES).set_index([TITLES.get(name, name) for name in by])


def _estimate(values: NDArray[np.float64], digits: int, spread: str) -> str:
    if spread == "t" or len(values) == 1:
        return interval_text(values, digits)
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}"


def interval_text(values: NDArray[np.float64], digits: int = 3) -> str:
    """A mean with its 95 % t-interval over seeds, as a table shows it."""
    return _limits_text(t_interval(values), digits)


def _limits_text(limits: Sequence[float], digits: int, sign: str = "") -> str:
    """Mean, low and high; one value has no interval. No minus stands before a zero."""
    mean, low, high = (f"{round(value, digits) + 0.0:{sign}.{digits}f}" for value in limits)
    return mean if np.isnan(limits[1]) else f"{mean} [{low}, {high}]"


def summary_frame(results: Iterable[Result], measures: Sequence[str] = ("accuracy", "saif")) -> pd.DataFrame:
    """Means with their limits as numbers, for `plots.accuracy_saif_summary`: a row a task, paradigm and measure."""
    parts = [frame(group).assign(task=name) for name, group in tasks(results).items()]
    known = pd.concat(parts).query("measure in @measures").dropna(subset="value")
    rows = [
        (*key, *t_interval(group["value"]), len(group))
        for key, group in known.groupby(["task", "paradigm", "measure"], sort=False)
    ]
    return pd.DataFrame(rows, columns=["dataset", "paradigm", "metric", "mean", "low", "high", "n"])


def markdown(table: pd.DataFrame) -> str:
    """A table in Markdown, its index as the first column."""
    rows = [[str(table.index.name or ""), *map(str, table.columns)], ["---"] * (len(table.columns) + 1)]
    rows += [[str(name), *map(str, row)] for name, row in zip(table.index, table.to_numpy(), strict=True)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def provenance(results: Iterable[Result]) -> pd.DataFrame:
    """Where numbers come from: commit, date, machine, seconds of training; of what was computed here, only that."""
    rows = {}
    for result in results:
        source, config = result.summary["provenance"], result.config
        settings = getattr(config, "training", config)
        seconds = source.get("train_seconds") or source["last_session_seconds"]
        rows[result.folder.name] = (
            {"commit": source["commit"] or "none", "date": source["date"]}
            | {"device": f"{source['device']}, {settings.threads} thread(s)"}
            | {"precision": getattr(settings, "precision", ""), "torch": source["packages"]["torch"]}
            | {"seconds": str(round(seconds))}
            if result.is_recorded
            else {"commit": "computed here"}
        )
    return pd.DataFrame.from_dict(rows, orient="index").fillna("").rename_axis("result")


def figure_provenance(results: Iterable[Result], notebook: str) -> dict[str, object]:
    """What `plots.save` writes beside a figure: the notebook and the results it was drawn from."""
    return figure_record(notebook, tasks(results))


def recorded(like: Sequence[Result], config: Any = None) -> tuple[str, list[Result]]:
    """Title and results of the recorded task with most results that is of the kind of `like`; else `like`, so titled.

    With `config` it is the recorded result of this config.
    """
    if config is not None:
        found = store.find(config)
        kept = {title(found): [found]} if found and found.is_recorded else {}
    else:
        alike = [r for r in store.recorded(type(like[0].config)) if type(r.config.data) is type(like[0].config.data)]
        kept = tasks(alike)
    if not kept:
        return "nothing of the kind is recorded here, so the above is shown again", list(like)
    name = max(kept, key=lambda name: len(kept[name]))
    return name, kept[name]


def runs_table(runs: Iterable[Result]) -> pd.DataFrame:
    """One row per run: name, where it is kept, test measures, training seconds."""
    rows = []
    for run in runs:
        test = run.summary["splits"]["test"]
        shown = {metric: round(test[metric], 3) if metric in test else "-" for metric in METRICS}
        row = {"run": run.folder.name, "kept": "recorded" if run.is_recorded else "stored", **shown}
        rows.append(row | {"n": test["n"], "seconds": run.summary["provenance"]["train_seconds"]})
    return pd.DataFrame(rows)


# --- runs -----------------------------------------------------------------------------------------------------------


def history_frame(runs: Iterable[Result], measures: Sequence[str] = METRICS, split: str = "test") -> pd.DataFrame:
    """The measured epochs of all runs in one table: epoch, those of the measures that are known, paradigm, seed.

    BLEU is a share here, from 0 to 1 as the other measures are.
    """
    parts = []
    for run in runs:
        part = run.history.rename(columns={f"{split}_{name}": name for name in measures})
        part = part[["epoch", *(name for name in measures if name in part)]].dropna()
        part = part.assign(**{name: part[name] / 100 for name in part if name.startswith("bleu")})
        parts.append(part.assign(paradigm=run.config.paradigm, seed=run.config.seed))
    return pd.concat(parts, ignore_index=True)


def history_table(history: pd.DataFrame, measure: str = "focus_accuracy") -> pd.DataFrame:
    """Mean of a measure over seeds at the first epoch, a fifth, half and the end of training; empty if not known."""
    last = int(history["epoch"].max())
    rows = history[history["epoch"].isin({1, max(1, last // 5), max(1, last // 2), last} if measure in history else ())]
    table = rows.assign(**{measure: rows.get(measure)}).groupby(["paradigm", "epoch"])[measure].mean().unstack()
    table = table.loc[ordered(table.index)].rename(
        index=lambda name: label(str(name)), columns=lambda epoch: f"epoch {epoch}"
    )
    return table.rename_axis(columns=TITLES.get(measure, measure)).round(3)


def switch_epoch(runs: Iterable[Result]) -> int | None:
    """Last epoch of the hybrid's first phase, None without a hybrid."""
    return next((run.config.phases[0].epochs for run in runs if run.config.paradigm == "hybrid"), None)


def of_split(runs: Sequence[Result], name: str, split: str = "test") -> dict[str, NDArray[np.float64]]:
    """Paradigm -> a measure of a split by seed, (R, ...): a number, `saif_curve` or `histogram`.

    Only paradigms whose runs all know it.
    """
    found = {}
    for paradigm in paradigms(runs):
        own = sorted((run for run in runs if run.config.paradigm == paradigm), key=_seed)
        values = [run.summary["splits"][split].get(name) for run in own]
        if all(value is not None for value in values):
            found[paradigm] = np.array(values, dtype=np.float64)
    return found


def histograms(
    runs: Sequence[Result], splits: Sequence[str] = ("train", "test")
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Split -> paradigm -> mean over seeds of the (a_z, s_y) histogram in percent; splits without truth left out."""
    found = {split: of_split(runs, "histogram", split) for split in splits}
    return {split: {name: cells.mean(axis=0) for name, cells in own.items()} for split, own in found.items() if own}


def histogram_table(runs: Sequence[Result], split: str = "test") -> pd.DataFrame:
    """The cells that the claims speak of, in percent of instances or objects, mean over seeds."""
    rows = {}
    for paradigm, cells in histograms(runs, (split,)).get(split, {}).items():
        high, last = {5: 0.8, 3: 0.3}[len(cells)], len(cells) - 1
        rows[label_of(paradigm)] = {
            f"a_z > {high}, s_y > {high} (SAIF)": cells[last, last],
            f"a_z ≤ {high}, s_y > {high}": cells[:last, last].sum(),
            f"a_z > {high}, s_y ≤ {high}": cells[last, :last].sum(),
            f"both ≤ {high}": cells[:last, :last].sum(),
        }
    return pd.DataFrame.from_dict(rows, orient="index").round(1).rename_axis("paradigm")


# --- claims ---------------------------------------------------------------------------------------------------------


def evidence(runs: Sequence[Result]) -> Evidence:
    """What the claims look at: seeds that every paradigm has, so that differences are paired.

    Of captions BLEU-4 / 100 takes the place of accuracy. Nothing where the foreground is not known.
    """
    common = set.intersection(*({run.config.seed for run in runs if run.config.paradigm == n} for n in paradigms(runs)))
    kept = sorted((run for run in runs if run.config.seed in common), key=_seed)
    saif = of_split(kept, "saif")
    if not kept or set(saif) != set(paradigms(kept)):
        return Evidence({}, {}, {}, {})
    accuracy, curves = of_split(kept, "accuracy"), {}
    if kind(kept[0]) == "captions":
        return Evidence({name: values / 100 for name, values in of_split(kept, "bleu4").items()}, saif, {}, {})
    for name in paradigms(kept):
        own = [run.history for run in kept if run.config.paradigm == name]
        curves[name] = np.array([history["test_focus_accuracy"].dropna().to_numpy() for history in own])
    return Evidence(accuracy, saif, curves, of_split(kept, "histogram"))


def criteria(runs: Sequence[Result], claims: Iterable[str] = claim_tests.CLAIMS) -> dict[str, list[Criterion]]:
    """Claim -> its criteria on runs of one task; none where a paradigm is missing. Captions have H1 alone."""
    found = evidence(runs)
    if kind(runs[0]) != "captions":
        return claim_tests.measure(claims, found)
    measured = claim_tests.CLAIMS["H1"].measure(found)
    return {"H1": [replace(c, name=c.name.replace("accuracy", "BLEU-4 / 100")) for c in measured]}


def claims_table(measured: Mapping[str, Mapping[str, Sequence[Criterion]]]) -> pd.DataFrame:
    """Source -> claim -> criteria as a table: each claim's verdict on each source, and what was measured.

    A row a criterion: mean and interval, what it needs, the number of seeds.
    """
    rows = []
    for claim in dict.fromkeys(name for found in measured.values() for name in found):
        for source, found in measured.items():
            for c in found.get(claim, ()):
                seeds = "exact" if c.is_exact else str(len(c.values))
                shown = (c.name, interval_text(c.values), f"> {c.bound:g}", seeds)
                rows.append((claim, source, verdict(list(found[claim])), *shown))
            if claim in found and not found[claim]:
                rows.append(
                    (claim, source, verdict([]), "nothing: a paradigm or the foreground is not known", "", "", "0")
                )
    columns = ["id", "on", "verdict", "measured", "mean and interval", "needs", "n"]
    return pd.DataFrame(rows, columns=columns).set_index(["id", "on", "verdict"])


def gain_table(history: pd.DataFrame, by: Sequence[str], digits: int = 3) -> pd.DataFrame:
    """The hybrid's gain and the verdict on the claim H1 as text, one row for each combination of `by`."""
    rows = []
    for row in gain_frame(history, by).to_dict("records"):
        shown = {TITLES.get(name, name): row[name] for name in by}
        for metric in ("saif", "accuracy"):
            limits = [row[f"{metric}{end}"] for end in ("", "_low", "_high")]
            shown[f"{TITLES[metric]} gain"] = "-" if np.isnan(limits[0]) else _limits_text(limits, digits, "+")
        rows.append(shown | {"H1": row["verdict"], "n": row["n"]})
    return pd.DataFrame(rows).set_index([TITLES.get(name, name) for name in by])


def paired_table(
    results: Sequence[Result], measure: str = "accuracy", pairs: Sequence[tuple[str, str]] = PAIRS, digits: int = 3
) -> pd.DataFrame:
    """Differences of methods on the same folds, by data set, with the corrected t-test; pairs that were run."""
    rows = []
    for name, history in fold_histories(results).items():
        for first, second in pairs:
            if not {first, second} <= set(history["method"]):
                continue
            t = paired_test(history, measure, first, second)
            found = "no difference found" if t.low <= 0 <= t.high else "higher" if t.low > 0 else "lower"
            rows.append(
                {"data": name, "comparison": f"{label(first)} - {label(second)}"}
                | {"difference": f"{t.difference:+.{digits}f}"}
                | {"95 % interval": f"[{t.low:+.{digits}f}, {t.high:+.{digits}f}]", "p": f"{t.p:.2g}"}
                | {"p (Wilcoxon)": "-" if t.p_wilcoxon is None else f"{t.p_wilcoxon:.2g}", "verdict": found}
            )
    columns = ["data", "comparison", "difference", "95 % interval", "p", "p (Wilcoxon)", "verdict"]
    return pd.DataFrame(rows, columns=columns).set_index(["data", "comparison"])


def paired_test(history: pd.DataFrame, measure: str, first: str, second: str) -> PairedTest:
    """The test of `first` less `second` over the folds that both have."""
    wide = history.pivot(index=["repeat", "fold"], columns="method", values=measure)[[first, second]].dropna()
    difference = wide[first] - wide[second]
    sizes = history[history["method"] == first].groupby("repeat")["n"]
    num_test, num_bags = float(sizes.mean().mean()), float(sizes.sum().mean())
    by_repeat = difference.groupby("repeat").mean().to_numpy(dtype=np.float64)
    return corrected_t_test(difference.to_numpy(dtype=np.float64), num_test / (num_bags - num_test), by_repeat)


def fold_histories(results: Iterable[Result]) -> dict[str, pd.DataFrame]:
    """Title of each data set -> the rows of its cross-validation, of several the one with most repeats."""
    found: dict[str, pd.DataFrame] = {}
    for result in sorted(results, key=lambda r: (r.config.repeats, len(r.config.methods), r.folder.name)):
        found[result.summary["title"]] = result.history
    return dict(sorted(found.items()))
