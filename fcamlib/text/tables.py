"""Tables of text runs: agreement with rationales, lengths and rationales of a task, attention on generated posts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from fcamlib.computing import trained_model
from fcamlib.config import TextConfig
from fcamlib.data.sdc import SDCTask
from fcamlib.data.text import text_words
from fcamlib.errors import UserError
from fcamlib.evaluation import evaluating, outputs
from fcamlib.numerics import Numerics
from fcamlib.store import Run
from fcamlib.tables import LABELS, interval_text, paradigms
from fcamlib.text.agreement import agreement_summary

MEASURES = {
    "token_f1": "token F1",
    "auprc": "AUPRC",
    "comprehensiveness": "comprehensiveness",
    "sufficiency": "sufficiency",
}


def agreement_table(runs: Sequence[Run], digits: int = 3) -> pd.DataFrame:
    """Agreement with rationales and faithfulness on test posts: mean and 95 % t-interval over seeds, by paradigm.

    Read from a run's summary, or computed from its weights where the summary is older than the measures. "not known"
    where neither is there, or no post has a rationale.
    """
    rows = []
    for paradigm in paradigms(runs):
        found = [_agreement(run) for run in runs if run.config.paradigm == paradigm]
        row: dict[str, Any] = {"paradigm": LABELS.get(paradigm, paradigm), "seeds": len(found)}
        for name, title in MEASURES.items():
            values = np.array([measures[name] for measures in found if measures[name] is not None], dtype=float)
            row[title] = interval_text(values, digits) if len(values) else "not known"
        rows.append(row)
    return pd.DataFrame(rows).set_index("paradigm")


def _agreement(run: Run) -> dict[str, Any]:
    if "agreement" in run.summary:
        return run.summary["agreement"]
    if not (run.folder / "model.safetensors").is_file():
        return dict.fromkeys(MEASURES)
    model, task = trained_model(run)
    numerics = Numerics.of(run.config.training)
    return agreement_summary(model, task.splits["test"], run.config.aggregation, numerics)


def posts_table(task: SDCTask) -> pd.DataFrame:
    """Posts, words, classes and rationales of each split: numbers only."""
    rows = []
    for split, data in task.splits.items():
        mask = torch.ones_like(data.foreground) if data.mask is None else data.mask
        length = mask.sum(dim=1).double()
        known = data.has_foreground
        share = (data.foreground.sum(dim=1) / mask.sum(dim=1))[known]
        counts = torch.bincount(data.label, minlength=len(task.class_names)).tolist()
        unknown = (data.segments.eq(0) & mask).sum() / mask.sum()
        rows.append(
            {"split": split, "posts": len(data), "words a post": round(float(length.mean()), 1)}
            | {"longest": int(length.max()), "unknown words": f"{float(unknown):.1%}"}
            | dict(zip(task.class_names, counts, strict=True))
            | {"with rationale": int(known.sum())}
            | {"marked words": f"{float(share.mean()):.0%}" if bool(known.any()) else "none"}
        )
    return pd.DataFrame(rows).set_index("split")


def word_attention(runs: Sequence[Run], place: int = 0) -> pd.DataFrame:
    """Attention of each paradigm on the words of one generated test post, runs of the smallest seed.

    Parameters
    ----------
    runs : sequence of Run
        With weights, of one task.
    place : int
        Which of the test posts with a rationale.

    Raises
    ------
    UserError
        For any other source than `keywords`: real posts are never shown.
    """
    first = [run for run in runs if run.config.seed == min(r.config.seed for r in runs)]
    config = first[0].config.data
    if not isinstance(config, TextConfig) or config.source != "keywords":
        raise UserError(f"the posts of dataset='{config.source}' are not shown: only generated ones (keywords) are.")
    words = text_words(config, first[0].config.seed)
    columns: dict[str, Any] = {}
    for paradigm in paradigms(first):
        run = next(run for run in first if run.config.paradigm == paradigm)
        model, task = trained_model(run)
        test = task.splits["test"]
        post = test.take(test.has_foreground.nonzero()[place])
        with evaluating(model):
            part, output = next(outputs(model, post, [run.config.aggregation], Numerics.of(run.config.training)))
        columns |= {
            "word": [words[number] for number in part.segments[0].tolist()],
            "rationale": ["yes" if mark else "" for mark in part.foreground[0].tolist()],
            LABELS.get(paradigm, paradigm): [f"{weight:.2f}" for weight in output.log_alpha[0].exp().tolist()],
        }
    return pd.DataFrame(columns).set_index("word")
