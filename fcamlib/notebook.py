"""What notebooks call: their checked parameters, and trained models on a few instances as arguments for figures."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from fcamlib.config import CaptionGrid, Grid, Parameters, TaskParameters
from fcamlib.errors import UserError, require_address_space
from fcamlib.paradigms import label_of
from fcamlib.tables import Result, paradigms, title

if TYPE_CHECKING:
    import numpy as np

    from fcamlib.data.sdc import SDCTask

Model = TypeVar("Model", bound=Parameters)
INJECTED = "# Parameters"  # first line of the cell in which papermill sets the caller's values

require_address_space()  # the imports that follow in a notebook load PyTorch
pd.set_option("display.max_colwidth", None)  # tables show sentences whole


def parameters(namespace: Mapping[str, Any], model: type[Model] = Grid) -> Model:  # type: ignore[assignment]
    """The validated parameters in a notebook's `globals()`, of which only names of `model`'s parameters are read.

    A name passed to papermill that is not a parameter is refused.
    """
    known, injected = model.known(namespace.get("dataset")).keys() & namespace.keys(), set[str]()
    for cell in namespace.get("In", []):
        if cell.startswith(INJECTED):
            injected |= {one.id for one in ast.walk(ast.parse(cell)) if isinstance(one, ast.Name)} & namespace.keys()
    values = {name: namespace[name] for name in known | injected}
    if issubclass(model, TaskParameters):
        values = model.without_zeros(values)
    return model.of(values, given=injected & values.keys())


def effective(experiment: Grid | CaptionGrid) -> pd.DataFrame:
    """The value of each parameter, with the data source's defaults filled in, and its meaning."""
    known = experiment.known(experiment.dataset)
    values = {name: getattr(experiment, name, getattr(experiment.task, name, "")) for name in known}
    values["switch_epoch"] = experiment.switch_epoch or experiment.epochs // 2
    text = {name: ", ".join(map(str, of)) if isinstance(of, tuple) else str(of) for name, of in values.items()}
    meaning = {name: field.description for name, field in known.items()}
    return pd.DataFrame({"value": text, "meaning": meaning}).rename_axis("parameter")


def _kept(runs: Sequence[Result]) -> dict[str, dict[str, np.ndarray]]:
    """Paradigm -> the examples kept by its run with the smallest seed, whose instances all paradigms share."""
    first = min(run.config.seed for run in runs)
    found = {run.config.paradigm: run.arrays("examples.npz") for run in runs if run.config.seed == first}
    if not all(found.values()):
        why = "recorded runs keep at most those of seed 0, and runs on posts or on large instances keep none"
        raise UserError(f"no example of '{title(runs[0])}' is kept: {why}.")
    return found


def gallery(runs: Sequence[Result], count: int = 3) -> dict[str, Any]:
    """The arguments of `plots.attention_gallery`: the first test instances as each paradigm's model sees them."""
    found = _kept(runs)
    shared = next(iter(found.values()))
    names = runs[0].summary.get("class_names", ()) or getattr(runs[0].config.data, "foreground", ())
    parts = {"segments": "segments", "foreground": "foreground", "labels": "label"}
    own = {"alpha": "alpha", "predictions": "prediction", "scores": "s_y"}
    given: dict[str, Any] = {ours: shared[kept][:count] for ours, kept in parts.items()}
    given |= {ours: {p: found[p][kept][:count] for p in paradigms(runs)} for ours, kept in own.items()}
    return given | {"label_names": names}


def captions(runs: Sequence[Result], example: int) -> dict[str, Any]:
    """The arguments of `plots.word_attention`: picture, boxes, and each paradigm's words with their attention."""
    from fcamlib.plots import CaptionExample

    kept, examples = _kept(runs), {}
    for paradigm in paradigms(runs):
        one = {name: values[example] for name, values in kept[paradigm].items()}
        real = one["real"] & (one["word"] != "<end>")
        examples[paradigm] = CaptionExample(one["word"][real].tolist(), one["alpha"][real], one["names_category"][real])
    return {"picture": one.get("picture"), "boxes": one["box"], "examples": examples}


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
