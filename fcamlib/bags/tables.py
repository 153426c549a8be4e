r"""Tables of a repeated cross-validation, and paired tests over its folds.

The folds of a cross-validation share training data, so a t-test that takes them for independent finds differences that
are not there. The corrected resampled t-test widens the variance of the mean difference over J folds,

$$\mathrm{Var} = \Bigl(\frac1J + \frac{n_\mathrm{test}}{n_\mathrm{train}}\Bigr) s^2,$$

where s² is the variance of the folds' differences. The Wilcoxon signed-rank test over the means of the repeats is
shown beside it where there are at least six repeats, the least that can reach p < 0.05.
Source: Nadeau and Bengio 2003; for repeated cross-validation Bouckaert and Frank 2004.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from fcamlib.config import CrossValidationConfig
from fcamlib.origins import figure_record
from fcamlib.plots.folds import METHOD_LABEL as LABELS
from fcamlib.store import Stored

COLUMNS = {"accuracy": "accuracy", "auc": "AUC", "calibration_error": "calibration error", "loss": "training loss"} | {
    "attention_entropy": "attention entropy"
}
PAIRS = (("hybrid", "soft"), ("hybrid", "hard"), ("lvml", "soft"), ("soft", "abmil"), ("hybrid", "abmil"))
LEAST_REPEATS = 6  # for a two-sided Wilcoxon test to reach p < 0.05


@dataclass(frozen=True)
class PairedTest:
    """Mean difference over folds, its 95 % interval and p-value, and Wilcoxon's p over repeats where it is defined."""

    difference: float
    low: float
    high: float
    p: float
    p_wilcoxon: float | None


def corrected_t_test(
    difference: Float[np.ndarray, " J"], test_share: float, repeat_means: Float[np.ndarray, " R"]
) -> PairedTest:
    """The corrected resampled t-test of zero mean difference.

    Parameters
    ----------
    difference : (J,) float
        One per repeat and fold, at least two.
    test_share : float
        n_test / n_train, in (0, inf).
    repeat_means : (R,) float
        Mean difference of each repeat.
    """
    count = len(difference)
    mean, deviation = float(difference.mean()), float(difference.std(ddof=1))
    error = np.sqrt(1 / count + test_share) * deviation
    half = float(stats.t.ppf(0.975, count - 1) * error)
    p = 2 * float(stats.t.sf(abs(mean) / error, count - 1)) if error > 0 else (1.0 if mean == 0 else 0.0)
    wilcoxon = None
    if len(repeat_means) >= LEAST_REPEATS and np.any(repeat_means != 0):
        wilcoxon = float(stats.wilcoxon(repeat_means).pvalue)
    return PairedTest(mean, mean - half, mean + half, p, wilcoxon)


def results_table(history: pd.DataFrame, digits: int = 3) -> pd.DataFrame:
    """Mean over repeats of each measure, one row per method; for accuracy also the standard deviation over repeats.

    A repeat's value is the mean over its folds weighted by their test bags; "-" where a measure is not defined.
    """
    rows = {}
    for method in _methods(history):
        part = history[history["method"] == method]
        row = {}
        for measure, shown in COLUMNS.items():
            values = _by_repeat(part, measure)
            row[shown] = "-" if values.empty else f"{values.mean():.{digits}f}"
            if measure == "accuracy" and len(values) > 1:
                row[shown] += f" ± {values.std(ddof=1):.{digits}f}"
        rows[LABELS.get(method, method)] = row | {"folds": len(part)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


def paired_table(
    history: pd.DataFrame, measure: str = "accuracy", pairs: Sequence[tuple[str, str]] = PAIRS, digits: int = 3
) -> pd.DataFrame:
    """Differences of methods on the same folds, with the corrected t-test; pairs of methods that were run."""
    present, rows = set(history["method"]), []
    for first, second in pairs:
        if not {first, second} <= present:
            continue
        found = paired_test(history, measure, first, second)
        verdict = "no difference found" if found.low <= 0 <= found.high else "higher" if found.low > 0 else "lower"
        rows.append(
            {"comparison": f"{LABELS[first]} - {LABELS[second]}", "difference": f"{found.difference:+.{digits}f}"}
            | {"95 % interval": f"[{found.low:+.{digits}f}, {found.high:+.{digits}f}]", "p": f"{found.p:.2g}"}
            | {"p (Wilcoxon)": "-" if found.p_wilcoxon is None else f"{found.p_wilcoxon:.2g}", "verdict": verdict}
        )
    columns = ["comparison", "difference", "95 % interval", "p", "p (Wilcoxon)", "verdict"]
    return pd.DataFrame(rows, columns=columns).set_index("comparison")


def paired_test(history: pd.DataFrame, measure: str, first: str, second: str) -> PairedTest:
    """The test of `first` less `second` over the folds that both have."""
    wide = history.pivot(index=["repeat", "fold"], columns="method", values=measure)[[first, second]].dropna()
    difference = (wide[first] - wide[second]).to_numpy(dtype=np.float64)
    sizes = history[history["method"] == first].groupby("repeat")["n"]
    num_test, num_bags = float(sizes.mean().mean()), float(sizes.sum().mean())
    by_repeat = (wide[first] - wide[second]).groupby("repeat").mean().to_numpy(dtype=np.float64)
    return corrected_t_test(difference, num_test / (num_bags - num_test), by_repeat)


def _methods(history: pd.DataFrame) -> list[str]:
    present = set(history["method"])
    return [method for method in LABELS if method in present] + sorted(present - set(LABELS))


def _by_repeat(part: pd.DataFrame, measure: str) -> pd.Series:
    """Value of each repeat: folds weighted by their number of test bags, folds without a value left out."""
    known = part.dropna(subset=[measure])
    weighted = (known[measure] * known["n"]).groupby(known["repeat"]).sum()
    return weighted / known.groupby("repeat")["n"].sum()


def by_data_set(results: Sequence[Stored[CrossValidationConfig]]) -> dict[str, pd.DataFrame]:
    """Title of each data set -> the rows of its cross-validation, of several the one with most repeats."""
    found: dict[str, pd.DataFrame] = {}
    for result in sorted(results, key=lambda r: (r.config.repeats, len(r.config.methods), r.folder.name)):
        found[result.summary["title"]] = result.history
    return dict(sorted(found.items()))


def all_results(histories: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """`results_table` of each data set, one below the other."""
    return pd.concat({title: results_table(history) for title, history in histories.items()}, names=["data", "method"])


def all_pairs(histories: Mapping[str, pd.DataFrame], measure: str = "accuracy") -> pd.DataFrame:
    """`paired_table` of each data set, one below the other."""
    parts = {title: paired_table(history, measure) for title, history in histories.items()}
    return pd.concat(parts, names=["data", "comparison"])


def provenance_table(results: Sequence[Stored[CrossValidationConfig]]) -> pd.DataFrame:
    """Where the numbers come from: settings, commit, date, device, seconds of training."""
    rows = {}
    for result in results:
        source, config = result.summary["provenance"], result.config
        rates = ", ".join(f"{rate:g}" for rate in config.learning_rates)
        rows[result.folder.name] = {
            "settings": f"{config.epochs} epochs, learning rates {rates}, {config.batch_size} bags per step",
            "commit": source["commit"] or "none",
            "date": source["date"],
            "device": f"{source['device']}, {config.threads} thread(s)",
            "torch": source["packages"]["torch"],
            "torchmil": source["packages"].get("torchmil", "-"),
            "seconds": round(source["train_seconds"]),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("result")


def figure_provenance(results: Sequence[Stored[CrossValidationConfig]], notebook: str) -> dict[str, object]:
    """What `plots.save` writes beside a figure of cross-validations."""
    grouped: dict[str, list[Stored[CrossValidationConfig]]] = {}
    for result in results:
        grouped.setdefault(result.summary["title"], []).append(result)
    return figure_record(notebook, grouped, rerun="fcam crossval --dataset bags:PATH")
