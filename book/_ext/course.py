"""Write what course.md shows: the plane of focus and prediction after each epoch, and attention on test mosaics.

Usage: course.py OUTPUT_FOLDER

Writes course-data.md and course-note.md, which course.md includes, course-plane-data.md for the landing page, and the
pictures that they show without JavaScript.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from findings import shown_tasks
from jaxtyping import UInt8
from PIL import Image

from fcamlib import plots, tables
from fcamlib.config import Grid, Mosaics
from fcamlib.running import Trajectory, trajectory

# Fewer mosaics than the notebooks have: training takes more epochs, so that there is more to see.
SETTING: dict[str, Any] = {"num_train": 1_000, "num_validation": 250, "num_test": 1_000, "seeds": "0"}
LIST_LENGTH = 12
STATIC_EPOCHS = (0, 2, 5)  # and those at the switch and at the end
STATIC_MOSAICS = 3
MEASURES = ("accuracy", "focus_accuracy", "saif", "a_z", "s_y")
Courses = Mapping[str, Trajectory]


def courses(setting: Mapping[str, Any]) -> dict[str, Trajectory]:
    """Paradigm -> trajectory of training with the attention on all test mosaics."""
    found = {}
    for run in Grid.of(setting).configs():
        assert isinstance(run.data, Mosaics)
        found[run.paradigm] = trajectory(run, run.data.num_test)
    return found


def switch_epoch(found: Courses) -> int | None:
    """The last epoch of the hybrid's first phase, None without a hybrid."""
    return next((one.config.phases[0].epochs for one in found.values() if len(one.config.phases) > 1), None)


def sentence(found: Courses) -> str:
    """What was trained and what is shown."""
    one = next(iter(found.values()))
    run, last = one.config, int(one.history["epoch"].iloc[-1])
    assert isinstance(run.data, Mosaics)
    return (
        f"Shown are {one.summary['title']} with {run.data.described}, {last} epochs, seed {run.seed} and "
        f"{one.summary['n']:,} test mosaics; four models that start from the same weights."
    )


def plane_data(found: Courses) -> dict[str, Any]:
    """By paradigm, percent in each cell of the plane and the measures after each epoch."""
    return {
        "epochs": next(iter(found.values())).history["epoch"].tolist(),
        "switch": switch_epoch(found),
        "paradigms": {
            name: {
                "label": tables.label(name),
                "cells": [cells.ravel().round(2).tolist() for cells in one.histograms],
                **{measure: one.history[measure].round(3).tolist() for measure in MEASURES},
            }
            for name, one in found.items()
        },
    }


def recorded_saif(last: int) -> dict[str, list[float]]:
    """Paradigm -> SAIF of the recorded runs on CIFAR-10, mean over seeds, after each share 1/last of their epochs."""
    curves = tables.history_frame(shown_tasks()["cifar"]).groupby(["paradigm", "epoch"])["saif"].mean().unstack()
    epochs = [-(-epoch * curves.shape[1] // last) for epoch in range(1, last + 1)]
    return {str(name): row.loc[epochs].round(3).tolist() for name, row in curves.iterrows()}


def lists(found: Courses) -> list[dict[str, Any]]:
    """The mosaics that a reader can go through, by rules that look at the trained models alone."""
    a_z = [(one.examples["alpha"][-1] * one.examples["foreground"]).sum(axis=1) for one in found.values()]
    soft = found["soft"].examples
    total = len(soft["label"])
    is_right = soft["prob"][-1].argmax(axis=1) == soft["label"]
    on_foreground = soft["foreground"][np.arange(total), soft["alpha"][-1].argmax(axis=1)]
    elsewhere = np.flatnonzero(is_right & ~on_foreground)
    most, number = min(LIST_LENGTH, total), min(LIST_LENGTH, len(elsewhere))
    groups = [
        (f"the first {most} test mosaics", np.arange(total)),
        (f"the {most} where the attention on the foreground differs most",
         np.argsort(-np.ptp(np.stack(a_z), axis=0), kind="stable")),
        (f"SA looks elsewhere and is right (FFPT): the first {number} of {len(elsewhere)}", elsewhere),
    ]  # fmt: skip
    return [{"title": title, "numbers": numbers[:LIST_LENGTH].tolist()} for title, numbers in groups if len(numbers)]


def gallery_data(found: Courses) -> dict[str, Any]:
    """Mosaics once each, with attention and prediction of the models in hundredths."""
    groups = lists(found)
    chosen = sorted({number for group in groups for number in group["numbers"]})
    first = next(iter(found.values()))
    kept = first.examples
    return {
        "classes": first.summary["class_names"],
        "sprite": sprite(kept["segments"][chosen]),
        "lists": [{"title": g["title"], "mosaics": [chosen.index(n) for n in g["numbers"]]} for g in groups],
        "mosaics": [
            {
                "number": number,
                "label": int(kept["label"][number]),
                "foreground": int(kept["foreground"][number].argmax()),
                "looks": {name: looks(one, number) for name, one in found.items()},
            }
            for number in chosen
        ],
    }


def looks(one: Trajectory, number: int) -> list[list[int]]:
    """After each epoch: the weights in hundredths, the place of the largest, the class predicted, its probability."""
    alpha, prob = one.examples["alpha"][:, number], one.examples["prob"][:, number]
    sure = np.rint(100 * prob.max(axis=1)).astype(int)
    weights = np.rint(100 * alpha).astype(int)
    return np.column_stack([weights, alpha.argmax(axis=1), prob.argmax(axis=1), sure]).tolist()


def sprite(segments: UInt8[np.ndarray, "n M H W"]) -> str:
    """One picture of all segments, a row a mosaic, as a data URI."""
    n, num_segments, height, width = segments.shape
    buffer = io.BytesIO()
    sheet = segments.swapaxes(1, 2).reshape(n * height, num_segments * width)
    Image.fromarray(sheet).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def as_markdown(found: Courses) -> str:
    """The sentence on the setting and the data as JSON within the page."""
    return f"{sentence(found)}\n\n{as_script({**plane_data(found), 'gallery': gallery_data(found)})}"


def as_script(content: Mapping[str, Any]) -> str:
    """Data as JSON within the page."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    script = f'<script type="application/json" id="fcam-course-data">{text}</script>'
    return f"```{{raw}} html\n{script}\n```\n"


def static_gallery(found: Courses) -> dict[str, Any]:
    """The arguments of `plots.attention_gallery`: the first mosaics of the last list and the trained models."""
    chosen = lists(found)[-1]["numbers"][:STATIC_MOSAICS]
    examples = {name: one.examples for name, one in found.items()}
    first = next(iter(found.values()))
    labels = first.examples["label"][chosen]
    return {
        "segments": first.examples["segments"][chosen],
        "foreground": first.examples["foreground"][chosen],
        "labels": labels,
        "label_names": first.summary["class_names"],
        "alpha": {name: e["alpha"][-1, chosen] for name, e in examples.items()},
        "predictions": {name: e["prob"][-1, chosen].argmax(axis=1) for name, e in examples.items()},
        "scores": {name: e["prob"][-1, chosen, labels] for name, e in examples.items()},
    }


def main(folder: Path) -> None:
    """Write the page's data and its pictures, with the line how they were made."""
    found = courses(SETTING)
    one = next(iter(found.values()))
    here = {"data": one.summary["title"], "recorded": False}
    here |= {f"{name}s": [one.summary["provenance"][name]] for name in ("commit", "date")}
    record = {"notebook": "book/_ext/course.py", "computed": [here], "rerun": "python book/_ext/course.py FOLDER"}
    last = len(one.histograms) - 1
    shown = sorted({epoch for epoch in (*STATIC_EPOCHS, switch_epoch(found) or last, last) if epoch <= last})
    plane = {f"epoch {epoch}": {name: one.histograms[epoch] for name, one in found.items()} for epoch in shown}
    plots.save(plots.focus_prediction_heatmaps(plane), "course-plane", folder, record)
    plots.save(plots.attention_gallery(**static_gallery(found)), "course-gallery", folder, record)
    (folder / "course-data.md").write_text(as_markdown(found), "utf-8")
    shown_first = plane_data(found)
    for name, saif in recorded_saif(last).items():
        shown_first["paradigms"][name]["recorded"] = saif
    (folder / "course-plane-data.md").write_text(as_script(shown_first), "utf-8")
    (folder / "course-note.md").write_text(plots.how_made(record, "course", dated=True) + "\n", "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
