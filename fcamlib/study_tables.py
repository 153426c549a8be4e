"""Tables of studies: means and intervals over seeds, the hybrid's gain, and the claim H1 for each combination."""

from __future__ import annotations

from typing import Any

import pandas as pd

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
