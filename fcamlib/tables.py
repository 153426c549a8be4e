"""Tables of runs: what figures, claims and pages are made of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcamlib.claims import CLAIMS, Evidence, Verdict, verdict
from fcamlib.config import SCHEDULES, MosaicsConfig
from fcamlib.errors import UserError
from fcamlib.metrics import t_interval
from fcamlib.origins import figure_record
from fcamlib.store import Run

LABELS = {"soft": "SA", "hard": "HA", "lvml": "LVML", "hybrid": "hybrid", "logit_mixture": "logit mixture"}
METRICS = ("accuracy", "focus_accuracy", "saif")


def paradigms(runs: Sequence[Run]) -> list[str]:
    """The paradigms among `runs`, in the order of the paper."""
    present = {run.config.paradigm for run in runs}
    return [name for name in SCHEDULES if name in present] + sorted(present - set(SCHEDULES))


def tasks(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by task, so that what is compared differs in nothing but paradigm and seed.

    The key says which task: data, number of segments, training mosaics and epochs. Numbers in it sort by their size.
    """
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(task_title(run), []).append(run)
    return {title: sorted(grouped[title], key=lambda r: r.config.seed) for title in sorted(grouped, key=_by_numbers)}


def _by_numbers(title: str) -> list[str | int]:
    """Words and numbers of a title in turn, so that m = 5 comes before m = 20."""
    parts = re.split(r"(\d(?:[\d,]*\d)?)", title)
    return [int(part.replace(",", "")) if place % 2 else part for place, part in enumerate(parts)]


def task_title(run: Run) -> str:
    """One line on what a run was trained and tested on."""
    data, epochs = run.config.data, sum(phase.epochs for phase in run.config.phases)
    encoder = f", {run.config.model.encoder}" if run.config.model.encoder else ""
    return f"{run.summary['title']}, {data.described}{encoder}, {epochs} epochs"


def runs_table(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per run: name, where it is kept, test measures, training seconds."""
    rows = []
    for run in runs:
        test = run.summary["splits"]["test"]
        rows.append(
            {"run": run.folder.name, "kept": "recorded" if run.is_recorded else "stored"}
            | {metric: round(test[metric], 3) if metric in test else "-" for metric in METRICS}
            | {"n": test["n"], "seconds": run.summary["provenance"]["train_seconds"]}
        )
    return pd.DataFrame(rows)


def results_table(runs: Sequence[Run], split: str = "test", digits: int = 3) -> pd.DataFrame:
    """Mean and 95 % t-interval over seeds of each measure, one row per paradigm; "-" where it is not known.

    Without a known foreground the measures of the focus are not.
    """
    rows = []
    for paradigm in paradigms(runs):
        values = {metric: _final(runs, paradigm, metric, split) for metric in (*METRICS, "ftpt")}
        row = {"paradigm": LABELS.get(paradigm, paradigm), "seeds": len(values["accuracy"])}
        names = {"focus_accuracy": "focus accuracy", "saif": "SAIF", "ftpt": "FTPT"}
        rows.append(row | {names.get(m, m): interval_text(v, digits) if v.size else "-" for m, v in values.items()})
    return pd.DataFrame(rows).set_index("paradigm")


def truthless_table(runs: Sequence[Run], split: str = "test", digits: int = 3) -> pd.DataFrame:
    """The measures that need no truth about segments: mean and 95 % t-interval over seeds, one row per paradigm.

    "-" where a measure is not defined, as the AUC is where a split lacks a class.
    """
    names = {"accuracy": "accuracy", "auc": "AUC", "calibration_error": "calibration error", "loss": "training loss"}
    names |= {"attention_entropy": "attention entropy"}
    rows = {}
    for paradigm in paradigms(runs):
        values = {shown: _final(runs, paradigm, metric, split) for metric, shown in names.items()}
        shown = {name: interval_text(v, digits) if v.size else "-" for name, v in values.items()}
        rows[LABELS.get(paradigm, paradigm)] = {"seeds": len(_of(runs, paradigm)), **shown}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("paradigm")


def markdown(table: pd.DataFrame) -> str:
    """A table in Markdown, its index as the first column."""
    rows = [[str(table.index.name or ""), *map(str, table.columns)], ["---"] * (len(table.columns) + 1)]
    rows += [[str(name), *map(str, row)] for name, row in zip(table.index, table.to_numpy(), strict=True)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def interval_text(values: NDArray[np.float64], digits: int = 3) -> str:
    """A mean with its 95 % t-interval over seeds, as a table shows it."""
    mean, low, high = t_interval(values)
    return f"{mean:.{digits}f}" + ("" if np.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]")


def summary_frame(grouped: dict[str, list[Run]]) -> pd.DataFrame:
    """Accuracy and SAIF on test data for `plots.accuracy_saif_summary`: one row per task, paradigm and metric."""
    rows = []
    for dataset, runs in grouped.items():
        for paradigm in paradigms(runs):
            for metric in ("accuracy", "saif"):
                values = _final(runs, paradigm, metric, "test")
                if values.size == 0:  # not known on this task
                    continue
                mean, low, high = t_interval(values)
                rows.append((dataset, paradigm, metric, mean, low, high, len(values)))
    return pd.DataFrame(rows, columns=["dataset", "paradigm", "metric", "mean", "low", "high", "n"])


def history_frame(runs: Sequence[Run], split: str = "test") -> pd.DataFrame:
    """Epochs of all runs in one table for `plots.learning_curves`: paradigm, seed, epoch and the measures."""
    parts = []
    for run in runs:
        history = run.history.rename(columns={f"{split}_{metric}": metric for metric in METRICS})
        part = history[["epoch", *(metric for metric in METRICS if metric in history)]].dropna()
        parts.append(part.assign(paradigm=run.config.paradigm, seed=run.config.seed))
    return pd.concat(parts, ignore_index=True)


def switch_epoch(runs: Sequence[Run]) -> int | None:
    """Last epoch of the hybrid's soft phase, None without a hybrid."""
    return next((run.config.phases[0].epochs for run in runs if run.config.paradigm == "hybrid"), None)


def saif_curves(runs: Sequence[Run], split: str = "test") -> dict[str, NDArray[np.float64]]:
    """Paradigm -> SAIF of each seed at each threshold 0, 0.01, ..., 1: (R, 101)."""
    return {p: np.array([_split(run, split)["saif_curve"] for run in _of(runs, p)]) for p in paradigms(runs)}


def histograms(
    runs: Sequence[Run], splits: Sequence[str] = ("train", "test")
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Split -> paradigm -> mean over seeds of the (a_z, s_y) histogram in percent: (5, 5)."""
    return {
        split: {p: np.mean([_split(run, split)["histogram"] for run in _of(runs, p)], axis=0) for p in paradigms(runs)}
        for split in splits
    }


def histogram_table(runs: Sequence[Run], split: str = "test") -> pd.DataFrame:
    """The cells that the claims speak of, in percent of instances, mean over seeds."""
    rows = {}
    for paradigm, cells in histograms(runs, (split,))[split].items():
        rows[LABELS.get(paradigm, paradigm)] = {
            "a_z > .8, s_y > .8 (SAIF)": cells[4, 4],
            "a_z ≤ .8, s_y > .8": cells[:4, 4].sum(),
            "a_z < .2 or > .8": cells[(0, 4), :].sum(),
            "s_y < .2 or > .8": cells[:, (0, 4)].sum(),
        }
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


def claims_table(runs: Sequence[Run], ids: Sequence[str]) -> pd.DataFrame:
    """Each claim with its verdict, and below it what was measured: mean and interval, bound, number of seeds."""
    found, rows = evidence(runs), []
    for name in ids:
        criteria = CLAIMS[name].measure(found)
        measured = [(c.name, interval_text(c.values), f"> {c.bound:g}", len(c.values)) for c in criteria]
        missing = "a paradigm is missing" if found.saif else "where labels come from is not known"
        for row in measured or [(f"nothing: {missing}", "", "", 0)]:
            rows.append((name, verdict(criteria), *row))
    columns = ["id", "verdict", "measured", "mean and interval", "needs", "n"]
    return pd.DataFrame(rows, columns=columns).set_index(["id", "verdict"])


def verdicts(runs: Sequence[Run]) -> dict[str, Verdict]:
    """Claim id -> verdict on these runs."""
    found = evidence(runs)
    return {name: verdict(claim.measure(found)) for name, claim in CLAIMS.items()}


def evidence(runs: Sequence[Run]) -> Evidence:
    """What the claims look at; only seeds that every paradigm has, so that differences are paired.

    Nothing where the foreground is not known.
    """
    if any("saif" not in _split(run, "test") for run in runs):
        return Evidence({}, {}, {}, {})
    names = paradigms(runs)
    common = set.intersection(*({run.config.seed for run in _of(runs, name)} for name in names))
    kept = [run for run in runs if run.config.seed in common]
    curves = {
        name: np.array([run.history["test_focus_accuracy"].dropna().to_numpy() for run in _of(kept, name)])
        for name in names
    }
    return Evidence(
        accuracy={name: _final(kept, name, "accuracy", "test") for name in names},
        saif={name: _final(kept, name, "saif", "test") for name in names},
        focus_accuracy=curves,
        histogram={name: np.array([_split(run, "test")["histogram"] for run in _of(kept, name)]) for name in names},
    )


def gallery(runs: Sequence[Run], count: int = 3) -> dict[str, Any]:
    """The arguments of `plots.attention_gallery`: the first test instances as each paradigm's model sees them.

    Takes the runs of the smallest seed, whose instances all paradigms share.

    Raises
    ------
    UserError
        Where the runs kept no examples, see `fcamlib.computing.EXAMPLE_BYTES`.
    """
    first = min(run.config.seed for run in runs)
    found = {run.config.paradigm: run.arrays("examples.npz") for run in runs if run.config.seed == first}
    shared = next(iter(found.values()))
    if not shared:
        raise UserError(
            f"no example was kept to draw, since an instance of '{task_title(runs[0])}' is too large: choose fewer "
            "num_segments here; the tables and curves of the other notebooks need no examples."
        )
    return {
        "segments": shared["segments"][:count],
        "foreground": shared["foreground"][:count],
        "labels": shared["label"][:count],
        "label_names": _class_names(runs[0]),
        "alpha": {p: found[p]["alpha"][:count] for p in paradigms(runs)},
        "predictions": {p: found[p]["prediction"][:count] for p in paradigms(runs)},
        "scores": {p: found[p]["s_y"][:count] for p in paradigms(runs)},
    }


def _class_names(run: Run) -> Sequence[str]:
    """Names of the classes; runs on mosaics that were stored without them have them in their config."""
    names: Sequence[str] = run.summary.get("class_names", ()) or getattr(run.config.data, "foreground", ())
    return names


def gallery_table(runs: Sequence[Run], count: int = 3) -> pd.DataFrame:
    """The numbers of `gallery`: per instance and paradigm, attention on the foreground and score of the label."""
    shown, rows = gallery(runs, count), []
    for instance, label in enumerate(shown["labels"]):
        for paradigm, alpha in shown["alpha"].items():
            weight = float(alpha[instance][shown["foreground"][instance]].sum())
            rows.append(
                {"mosaic": instance, "label": shown["label_names"][label], "paradigm": LABELS.get(paradigm, paradigm)}
                | {"a_z": round(weight, 2), "s_y": round(float(shown["scores"][paradigm][instance]), 2)}
            )
    return pd.DataFrame(rows).set_index(["mosaic", "label"])


def recorded_or(runs: Sequence[Run], recorded: Sequence[Run]) -> tuple[str, list[Run]]:
    """Title and runs of the recorded task on mosaics with most runs; where there is none, `runs`, so titled."""
    grouped = tasks(on_mosaics(recorded))
    if not grouped:
        return "no run is recorded here, so the runs above are shown again", list(runs)
    title = max(grouped, key=lambda name: (len(grouped[name]), name))
    return title, grouped[title]


def on_mosaics(runs: Sequence[Run]) -> list[Run]:
    """Those of the runs whose segments are pictures."""
    return [run for run in runs if isinstance(run.config.data, MosaicsConfig)]


def selection_table(runs: Sequence[Run]) -> pd.DataFrame:
    """Learning rates compared on validation data: score of each and the one chosen."""
    rows = []
    for run in runs:
        for row in run.summary["selection"]:
            phase = run.config.phases[row["phase"]].paradigm
            score = row["failure"] or f"{row['validation_accuracy']:.3f}"
            rows.append(
                {"paradigm": LABELS.get(run.config.paradigm, run.config.paradigm), "seed": run.config.seed}
                | {"phase": LABELS[phase], "learning rate": row["learning_rate"], "validation accuracy": score}
                | {"chosen": "yes" if row["chosen"] else ""}
            )
    return pd.DataFrame(rows, columns=["paradigm", "seed", "phase", "learning rate", "validation accuracy", "chosen"])


def provenance_table(runs: Sequence[Run]) -> pd.DataFrame:
    """Where recorded numbers come from: commit, date, device, seconds of training."""
    rows = []
    for run in runs:
        source = run.summary["provenance"]
        device = f"{source['device']}, {run.config.training.threads} thread(s)"
        rows.append(
            {
                "run": run.folder.name,
                "seed": run.config.seed,
                "commit": source["commit"] or "none",
                "date": source["date"],
                "device": device,
                "precision": run.config.training.precision,
                "torch": source["packages"]["torch"],
                "seconds": round(source["train_seconds"]),
            }
        )
    return pd.DataFrame(rows).set_index("run")


def figure_provenance(runs: Sequence[Run], notebook: str) -> dict[str, object]:
    """What `plots.save` writes beside a figure: the notebook and the runs it was drawn from."""
    return figure_record(notebook, tasks(runs))


def _of(runs: Sequence[Run], paradigm: str) -> list[Run]:
    return sorted((run for run in runs if run.config.paradigm == paradigm), key=lambda run: run.config.seed)


def _split(run: Run, split: str) -> dict[str, Any]:
    return run.summary["splits"][split]


def _final(runs: Sequence[Run], paradigm: str, metric: str, split: str) -> NDArray[np.float64]:
    values = [_split(run, split).get(metric) for run in _of(runs, paradigm)]
    return np.array([] if None in values else values, dtype=np.float64)


def history_table(runs: Sequence[Run], split: str = "test") -> pd.DataFrame:
    """Mean focus accuracy over seeds at the first epoch, a fifth, half and the end of training."""
    history = history_frame(runs, split)
    last = int(history["epoch"].max())
    shown = sorted({1, max(1, last // 5), max(1, last // 2), last})
    means = history[history["epoch"].isin(shown)].groupby(["paradigm", "epoch"])["focus_accuracy"].mean().unstack()
    means = means.loc[paradigms(runs)].rename(index=LABELS)
    return means.rename(columns=lambda epoch: f"epoch {epoch}").rename_axis(columns="focus accuracy").round(3)


def jensen_table(runs: Sequence[Run], split: str = "test") -> pd.DataFrame:
    """LVML and hard-attention loss of the same trained models, in nats: LVML is never above."""
    rows = []
    for run in runs:
        losses = {p: run.summary["aggregations"][split][p]["loss"] for p in ("lvml", "hard")}
        rows.append(
            {"id": "J1", "model trained with": LABELS.get(run.config.paradigm, run.config.paradigm)}
            | {"LVML loss": round(losses["lvml"], 3), "HA loss": round(losses["hard"], 3), "n": _split(run, split)["n"]}
            | {"verdict": "holds" if losses["lvml"] <= losses["hard"] else "fails"}
        )
    return pd.DataFrame(rows).set_index("id")
