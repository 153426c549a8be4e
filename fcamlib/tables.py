"""Tables of results: one long table, one formatter of means with intervals, one table of provenance.

`frame` puts results of any kind into one long table with a row per measure; `means` formats it for readers. Compared
results differ only in paradigm and seed: `tasks` groups results by the rest of their configs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcamlib import claims as tested
from fcamlib.claims import CLAIMS, CURVES, LAST, Evidence, at_end, hybrid_gains, is_flat
from fcamlib.groups import Result, counted, kind, label, ordered, paradigms, recorded, seed, tasks, title  # noqa: F401
from fcamlib.paradigms import label_of
from fcamlib.verdicts import Criterion, claims_table, interval, interval_text, paired_test, verdict  # noqa: F401

METRICS = ("accuracy", "focus_accuracy", "saif")
MEASURES = (*METRICS, "ftpt")
TRUTHLESS = ("accuracy", "auc", "calibration_error", "loss", "attention_entropy")  # do not need a known foreground
AGREEMENT = ("token_f1", "auprc", "comprehensiveness", "sufficiency")  # with rationales
BLEU = ("bleu1", "bleu2", "bleu3", "bleu4")  # in percent
NO_SHARES = {"loss", "cider", "comprehensiveness", "sufficiency", *BLEU}  # can be outside [0, 1]
OBJECTS = ("saif", "a_z", "s_y", "focus_accuracy", "mentioned")  # of captions
CAPTIONS = ["bleu4", "a_z", "s_y", "saif"]  # over the epochs
TITLES = {
    "accuracy": "accuracy",
    "focus_accuracy": "focus accuracy", "saif": "SAIF", "ftpt": "FTPT", "auc": "AUC", "loss": "training loss",
    "calibration_error": "calibration error", "attention_entropy": "attention entropy", "token_f1": "token F1",
    "auprc": "AUPRC", "cider": "CIDEr", **{f"bleu{order}": f"BLEU-{order}" for order in range(1, 5)},
    "num_segments": "m", "soft_share": "soft share", "learning_rate": "learning rate",
}  # fmt: skip
# The paper's epochs by source and encoder: late claims are judged only after them, or once the loss has flattened.
PAPER_EPOCHS = {("cifar10", ""): 150, ("cifar100", ""): 150}
PAPER_EPOCHS |= {("hatexplain", "embedding"): 550, ("hatexplain", "transformer"): 500}
PAIRS = (("hybrid", "soft"), ("hybrid", "hard"), ("lvml", "soft"), ("soft", "abmil"), ("hybrid", "abmil"))
ByParadigm = dict[str, NDArray[np.float64]]
SETTINGS = ("num_segments", "focus", "classifier", "epochs", "soft_share", "learning_rate")  # columns of a study


def frame(results: Iterable[Result], at: Literal["kept", "end"] = "kept") -> pd.DataFrame:
    """Columns task, paradigm, seed, varied settings of a study, measure, value; paradigms in the paper's order.

    With `at="kept"` a run's measures are those of the kept weights; with "end" they are means over the last five
    measured epochs, or those after the last change of a loss if there are fewer. For a cross-validation `paradigm` is
    the method and `seed` the repeat, and values are means over folds, weighted by test bags. Missing measures, for
    example of a training that diverged or of a repeat with such a fold, are NaN.
    """
    results = list(results)
    names = ordered(getattr(result.config, "paradigm", "") for result in results)
    results.sort(key=lambda result: (names.index(getattr(result.config, "paradigm", "")), seed(result)))
    last = last_epochs([result.history for result in results]) if at == "end" else 0
    return pd.concat([_rows(result, last).assign(task=title(result)) for result in results], ignore_index=True)


def _rows(result: Result, last: int) -> pd.DataFrame:
    history = result.history
    if kind(result) == "study":
        keys = [*_varied(history), "paradigm", "seed"]
        return history[[*keys, *METRICS, "loss"]].melt(keys, var_name="measure")
    if kind(result) == "cross-validation":
        keys, names = ["method", "repeat"], [name for name in TITLES if name in history]
        long = _whole(history).melt([*keys, "n"], names, "measure").dropna(subset="value")
        sums = long.assign(value=long["value"] * long["n"]).groupby([*keys, "measure"])[["value", "n"]].sum()
        rows = (sums["value"] / sums["n"]).rename("value").reset_index()
        rows = rows.merge(history[keys].drop_duplicates(), how="right")
        order = ordered(rows["method"])
        rows = rows.sort_values("method", key=lambda names: names.map(order.index), kind="stable")
        return rows.rename(columns={"method": "paradigm", "repeat": "seed"})
    found = result.summary["splits"]["test"] | result.summary.get("agreement", {})
    if last:
        columns = history.filter(regex="^test_").rename(columns=lambda name: name[5:])
        found = {name: at_end(columns[[name]].dropna().to_numpy(np.float64).T, last)[0] for name in columns}
    values = {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
    rows = pd.DataFrame({"measure": list(values), "value": list(values.values())})
    return rows.assign(paradigm=result.config.paradigm, seed=result.config.seed)


def _whole(folds: pd.DataFrame) -> pd.DataFrame:
    """The rows of a cross-validation without the repeats of a method in which a training diverged."""
    return folds[folds.groupby(["method", "repeat"])["accuracy"].transform(lambda values: values.notna().all())]


def _varied(study: pd.DataFrame) -> list[str]:
    """The settings that vary in a study; learning rates selected on validation data do not count."""
    known = [name for name in SETTINGS if name in study]  # older results lack the epochs, which they did not vary
    found = [name for name in known if study[name].nunique() > 1]
    if study.loc[study["paradigm"] == "hybrid", "soft_share"].nunique() < 2:
        found = [name for name in found if name != "soft_share"]
    if not study.duplicated([*known[:-1], "paradigm", "seed"]).any():
        found = [name for name in found if name != "learning_rate"]
    return found


def means(
    table: pd.DataFrame,
    by: Sequence[str] = (),
    measures: Sequence[str] = MEASURES,
    digits: int = 3,
    spread: Literal["t", "sd"] = "t",
) -> pd.DataFrame:
    """Mean over seeds of each measure of `frame` with its interval, by the columns `by`; "-" if it is not known.

    The repeats of a cross-validation share their data and have no interval: `spread="sd"` shows their deviation.
    """

    def shown(measure: object, values: pd.Series) -> str:
        if spread == "sd" and len(values) > 1:
            return f"{values.mean():.{digits}f} ± {values.std():.{digits}f}"
        return interval_text(values.to_numpy(dtype=np.float64), digits, is_share=measure not in NO_SHARES)

    by = list(by) or [*(name for name in SETTINGS if name in table), "paradigm"]
    rows = []
    for key, group in table.groupby(by, sort=False, dropna=False):
        known = group[group["measure"].isin(measures)].dropna(subset="value")
        seeds, finished = group["seed"].nunique(), known["seed"].nunique()
        row: dict[str, Any] = dict(zip(by, key, strict=True))
        row["seeds" if spread == "t" else "repeats"] = str(seeds) if finished == seeds else f"{finished} of {seeds}"
        found = {str(name): shown(name, values) for name, values in known.groupby("measure")["value"]}
        row |= dict.fromkeys(measures, "-") | found
        rows.append(row | ({"paradigm": label(str(row["paradigm"]))} if "paradigm" in row else {}))
    return pd.DataFrame(rows).rename(columns=TITLES).set_index([TITLES.get(name, name) for name in by])


def summary_frame(results: Iterable[Result], at: Literal["kept", "end"] = "kept") -> pd.DataFrame:
    """Means and limits as numbers for `plots.accuracy_saif_summary`: a row per task, paradigm and measure."""
    table = pd.concat([frame(group, at=at).assign(task=name) for name, group in tasks(results).items()])
    known = table[table["measure"].isin(["accuracy", "saif"])].dropna(subset="value")
    rows = []
    for key, group in known.groupby(["task", "paradigm", "measure"], sort=False)["value"]:
        low, high = interval(group.to_numpy(dtype=np.float64), is_share=True) or (np.nan, np.nan)
        rows.append((*key, group.mean(), low, high, len(group)))
    return pd.DataFrame(rows, columns=["dataset", "paradigm", "metric", "mean", "low", "high", "n"])


def markdown(table: pd.DataFrame) -> str:
    """A table in Markdown with its index as the first column."""
    rows = [[str(table.index.name or ""), *map(str, table.columns)], ["---"] * (len(table.columns) + 1)]
    rows += [[str(name), *map(str, row)] for name, row in zip(table.index, table.to_numpy(), strict=True)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def provenance(results: Iterable[Result]) -> pd.DataFrame:
    """Provenance of recorded results, a row per task, commit, date and machine, with the seconds of a training.

    `n` is the number of results in a row; those that are not recorded are "computed here".
    """
    groups: dict[tuple[str, ...], list[float]] = {}
    for result in results:
        source, settings = result.summary["provenance"], getattr(result.config, "training", result.config)
        seed = rf"-{re.escape(getattr(result.config, 'paradigm', ''))}-s\d+-[0-9a-f]{{8}}$"
        name, about = re.sub(seed, "", result.folder.name), ["computed here", "", "", "", ""]
        if result.is_recorded:
            device = f"{source['device']}, {counted(settings.threads, 'thread')}"
            about = [source["commit"] or "none", source["date"], device, getattr(settings, "precision", "")]
            about.append(source["packages"]["torch"])
        groups.setdefault((name, *about), []).append(source.get("train_seconds") or source["last_session_seconds"])
    rows = []
    for (name, commit, date, *about), seconds in groups.items():
        limits = dict.fromkeys(f"{each:,.0f}" for each in (min(seconds), max(seconds)) if date)
        rows.append((name, len(seconds), commit, date, *about, " to ".join(limits)))
    columns = ["results", "n", "commit", "date", "device", "precision", "torch", "seconds"]
    return pd.DataFrame(rows, columns=columns).set_index("results")


def results_table(results: Iterable[Result]) -> pd.DataFrame:
    """One row per result: name, location, test measures, number of test instances or rows, training seconds."""
    rows = []
    for result in results:
        test = result.summary.get("splits", {}).get("test", {})
        row = {"run": result.folder.name, "kept": "recorded" if result.is_recorded else "stored"}
        row |= {metric: f"{test[metric]:.3f}" for metric in (*METRICS, "bleu4") if metric in test}
        row |= {"n": test["n"]} if test else {"rows": len(result.history)}
        rows.append(row | {"seconds": result.summary["provenance"].get("train_seconds", "-")})
    return pd.DataFrame(rows).fillna("-")


def history_frame(runs: Iterable[Result], measures: Sequence[str] = METRICS) -> pd.DataFrame:
    """The measured epochs of all runs: epoch, the known measures (BLEU in [0, 1] like the others), paradigm, seed."""
    parts = []
    for run in runs:
        part = run.history.rename(columns={f"test_{name}": name for name in measures})
        part = part[["epoch", *(name for name in measures if name in part)]].dropna()
        part = part.assign(**{name: part[name] / 100 for name in part if name.startswith("bleu")})
        parts.append(part.assign(paradigm=run.config.paradigm, seed=run.config.seed))
    return pd.concat(parts, ignore_index=True)


def history_table(history: pd.DataFrame) -> pd.DataFrame:
    """Mean focus accuracy over seeds after the first epoch, a fifth, half and all of training; empty if not known."""
    measure, last = "focus_accuracy", int(history["epoch"].max())
    rows = history[history["epoch"].isin({1, max(1, last // 5), max(1, last // 2), last} if measure in history else ())]
    table = rows.assign(**{measure: rows.get(measure)}).groupby(["paradigm", "epoch"])[measure].mean().unstack()
    table = table.loc[ordered(table.index)].rename(index=label).rename(columns=lambda epoch: f"epoch {epoch}")
    return table.rename_axis(columns=TITLES[measure]).round(3)


def at_switch(runs: Sequence[Result], measures: Sequence[str]) -> pd.DataFrame | None:
    """Captioning: means over seeds of test measures at the switch and at the end; None if no switch was measured."""
    hybrids = [run for run in runs if run.config.paradigm == "hybrid" and "switch" in run.summary]
    if not hybrids or len(hybrids) < sum(run.config.paradigm == "hybrid" for run in runs):
        return None
    rows = []
    for run in hybrids:
        soft = run.history[run.history["phase"] == 0].iloc[-1].filter(like="test_").rename(lambda name: name[5:])
        rows += [("SA at the switch", soft), ("the same weights, one region", run.summary["switch"]["test"])]
        rows += [("after the hard phase", run.summary["splits"]["test"])]
    ends = [run.summary["splits"]["test"] for run in runs if run.config.paradigm == "soft"]
    rows += [("SA after its second phase", end) for end in ends]
    table = pd.DataFrame([dict(values) for _, values in rows], [name for name, _ in rows])[list(measures)]
    return table.groupby(level=0, sort=False).mean().round(3)


def switch_epoch(runs: Iterable[Result]) -> int | None:
    """Last epoch of the first phase of a hybrid or of captioning runs, which all have two phases; None without them."""
    two = (run.config for run in runs if run.config.paradigm == "hybrid" or run.config.group == "captions")
    return next((config.phases[0].epochs for config in two), None)


def of_split(runs: Sequence[Result], name: str, split: str = "test") -> ByParadigm:
    """Paradigm -> a measure of a split by seed (R, ...), a number, curve or histogram, if all its runs have it."""
    found: dict[str, list[Any]] = {paradigm: [] for paradigm in paradigms(runs)}
    for run in sorted(runs, key=seed):
        found[run.config.paradigm].append(run.summary["splits"][split].get(name))
    return {name: np.array(values, dtype=np.float64) for name, values in found.items() if None not in values}


def histograms(runs: Sequence[Result], splits: Sequence[str] = ("train", "test")) -> dict[str, ByParadigm]:
    """Split -> paradigm -> mean over seeds of the (a_z, s_y) histogram in percent, if the foreground is known."""
    found = {split: of_split(runs, "histogram", split) for split in splits}
    return {split: {name: cells.mean(axis=0) for name, cells in own.items()} for split, own in found.items() if own}


def histogram_table(runs: Sequence[Result]) -> pd.DataFrame:
    """The regions of the histogram used by the claims, in percent of instances or objects, mean over seeds."""
    rows = {}
    for paradigm, cells in histograms(runs, ("test",)).get("test", {}).items():
        high = {5: 0.8, 3: 0.3}[len(cells)]
        rows[label_of(paradigm)] = {
            f"a_z > {high}, s_y > {high} (SAIF)": cells[-1, -1],
            f"a_z ≤ {high}, s_y > {high}": cells[:-1, -1].sum(),
            f"a_z > {high}, s_y ≤ {high}": cells[-1, :-1].sum(),
            f"both ≤ {high}": cells[:-1, :-1].sum(),
        }
    return pd.DataFrame.from_dict(rows, orient="index").round(1).rename_axis("paradigm")


def evidence(runs: Sequence[Result]) -> Evidence:
    """Evidence for the claims, from the seeds that all paradigms share; empty if the foreground is not known.

    SAIF and accuracy (captions: BLEU-4 / 100) are means over the end of training.
    """
    common = set.intersection(*({run.config.seed for run in runs if run.config.paradigm == n} for n in paradigms(runs)))
    kept = sorted((run for run in runs if run.config.seed in common), key=seed)
    curves = {name: _curves(kept, name) for name in ("accuracy", "bleu4", "saif", *CURVES)}
    if not curves["saif"]:
        return Evidence({}, {})
    last = last_epochs([run.history for run in kept])
    return Evidence(
        {p: at_end(values, last) for p, values in (curves["bleu4"] or curves["accuracy"]).items()},
        {p: at_end(values, last) for p, values in curves["saif"].items()},
        {measure: curves[measure] for measure in CURVES if curves[measure]},
        of_split(kept, "confidence"),
        {p: _unfinished([run for run in kept if run.config.paradigm == p]) for p in paradigms(kept)},
        "BLEU-4 / 100" if curves["bleu4"] else "accuracy",
    )


def _curves(runs: Sequence[Result], measure: str) -> ByParadigm:
    """Paradigm -> (R, T), a measure by seed and epoch that all runs measured, as a share; empty unless all have it."""
    column, scale = f"test_{measure}", 100 if measure == "bleu4" else 1
    if not runs or not all(column in run.history for run in runs):
        return {}
    measured = [pd.Series(run.history[column].to_numpy(), run.history["epoch"]) for run in runs]
    table = pd.concat(measured, axis=1).dropna().to_numpy(np.float64)
    names = np.array([run.config.paradigm for run in runs])
    return {name: table.T[names == name] / scale for name in paradigms(runs)}


def last_epochs(histories: Iterable[pd.DataFrame]) -> int:
    """How many measured epochs are the end of training: five, or fewer if fewer follow a change of the loss."""
    last = [history[history["phase"] == history["phase"].max()] for history in histories]
    return min([LAST, *(int(rows.filter(like="test_").notna().any(axis=1).sum()) for rows in last)])


def _unfinished(runs: Sequence[Result]) -> str:
    """Why late claims cannot be judged: fewer epochs than in the paper, and a loss that is still falling."""
    config = runs[0].config
    epochs = sum(phase.epochs for phase in config.phases)
    wanted = PAPER_EPOCHS.get((config.data.source, getattr(config.model, "encoder", "")), 0)
    loss = np.mean([run.history["train_loss"].to_numpy(dtype=np.float64) for run in runs], axis=0)
    if is_flat(loss) or (wanted and epochs >= wanted):
        return ""
    return f"{label(config.paradigm)}'s loss still falls after {epochs}{f' of {wanted}' if wanted else ''} epochs"


def criteria(runs: Sequence[Result], claims: Iterable[str] = CLAIMS) -> dict[str, list[Criterion]]:
    """Claim -> its criteria on runs of one task; none if a paradigm is missing. Captions have only H1."""
    return tested.measure([n for n in claims if n == "H1" or kind(runs[0]) != "captions"], evidence(runs))


def judged(groups: Mapping[str, Sequence[Result]], claims: Iterable[str] = CLAIMS) -> dict[str, Any]:
    """Title -> claim -> criteria for several tasks; no claim twice on the same runs.

    Tasks that differ in the hybrid alone share the runs of SA, HA and LVML: claims on these are judged in the last one.
    """
    seen, found = set[tuple[str, ...]](), dict[str, Any]()
    for name, runs in reversed(list(groups.items())):
        found[name] = {}
        for claim, own in criteria(runs, claims).items():
            used = (claim, *sorted(run.folder.name for run in runs if run.config.paradigm in CLAIMS[claim].needed))
            if used not in seen:
                found[name][claim] = own
            seen.add(used)
    return {name: found[name] for name in groups}


def gain_frame(history: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Gain of the hybrid over the better of SA and HA in the same seed, a row per combination of a study's columns.

    Means and limits of the gain in SAIF and in accuracy, the same as text, the verdict on claim H1, and n seeds.
    """
    rows = []
    for key, found in hybrid_gains(history, by).items():
        row: dict[str, Any] = dict(zip(by, key, strict=True))
        for metric, c in zip(("saif", "accuracy"), found, strict=True):
            row[metric] = float(c.values.mean()) if len(c.values) else np.nan
            row[f"{metric}_low"], row[f"{metric}_high"] = c.interval or (np.nan, np.nan)
            row[f"{metric} gain"] = interval_text(c.values, sign="+") if len(c.values) else "-"
        rows.append(row | {"verdict": verdict(found), "n": len(found[0].values)})
    return pd.DataFrame(rows)


def gain_table(history: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The hybrid's gain and the verdict on claim H1 as text, one row per combination of `by`."""
    table = gain_frame(history, by).set_index(list(by))[["saif gain", "accuracy gain", "verdict", "n"]]
    names = {"saif gain": "SAIF gain", "verdict": "H1"}
    return table.rename(columns=names).rename_axis([TITLES.get(name, name) for name in by])


def seed_gains(history: pd.DataFrame) -> pd.DataFrame:
    """The hybrid's gain over the better of SA and HA in each seed that has both, for `plots.gain_over_switch`."""
    measures = ["saif", "accuracy"]
    rows = history.dropna(subset=measures)
    others = rows[rows["paradigm"].isin(["soft", "hard"])].groupby("seed")
    best = others[measures].max()[others["paradigm"].nunique() == 2]
    hybrid = rows[rows["paradigm"] == "hybrid"].set_index("seed")
    gains = hybrid[measures].astype(float) - best.reindex(hybrid.index)
    return gains.assign(share=hybrid["soft_share"].astype(float)).dropna().reset_index()


def rows_at(runs: Iterable[Result], epoch: int) -> pd.DataFrame:
    """Rows in the form of a study for runs stopped at `epoch`: means over the end of training, as for the claims."""
    stopped = [(run, run.history[run.history["epoch"] <= epoch]) for run in runs]
    last, rows = last_epochs([history for _, history in stopped]), []
    for run, history in stopped:
        measured = history.filter(like="test_").dropna().tail(last).mean()
        soft = sum(phase.epochs for phase in run.config.phases if phase.paradigm == "soft")
        about = {"paradigm": run.config.paradigm, "seed": run.config.seed, "soft_share": min(1.0, soft / epoch)}
        rows.append(about | measured.rename(lambda name: name.removeprefix("test_")).to_dict())
    return pd.DataFrame(rows)


def rule_epochs(runs: Iterable[Result], share: float = 0.5) -> pd.Series:
    """By seed, the first epoch at which SA's training loss is at most `share` of log C, the loss of guessing."""
    found = {}
    for run in runs:
        is_low = run.history["train_loss"] <= share * np.log(len(run.summary["class_names"]))
        if is_low.any():
            found[run.config.seed] = int(run.history["epoch"][is_low].iloc[0])
    return pd.Series(found, dtype=int).rename_axis("seed")


def paired_table(
    results: Sequence[Result], measure: str = "accuracy", pairs: Sequence[tuple[str, str]] = PAIRS
) -> pd.DataFrame:
    """Differences of methods on the same folds with the corrected t-test, by data set, for the pairs that were run."""
    rows = []
    for name, history in fold_histories(results).items():
        known = {*history.dropna(subset=measure)["method"]}  # the AUC of folds of one bag each is not
        for first, second in (pair for pair in pairs if {*pair} <= known):
            t = paired_test(history, measure, first, second)
            shown = (f"{t.difference:+.3f}", f"[{t.low:+.3f}, {t.high:+.3f}]", f"{t.p:.2g}")
            wilcoxon = "-" if t.p_wilcoxon is None else f"{t.p_wilcoxon:.2g}"
            found = "higher" if t.low > 0 else "lower" if t.high < 0 else "no difference found"
            rows.append((name, f"{label(first)} - {label(second)}", *shown, wilcoxon, found))
    columns = ["data", "comparison", "difference", "95% CI", "p", "p (Wilcoxon)", "verdict"]
    return pd.DataFrame(rows, columns=columns).set_index(["data", "comparison"])


def fold_histories(results: Iterable[Result]) -> dict[str, pd.DataFrame]:
    """Title of each data set -> the rows of its cross-validation (the one with most repeats, if there are several)."""
    results = sorted(results, key=lambda r: (r.config.repeats, len(r.config.methods), r.folder.name))
    found = {result.summary["title"]: _whole(result.history) for result in results}
    return {name: found[name] for name in sorted(found)}
