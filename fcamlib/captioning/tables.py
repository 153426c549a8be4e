"""Tables of captioning runs: what figures, claims and pages are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcamlib.captioning.runs import CaptionRun
from fcamlib.claims import CLAIMS, Criterion, Evidence, verdict
from fcamlib.config.caption_runs import CAPTION_SCHEDULES
from fcamlib.origins import figure_record
from fcamlib.plots.captions import CaptionExample
from fcamlib.tables import LABELS, interval_text

CURVES = ("bleu4", "a_z", "s_y", "saif")
BLEU = {f"bleu{order}": f"BLEU-{order}" for order in range(1, 5)}
OBJECTS = {"saif": "SAIF", "a_z": "a_z", "s_y": "s_y", "focus_accuracy": "focus accuracy", "mentioned": "mentioned"}


def tasks(runs: Sequence[CaptionRun]) -> dict[str, list[CaptionRun]]:
    """Runs by task and network, so that what is compared differs in nothing but paradigm and seed; sorted by seed."""
    grouped: dict[str, list[CaptionRun]] = {}
    for run in runs:
        grouped.setdefault(task_title(run), []).append(run)
    return {title: sorted(group, key=lambda run: run.config.seed) for title, group in sorted(grouped.items())}


def task_title(run: CaptionRun) -> str:
    """One line on what a run was trained and tested on."""
    config = run.config
    epochs = sum(phase.epochs for phase in config.phases)
    return f"{run.summary['title']}, {config.data.described}, state sees the {config.model.state_sees}, {epochs} epochs"


def paradigms(runs: Sequence[CaptionRun]) -> list[str]:
    """The paradigms among `runs`, in the order of the paper."""
    present = {run.config.paradigm for run in runs}
    return [name for name in CAPTION_SCHEDULES if name in present]


def bleu_table(runs: Sequence[CaptionRun], split: str = "test", digits: int = 1) -> pd.DataFrame:
    """BLEU in percent, and CIDEr where it was computed: mean and 95 % t-interval over seeds, one row per paradigm."""
    names = BLEU | ({"cider": "CIDEr"} if all("cider" in _split(run, split) for run in runs) else {})
    return _table(runs, names, split, digits)


def attention_table(runs: Sequence[CaptionRun], split: str = "test", digits: int = 3) -> pd.DataFrame:
    """Measures of objects: mean and 95 % t-interval over seeds, one row per paradigm."""
    return _table(runs, OBJECTS, split, digits)


def _table(runs: Sequence[CaptionRun], names: dict[str, str], split: str, digits: int) -> pd.DataFrame:
    rows: dict[str, dict[str, Any]] = {}
    for paradigm in paradigms(runs):
        own = _of(runs, paradigm)
        shown = {title: interval_text(_values(own, name, split), digits) for name, title in names.items()}
        rows[LABELS[paradigm]] = {"seeds": len(own), **shown}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("paradigm")


def histograms(runs: Sequence[CaptionRun], split: str = "test") -> dict[str, NDArray[np.float64]]:
    """Paradigm -> mean over seeds of the (a_z, s_y) histogram in percent: (3, 3)."""
    return {p: np.mean([_split(run, split)["histogram"] for run in _of(runs, p)], axis=0) for p in paradigms(runs)}


def histogram_table(runs: Sequence[CaptionRun], split: str = "test") -> pd.DataFrame:
    """Rows and columns of the heatmaps that are spoken of, in percent of objects, mean over seeds."""
    rows = {}
    for paradigm, cells in histograms(runs, split).items():
        rows[LABELS[paradigm]] = {
            "a_z > .3, s_y > .3 (SAIF)": cells[2, 2],
            "a_z ≤ .3, s_y > .3": cells[:2, 2].sum(),
            "a_z > .3, s_y ≤ .3": cells[2, :2].sum(),
            "both ≤ .3": cells[:2, :2].sum(),
        }
    return pd.DataFrame.from_dict(rows, orient="index").round(1).rename_axis("paradigm")


def saif_curves(runs: Sequence[CaptionRun], split: str = "test") -> dict[str, NDArray[np.float64]]:
    """Paradigm -> SAIF of each seed at each threshold 0, 0.01, ..., 1: (R, 101)."""
    return {p: np.array([_split(run, split)["saif_curve"] for run in _of(runs, p)]) for p in paradigms(runs)}


def history_frame(runs: Sequence[CaptionRun], split: str = "test") -> pd.DataFrame:
    """Epochs of all runs in one table for `plots.caption_curves`: BLEU-4 and the measures of objects, from 0 to 1."""
    parts = []
    for run in runs:
        part = run.history.rename(columns={f"{split}_{name}": name for name in CURVES})[["epoch", *CURVES]].dropna()
        parts.append(part.assign(bleu4=part["bleu4"] / 100, paradigm=run.config.paradigm, seed=run.config.seed))
    return pd.concat(parts, ignore_index=True)


def history_table(runs: Sequence[CaptionRun], split: str = "test", digits: int = 2) -> pd.DataFrame:
    """SAIF and a_z after each phase, mean over seeds: what the curves show at the switch and at the end."""
    frame = history_frame(runs, split)
    ends = [switch_epoch(runs), int(frame["epoch"].max())]
    chosen = frame[frame["epoch"].isin(ends)].groupby(["paradigm", "epoch"])[list(CURVES)].mean().round(digits)
    order = [(name, epoch) for name in paradigms(runs) for epoch in ends if (name, epoch) in chosen.index]
    return chosen.loc[order].rename(index=LABELS, level=0)


def switch_epoch(runs: Sequence[CaptionRun]) -> int:
    """Last epoch of the first phase."""
    return runs[0].config.phases[0].epochs


def criteria(runs: Sequence[CaptionRun]) -> list[Criterion]:
    """The criteria of claim H1: SAIF at the threshold 0.3, BLEU-4 / 100 in accuracy's place.

    Only seeds that every paradigm has count, so that differences are paired.
    """
    names = paradigms(runs)
    common = set.intersection(*({run.config.seed for run in _of(runs, name)} for name in names))
    kept = {name: [run for run in _of(runs, name) if run.config.seed in common] for name in names}
    evidence = Evidence(
        accuracy={name: _values(own, "bleu4", "test") / 100 for name, own in kept.items()},
        saif={name: _values(own, "saif", "test") for name, own in kept.items()},
        focus_accuracy={},
        histogram={},
    )
    return [
        replace(criterion, name=criterion.name.replace("accuracy", "BLEU-4 / 100"))
        for criterion in CLAIMS["H1"].measure(evidence)
    ]


def claims_table(runs: Sequence[CaptionRun]) -> pd.DataFrame:
    """Claim H1 with its verdict and what was measured, see `criteria`."""
    found = criteria(runs)
    measured = [(c.name, interval_text(c.values), f"> {c.bound:g}", len(c.values)) for c in found]
    rows = [("H1", verdict(found), *row) for row in measured or [("nothing: a paradigm is missing", "", "", 0)]]
    columns = ["id", "verdict", "measured", "mean and interval", "needs", "n"]
    return pd.DataFrame(rows, columns=columns).set_index(["id", "verdict"])


def captions_of(run: CaptionRun, example: int) -> CaptionExample:
    """The caption of an example's picture with its attention, for `plots.word_attention`."""
    kept = run.arrays("examples.npz")
    real = kept["real"][example] & (kept["word"][example] != "<end>")
    return CaptionExample(
        kept["word"][example][real].tolist(), kept["alpha"][example][real], kept["names_category"][example][real]
    )


def examples(runs: Sequence[CaptionRun], example: int) -> dict[str, Any]:
    """Picture, boxes and captions of one test picture for `plots.word_attention`: of the smallest seed's runs."""
    first = min(run.config.seed for run in runs)
    own = {run.config.paradigm: run for run in runs if run.config.seed == first}
    kept = next(iter(own.values())).arrays("examples.npz")
    return {
        "picture": kept["picture"][example] if "picture" in kept else None,
        "boxes": kept["box"][example],
        "examples": {paradigm: captions_of(run, example) for paradigm, run in own.items()},
    }


def example_table(runs: Sequence[CaptionRun], number: int = 3) -> pd.DataFrame:
    """Greedy captions of the first test pictures, of the smallest seed's runs."""
    first = min(run.config.seed for run in runs)
    own = {LABELS[run.config.paradigm]: run for run in runs if run.config.seed == first}
    rows = {
        label: [" ".join(captions_of(run, example).words) for example in range(number)] for label, run in own.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=[f"picture {i + 1}" for i in range(number)])


def provenance_table(runs: Sequence[CaptionRun]) -> pd.DataFrame:
    """Where recorded numbers come from: commit, date, device, seconds of training."""
    rows = []
    for run in runs:
        source = run.summary["provenance"]
        rows.append(
            {"run": run.folder.name, "commit": source["commit"] or "none", "date": source["date"]}
            | {"device": f"{source['device']}, {run.config.training.threads} thread(s)"}
            | {"torch": source["packages"]["torch"], "seconds": round(source["train_seconds"])}
        )
    return pd.DataFrame(rows).set_index("run")


def figure_provenance(runs: Sequence[CaptionRun], notebook: str) -> dict[str, object]:
    """What `plots.save` writes beside a figure: the notebook and the runs it was drawn from."""
    return figure_record(notebook, tasks(runs))


def recorded_or(runs: Sequence[CaptionRun], recorded: Sequence[CaptionRun]) -> tuple[str, list[CaptionRun]]:
    """Title and runs of the first recorded task; where there is none, `runs`, so titled."""
    if not recorded:
        return "no run is recorded here, so the runs above are shown again", list(runs)
    return next(iter(tasks(recorded).items()))


def _of(runs: Sequence[CaptionRun], paradigm: str) -> list[CaptionRun]:
    """The paradigm's runs, by seed, so that seeds are in the same order for all."""
    return sorted((run for run in runs if run.config.paradigm == paradigm), key=lambda run: run.config.seed)


def _values(runs: Sequence[CaptionRun], name: str, split: str) -> NDArray[np.float64]:
    return np.array([_split(run, split)[name] for run in runs], dtype=float)


def _split(run: CaptionRun, split: str) -> dict[str, Any]:
    return run.summary["splits"][split]
