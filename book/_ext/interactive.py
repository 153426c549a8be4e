"""Write what the interactive pages show: a course of training, and the digits with recorded runs of the library.

Usage: interactive.py OUTPUT_FOLDER
       interactive.py --record    computes the runs that train.md compares with, or finds them, into book/train.csv

Writes for course.md, the landing page and train.md the data, the lines how they were made, and the pictures that they
show without JavaScript: the plane of focus and prediction after each epoch, attention on test mosaics, recorded runs.
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
import pandas as pd
from findings import shown_tasks
from jaxtyping import UInt8
from PIL import Image

from fcamlib import plots, store, tables
from fcamlib.config import Grid, Mosaics
from fcamlib.data.pictures import load_pictures
from fcamlib.running import Trajectory, trajectory

NAME = Path(__file__).name
# Fewer mosaics than the notebooks have: training takes more epochs, so that there is more to see.
SETTING: dict[str, Any] = {"num_train": 1_000, "num_validation": 250, "num_test": 1_000, "seeds": "0"}
LIST_LENGTH = 12
STATIC_EPOCHS = (0, 2, 5)  # and those at the switch and at the end
STATIC_MOSAICS = 3
MEASURES = ("accuracy", "focus_accuracy", "saif", "a_z", "s_y")
RECORD = Path(__file__).parents[1] / "train.csv"
NETWORKS = dict.fromkeys(("focus_network", "classification_network"), "mlp:1x32")
KEPT = ("loss", "accuracy", "focus_accuracy", "saif")
LEVELS = "0123456789abcdefg"
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
    content = {**plane_data(found), "gallery": gallery_data(found)}
    return f"{sentence(found)}\n\n{raw(as_script('fcam-course-data', content))}"


def as_script(identifier: str, content: Mapping[str, Any]) -> str:
    """Data as JSON within the page."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return f'<script type="application/json" id="{identifier}">{text}</script>'


def raw(html: str) -> str:
    """HTML as Markdown that leaves it as it is."""
    return f"```{{raw}} html\n{html}\n```\n"


def static_gallery(found: Courses) -> dict[str, Any]:
    """The arguments of `plots.attention_gallery`: the first mosaics of the last list and the trained models."""
    chosen = lists(found)[-1]["numbers"][:STATIC_MOSAICS]
    first = next(iter(found.values()))
    kept = {name: first.examples[name][chosen] for name in ("segments", "foreground")}
    labels = first.examples["label"][chosen]
    ends = {name: (one.examples["alpha"][-1, chosen], one.examples["prob"][-1, chosen]) for name, one in found.items()}
    return kept | {
        "labels": labels,
        "label_names": first.summary["class_names"],
        "alpha": {name: alpha for name, (alpha, _) in ends.items()},
        "predictions": {name: prob.argmax(axis=1) for name, (_, prob) in ends.items()},
        "scores": {name: prob[np.arange(len(chosen)), labels] for name, (_, prob) in ends.items()},
    }


def write_course(folder: Path) -> None:
    """Train, and write what course.md and the landing page show."""
    found = courses(SETTING)
    one = next(iter(found.values()))
    here = {"data": one.summary["title"], "recorded": False}
    here |= {f"{name}s": [one.summary["provenance"][name]] for name in ("commit", "date")}
    record = {"notebook": f"book/_ext/{NAME}", "computed": [here], "rerun": f"python book/_ext/{NAME} FOLDER"}
    last = len(one.histograms) - 1
    shown = sorted({epoch for epoch in (*STATIC_EPOCHS, switch_epoch(found) or last, last) if epoch <= last})
    plane = {f"epoch {epoch}": {name: one.histograms[epoch] for name, one in found.items()} for epoch in shown}
    plots.save(plots.focus_prediction_heatmaps(plane), "course-plane", folder, record)
    plots.save(plots.attention_gallery(**static_gallery(found)), "course-gallery", folder, record)
    (folder / "course-data.md").write_text(as_markdown(found), "utf-8")
    shown_first = plane_data(found)
    for name, saif in recorded_saif(last).items():
        shown_first["paradigms"][name]["recorded"] = saif
    (folder / "course-plane-data.md").write_text(raw(as_script("fcam-course-data", shown_first)), "utf-8")
    (folder / "course-note.md").write_text(plots.how_made(record, "course", dated=True) + "\n", "utf-8")


def record() -> None:
    """Keep test measures of the default setting over ten seeds, headed by commit and date."""
    results = store.get_all(Grid.of({"dataset": "digits", "seeds": list(range(10)), **NETWORKS}).configs())
    made = results[0].summary["provenance"]
    frame = tables.history_frame(results, KEPT).round(4)
    RECORD.write_text(f"# {made['commit']} {made['date']}\n{frame.to_csv(index=False)}", "utf-8")


def data_script(frame: pd.DataFrame) -> str:
    """The digits, a character a pixel, with class and pool (e: test), and the range of the runs, as JSON."""
    pictures = load_pictures("digits", 8)
    pools = pd.DataFrame(pictures.pools()).idxmax(axis=1).map({"train": "t", "validation": "v", "test": "e"})
    pixels = "".join(LEVELS[value] for value in pictures.values.ravel())
    digits = {"pixels": pixels, "labels": "".join(map(str, pictures.label)), "pools": "".join(pools)}
    ends = frame.groupby(["paradigm", "epoch"])[list(KEPT)].agg(["min", "max"])
    band = {
        name: {m: part[[(m, "min"), (m, "max")]].to_numpy().T.tolist() for m in KEPT}
        for name, part in ends.groupby(level=0)
    }
    return as_script("fcam-train-data", {"digits": digits, "recorded": band})


def write_training(folder: Path) -> None:
    """Write what train.md shows beside the reader's own training."""
    frame = pd.read_csv(RECORD, comment="#")
    _, commit, date = RECORD.read_text("utf-8").split("\n", 1)[0].split()
    (folder / "train-data.md").write_text(raw(data_script(frame)), "utf-8")
    made = {"data": "digits", "recorded": True, "commits": [commit], "dates": [date]}
    again = {"notebook": f"book/_ext/{NAME}", "rerun": f"python book/_ext/{NAME} --record"}
    provenance = {"computed": [made], **again}
    plots.save(plots.learning_curves(frame, switch_epoch=10), "train-recorded", folder, provenance)
    (folder / "train-note.md").write_text(plots.how_made(provenance, "train-recorded") + "\n", "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--record":
        record()
    else:
        write_course(Path(sys.argv[1]))
        write_training(Path(sys.argv[1]))
