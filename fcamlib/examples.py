"""Trained models on a few test instances, as arguments for figures; statistics of posts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from fcamlib.errors import UserError
from fcamlib.paradigms import label_of
from fcamlib.tables import Result, paradigms, title

if TYPE_CHECKING:
    import numpy as np

    from fcamlib.data.sdc import SDCTask


def _kept(runs: Sequence[Result]) -> dict[str, dict[str, np.ndarray]]:
    """Paradigm -> the examples kept by its run with the smallest seed."""
    first = min(run.config.seed for run in runs)
    found = {run.config.paradigm: run.arrays("examples.npz") for run in runs if run.config.seed == first}
    if all(found.values()):
        return found
    if first and any(run.is_recorded for run in runs):
        raise UserError(f"recorded runs keep examples only of seed 0, but these begin with seed {first}: give seed 0.")
    raise UserError(
        f"no example was kept, since an instance of '{title(runs[0])}' is too large: give a smaller "
        "num_segments here; the tables and curves of the other notebooks need no examples."
    )


def gallery(runs: Sequence[Result], count: int = 3) -> dict[str, Any]:
    """The arguments of `plots.attention_gallery`: the first test instances as each paradigm's model sees them.

    Uses the runs with the smallest seed, whose instances all paradigms share; `UserError` if they kept no examples.
    """
    found = _kept(runs)
    shared = next(iter(found.values()))
    names = runs[0].summary.get("class_names", ()) or getattr(runs[0].config.data, "foreground", ())
    shown = {ours: {p: found[p][kept][:count] for p in paradigms(runs)}
             for ours, kept in (("alpha", "alpha"), ("predictions", "prediction"), ("scores", "s_y"))}  # fmt: skip
    parts = {ours: shared[kept][:count] for ours, kept in (("segments", "segments"), ("foreground", "foreground"))}
    return {**parts, "labels": shared["label"][:count], "label_names": names, **shown}


def captions(runs: Sequence[Result], example: int) -> dict[str, Any]:
    """The arguments of `plots.word_attention`: picture, boxes, and each paradigm's words with their attention.

    Uses the runs with the smallest seed.
    """
    from fcamlib.plots import CaptionExample

    kept = _kept(runs)
    examples = {}
    for paradigm in paradigms(runs):
        one = {name: values[example] for name, values in kept[paradigm].items()}
        real = one["real"] & (one["word"] != "<end>")
        examples[paradigm] = CaptionExample(one["word"][real].tolist(), one["alpha"][real], one["names_category"][real])
    shared = next(iter(kept.values()))
    picture = shared["picture"][example] if "picture" in shared else None
    return {"picture": picture, "boxes": shared["box"][example], "examples": examples}


def word_attention(runs: Sequence[Result], place: int = 0) -> pd.DataFrame:
    """Attention of each paradigm, at the smallest seed, on the words of test post number `place` with a rationale.

    The runs need weights; real posts are never shown, so any source but `keywords` raises `UserError`.
    """
    from fcamlib.data.text import text_words
    from fcamlib.evaluation import evaluating, outputs
    from fcamlib.numerics import Numerics
    from fcamlib.running import trained_model

    first = [run for run in runs if run.config.seed == min(r.config.seed for r in runs)]
    config = first[0].config.data
    if config.source != "keywords":
        raise UserError(f"the posts of dataset='{config.source}' are not shown: choose keywords, which are generated.")
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
            label_of(paradigm): [f"{weight:.2f}" for weight in output.log_alpha[0].exp().tolist()],
        }
    return pd.DataFrame(columns).set_index("word")


def posts_table(task: SDCTask) -> pd.DataFrame:
    """Counts of posts, words, classes and rationales in each split."""
    import torch

    rows = []
    for split, data in task.splits.items():
        mask = torch.ones_like(data.foreground) if data.mask is None else data.mask
        length, known = mask.sum(dim=1).double(), data.has_foreground
        share = (data.foreground.sum(dim=1) / length)[known]
        counts = torch.bincount(data.label, minlength=len(task.class_names)).tolist()
        rows.append(
            {
                "split": split,
                "posts": len(data),
                "words per post": round(float(length.mean()), 1),
                "longest": int(length.max()),
                "unknown words": f"{float((data.segments.eq(0) & mask).sum() / mask.sum()):.1%}",
                **dict(zip(task.class_names, counts, strict=True)),
                "with rationale": int(known.sum()),
                "marked words": f"{float(share.mean()):.0%}" if bool(known.any()) else "none",
            }
        )
    return pd.DataFrame(rows).set_index("split")
