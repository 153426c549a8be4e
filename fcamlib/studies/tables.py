"""Tables of studies: means and intervals over seeds, the hybrid's gain, and the claim H1 for each combination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fcamlib import store, tables
from fcamlib.claims import CLAIMS, Criterion, Evidence, verdict
from fcamlib.config import RECORDED_STUDIES, MosaicsConfig, StudyConfig, study_experiment
from fcamlib.metrics import t_interval
from fcamlib.origins import figure_record
from fcamlib.store import Run, Stored
from fcamlib.tables import LABELS, METRICS, interval_text

SETTINGS = ("num_segments", "focus", "classifier", "paradigm", "soft_share", "learning_rate")
NAMES = {
    "num_segments": "m",
    "soft_share": "soft share",
    "learning_rate": "learning rate",
    "focus_accuracy": "focus accuracy",
    "saif": "SAIF",
}


def results_table(history: pd.DataFrame, digits: int = 3) -> pd.DataFrame:
    """Mean and 95 % t-interval over seeds of each measure, one row for each combination of what varies.

    Learning rates that were chosen on validation differ between seeds, and are no setting then.
    """
    fixed = _settings(history)
    rows = []
    for key, group in history.groupby(fixed, sort=False, dropna=False):
        row: dict[str, Any] = dict(zip(fixed, key, strict=True))
        row["paradigm"] = LABELS[row["paradigm"]]
        finished = group.dropna(subset=["saif"])
        row["seeds"] = f"{len(finished)} of {len(group)}" if len(finished) < len(group) else str(len(group))
        row |= {name: interval_text(finished[name].to_numpy(), digits) if len(finished) else "-" for name in METRICS}
        rows.append(row)
    table = pd.DataFrame(rows).rename(columns=NAMES)
    return table.set_index([NAMES.get(name, name) for name in fixed])


def _settings(history: pd.DataFrame) -> list[str]:
    """The columns that say what was trained, those that vary, and always the paradigm."""
    swept = history.groupby(["num_segments", "focus", "classifier", "paradigm", "soft_share", "seed"], dropna=False)
    names = [name for name in SETTINGS if name != "learning_rate" or swept.size().max() > 1]
    shares = history.loc[history["paradigm"] == "hybrid", "soft_share"].nunique() > 1
    return [
        name
        for name in names
        if name == "paradigm" or (history[name].nunique() > 1 and (name != "soft_share" or shares))
    ]


def gain_frame(history: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """What the hybrid gains on SA and HA for each combination of `by`: for `plots.gain_heatmap` and `gain_table`.

    A gain is the hybrid's measure less the better of SA's and HA's with the same seed; seeds in which one of the three
    diverged are left out. One row per combination: mean and 95 % t-interval of the gain in SAIF and in accuracy, the
    verdict on the claim H1 and n, the number of seeds.
    """
    rows = []
    for key, group in history.groupby(list(by), sort=False):
        found = _evidence(group)
        row: dict[str, Any] = dict(zip(by, key, strict=True))
        for metric in ("saif", "accuracy"):
            values = getattr(found, metric)
            gain = values["hybrid"] - np.maximum(values["soft"], values["hard"])
            interval = t_interval(gain) if len(gain) else (np.nan, np.nan, np.nan)
            row |= dict(zip((metric, f"{metric}_low", f"{metric}_high"), interval, strict=True))
        rows.append(row | {"verdict": verdict(_criteria(found)), "n": len(found.saif["hybrid"])})
    return pd.DataFrame(rows)


def gain_table(history: pd.DataFrame, by: Sequence[str], digits: int = 3) -> pd.DataFrame:
    """The hybrid's gain and the verdict on the claim H1 as text, one row for each combination of `by`."""
    rows = []
    for row in gain_frame(history, by).to_dict("records"):
        shown = {NAMES.get(name, name): row[name] for name in by}
        for metric in ("saif", "accuracy"):
            mean, low, high = (row[f"{metric}{end}"] for end in ("", "_low", "_high"))
            limits = "" if np.isnan(low) else f" [{_signed(low, digits)}, {_signed(high, digits)}]"
            shown[f"{NAMES.get(metric, metric)} gain"] = "-" if np.isnan(mean) else f"{_signed(mean, digits)}{limits}"
        rows.append(shown | {"H1": row["verdict"], "n": row["n"]})
    return pd.DataFrame(rows).set_index([NAMES.get(name, name) for name in by])


def _signed(value: float, digits: int) -> str:
    return f"{round(value, digits) + 0.0:+.{digits}f}"  # no minus before a zero


def by_switch(history: pd.DataFrame) -> pd.DataFrame:
    """The rows with those of SA and HA once for each switch of the hybrid, so that `soft_share` tells gains apart."""
    others = history[history["paradigm"] != "hybrid"]
    shares = np.sort(history.loc[history["paradigm"] == "hybrid", "soft_share"].unique())
    return pd.concat([history[history["paradigm"] == "hybrid"], *(others.assign(soft_share=share) for share in shares)])


def verdict_counts(history: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """How many combinations of `by` have each verdict on the claim H1."""
    counts = gain_frame(history, by)["verdict"].value_counts()
    return pd.DataFrame({"combinations": counts}).rename_axis("H1")


def criteria(history: pd.DataFrame, by: Sequence[str]) -> list[Criterion]:
    """The criteria of H1 for each combination of `by`, one after the other; the combination stands before the name."""
    return [
        replace(criterion, name=f"{_combination(key)}: {criterion.name}")
        for key, group in history.groupby(list(by), sort=False)
        for criterion in _criteria(_evidence(group))
    ]


def _combination(values: tuple[Any, ...]) -> str:
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def _evidence(history: pd.DataFrame) -> Evidence:
    """Accuracy and SAIF of SA, HA and hybrid, seed by seed, where all three have finished."""
    tables = {
        metric: history.pivot(index="seed", columns="paradigm", values=metric)[["soft", "hard", "hybrid"]].dropna()
        for metric in ("accuracy", "saif")
    }
    columns = {metric: {str(p): table[p].to_numpy() for p in table} for metric, table in tables.items()}
    return Evidence(columns["accuracy"], columns["saif"], {}, {})


def _criteria(found: Evidence) -> list[Criterion]:
    return CLAIMS["H1"].measure(found) if len(found.saif["hybrid"]) else []


def chance(history: pd.DataFrame, num_classes: int) -> dict[str, np.ndarray]:
    """What guessing gives at each number of segments, rising: one of the classes, and one of the places."""
    numbers = np.sort(history["num_segments"].unique())
    return {"accuracy": np.full(len(numbers), 1 / num_classes), "focus_accuracy": 1 / numbers}


def focus_table(history: pd.DataFrame, digits: int = 3) -> pd.DataFrame:
    """Whether each paradigm finds the foreground at each number of segments.

    "yes" where the 95 % t-interval of focus accuracy over seeds lies above one half, "better than guessing" where it
    lies above one in m, "no" where it does not, and "one seed" where there is no interval.
    """
    rows = []
    for _, group in history.groupby(["num_segments", "paradigm"], sort=False):
        number, paradigm = int(group["num_segments"].iloc[0]), str(group["paradigm"].iloc[0])
        values = group["focus_accuracy"].dropna().to_numpy()
        low = t_interval(values)[1] if len(values) else np.nan
        found = "yes" if low > 0.5 else "better than guessing" if low > 1 / number else "no"
        rows.append(
            {"m": number, "paradigm": LABELS[paradigm], "guessing": round(1 / number, 4)}
            | {"focus accuracy": interval_text(values, digits) if len(values) else "-"}
            | {"finds it": "one seed" if np.isnan(low) else found}
        )
    return pd.DataFrame(rows).set_index(["m", "paradigm"])


def recorded_or(name: str, computed: Stored[StudyConfig]) -> tuple[str, Stored[StudyConfig]]:
    """Title and rows of a study that is kept with the source; where it is not, of the one computed here, so titled."""
    stored = store.find(study_experiment(RECORDED_STUDIES[name]).config())
    if stored is None or not stored.is_recorded:
        return "no such study is recorded here, so the one above is shown again", computed
    return f"recorded: {title(stored)}", stored


def title(found: Stored[StudyConfig]) -> str:
    """One line on what a study was trained and tested on."""
    config, epochs = found.config, sum(phase.epochs for phase in found.config.schedules[0])
    numbers = ", ".join(f"{task.num_segments:,}" for task in config.tasks if isinstance(task, MosaicsConfig))
    mosaics = getattr(config.tasks[0], "num_train", 0)
    return (
        f"{found.summary['title']}, m = {numbers}, {mosaics:,} mosaics, {epochs} epochs, "
        f"{len(config)} trainings over {len(config.seeds)} seed{'s' if len(config.seeds) > 1 else ''}"
    )


def networks_table(history: pd.DataFrame) -> pd.DataFrame:
    """How many numbers each network learns, as focus and as classification network."""
    found = {
        role: history.drop_duplicates(role).set_index(role)[f"{role}_parameters"] for role in ("focus", "classifier")
    }
    table = pd.DataFrame(found).rename_axis("network").astype("Int64").sort_values(["focus", "classifier"])
    return table.rename(columns={"focus": "as focus network", "classifier": "as classification network"})


def pictures_table(numbers: Sequence[int]) -> pd.DataFrame:
    """Recorded runs on mosaics of natural pictures at each number of segments; "not run" where there are none."""
    rows = []
    for number in numbers:
        runs = [run for run in tables.on_mosaics(store.recorded_runs()) if _num_segments(run) == number]
        for name, group in tables.tasks(runs).items() if runs else ():
            found = tables.results_table(group)[["seeds", "accuracy", "focus accuracy", "SAIF"]].reset_index()
            task = name.replace(f", m = {number}", "")
            rows += [{"m": number, "task": task, **row} for row in found.to_dict("records")]
        if not runs:
            rows.append({"m": number, "task": "not run", "paradigm": "", "seeds": 0})
    return pd.DataFrame(rows).fillna("-").set_index(["m", "task", "paradigm"])


def _num_segments(run: Run) -> int:
    return int(getattr(run.config.data, "num_segments", 0))


def provenance(notebook: str, found: Stored[StudyConfig]) -> dict[str, object]:
    """What `plots.save` writes beside a figure: the notebook and the study that it was drawn from."""
    return figure_record(notebook, {title(found): [found]})


def provenance_table(found: Sequence[Stored[StudyConfig]]) -> pd.DataFrame:
    """Where recorded numbers come from; of a study that this machine computed, only that."""
    rows = []
    for study in found:
        source = study.summary["provenance"]
        if not study.is_recorded:
            rows.append({"study": study.folder.name, "commit": "computed here"})
            continue
        row = {"study": study.folder.name, "commit": source["commit"] or "none", "date": source["date"]}
        device = f"{source['device']}, {study.config.training.threads} thread(s)"
        row |= {"device": device, "torch": source["packages"]["torch"], "seconds": str(round(source["train_seconds"]))}
        rows.append(row)
    return pd.DataFrame(rows).drop_duplicates().fillna("").set_index("study")
