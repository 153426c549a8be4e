"""Write what course.md shows: the plane of focus and prediction after each epoch, and attention on test mosaics.

Usage: course.py OUTPUT_FOLDER

Writes course-data.md and course-note.md, which course.md includes, and the pictures that it shows without JavaScript.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from fcamlib import plots, tables
from fcamlib.config import Grid, Mosaics
from fcamlib.running import Trajectory, trajectory

# Fewer mosaics than the notebooks have: training takes more epochs, so that there is more to see.
SETTING: dict[str, Any] = {"num_train": 1_000, "num_validation": 250, "num_test": 1_000, "seeds": "0"}
LIST_LENGTH = 12
RERUN = "python book/_ext/course.py FOLDER"
STATIC_EPOCHS = (0, 2, 5)  # and those at the switch and at the end
STATIC_MOSAICS = 3
MEASURES = ("accuracy", "focus_accuracy", "saif", "a_z", "s_y")

Courses = Mapping[str, Trajectory]
Arrays = Mapping[str, np.ndarray]


def courses(setting: Mapping[str, Any]) -> dict[str, Trajectory]:
    """Paradigm -> trajectory of training with the attention on all test mosaics."""
    found = {}
    for run in Grid.of(setting).configs():
        assert isinstance(run.data, Mosaics)
        found[run.paradigm] = trajectory(run, run.data.num_test)
    return found


def switch_epoch(found: Trajectory) -> int | None:
    """The last epoch of the first phase, None where the schedule has one phase alone."""
    phases = found.config.phases
    return phases[0].epochs if len(phases) > 1 else None


def most_different(a_z: Sequence[np.ndarray]) -> np.ndarray:
    """Instances by how far the paradigms' a_z lie apart, largest minus smallest, the furthest first; ties by number."""
    return np.argsort(-np.ptp(np.stack(a_z), axis=0), kind="stable")


def right_elsewhere(found: Arrays) -> np.ndarray:
    """Instances that the trained model predicts rightly with the largest weight beside the foreground (FFPT)."""
    focus, label = found["alpha"][-1].argmax(axis=1), found["label"]
    on_foreground = found["foreground"][np.arange(len(label)), focus]
    return np.flatnonzero(~on_foreground & (found["prob"][-1].argmax(axis=1) == label))


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
    """What the figure of the plane shows: by paradigm, percent in each cell and the measures after each epoch."""
    epochs = next(iter(found.values())).history["epoch"].tolist()
    return {
        "epochs": epochs,
        "switch": next((switch for one in found.values() if (switch := switch_epoch(one))), None),
        "paradigms": {
            name: {
                "label": tables.label(name),
                "cells": [cells.ravel().round(2).tolist() for cells in one.histograms],
                **{measure: one.history[measure].round(3).tolist() for measure in MEASURES},
            }
            for name, one in found.items()
        },
    }


def lists(examples: Mapping[str, Arrays]) -> list[dict[str, Any]]:
    """The mosaics that a reader can go through, by rules that look at the trained models alone."""
    a_z = [(found["alpha"][-1] * found["foreground"]).sum(axis=1) for found in examples.values()]
    elsewhere, total = right_elsewhere(examples["soft"]), len(examples["soft"]["label"])
    number = min(LIST_LENGTH, len(elsewhere))
    found = [
        (f"the first {min(LIST_LENGTH, total)} test mosaics", np.arange(total)),
        (f"the {min(LIST_LENGTH, total)} where the attention on the foreground differs most", most_different(a_z)),
        (f"SA looks elsewhere and is right (FFPT): the first {number} of {len(elsewhere)}", elsewhere),
    ]
    return [{"title": title, "numbers": numbers[:LIST_LENGTH].tolist()} for title, numbers in found if len(numbers)]


def gallery_data(found: Courses) -> dict[str, Any]:
    """What the gallery shows: mosaics once each, with the looks of the models at them in hundredths."""
    examples = {name: one.examples for name, one in found.items()}
    groups = lists(examples)
    chosen = sorted({number for group in groups for number in group["numbers"]})
    place = {number: position for position, number in enumerate(chosen)}
    first = next(iter(examples.values()))
    return {
        "classes": next(iter(found.values())).summary["class_names"],
        "sprite": sprite(first["segments"][chosen]),
        "lists": [{"title": g["title"], "mosaics": [place[n] for n in g["numbers"]]} for g in groups],
        "mosaics": [
            {
                "number": number,
                "label": int(first["label"][number]),
                "foreground": int(first["foreground"][number].argmax()),
                "looks": {name: looks(e["alpha"][:, number], e["prob"][:, number]) for name, e in examples.items()},
            }
            for number in chosen
        ],
    }


def looks(alpha: np.ndarray, prob: np.ndarray) -> list[list[int]]:
    """After each epoch: the weights in hundredths, the place of the largest, the class predicted, its probability."""
    hundredths = np.rint(100 * alpha).astype(int)
    predicted = prob.argmax(axis=1)
    sure = np.rint(100 * prob.max(axis=1)).astype(int)
    return np.column_stack([hundredths, alpha.argmax(axis=1), predicted, sure]).tolist()


def sprite(segments: UInt8[np.ndarray, "n M H W"]) -> str:
    """One picture of all segments, a row a mosaic, as a data URI."""
    n, num_segments, height, width = segments.shape
    sheet = segments.swapaxes(1, 2).reshape(n * height, num_segments * width)
    buffer = io.BytesIO()
    Image.fromarray(sheet).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def as_markdown(found: Courses) -> str:
    """The sentence on the setting and the data as JSON within the page."""
    content = {**plane_data(found), "gallery": gallery_data(found)}
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    script = f'<script type="application/json" id="fcam-course-data">{text}</script>'
    return f"{sentence(found)}\n\n```{{raw}} html\n{script}\n```\n"


def static_histograms(found: Courses) -> dict[str, dict[str, np.ndarray]]:
    """Epoch in words -> paradigm -> percent, at a few epochs."""
    last = len(next(iter(found.values())).histograms) - 1
    switch = next((s for one in found.values() if (s := switch_epoch(one))), last)
    shown = sorted({epoch for epoch in (*STATIC_EPOCHS, switch, last) if epoch <= last})
    return {f"epoch {epoch}": {name: one.histograms[epoch] for name, one in found.items()} for epoch in shown}


def static_gallery(found: Courses) -> dict[str, Any]:
    """The arguments of `plots.attention_gallery`: the first mosaics of the last list and the trained models."""
    examples = {name: one.examples for name, one in found.items()}
    chosen = lists(examples)[-1]["numbers"][:STATIC_MOSAICS]
    first = next(iter(examples.values()))
    labels = first["label"][chosen]
    return {
        "segments": first["segments"][chosen],
        "foreground": first["foreground"][chosen],
        "labels": labels,
        "label_names": next(iter(found.values())).summary["class_names"],
        "alpha": {name: e["alpha"][-1, chosen] for name, e in examples.items()},
        "predictions": {name: e["prob"][-1, chosen].argmax(axis=1) for name, e in examples.items()},
        "scores": {name: e["prob"][-1, chosen, labels] for name, e in examples.items()},
    }


def main(folder: Path) -> None:
    """Write the page's data and its pictures, with the line how they were made."""
    found = courses(SETTING)
    one = next(iter(found.values())).summary
    here = {"data": one["title"], "recorded": False}
    here |= {f"{name}s": [one["provenance"][name]] for name in ("commit", "date")}
    record = {"notebook": "book/_ext/course.py", "computed": [here], "rerun": RERUN}
    plots.save(plots.focus_prediction_heatmaps(static_histograms(found)), "course-plane", folder, record)
    plots.save(plots.attention_gallery(**static_gallery(found)), "course-gallery", folder, record)
    (folder / "course-data.md").write_text(as_markdown(found), "utf-8")
    (folder / "course-note.md").write_text(plots.how_made(record, "course", dated=True) + "\n", "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
