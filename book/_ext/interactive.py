"""Write what the interactive pages show: a course of training, and the digits with recorded runs of the library.

Usage: interactive.py OUTPUT_FOLDER
       interactive.py --record    computes the runs that train.md compares with, or finds them, into book/train.csv

For course.md, train.md and the landing page: data, lines how they were made, and pictures shown without JavaScript.
"""

import base64
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from findings import shown_tasks
from jaxtyping import UInt8
from PIL import Image

from fcamlib import plots, store, tables
from fcamlib.config import Grid
from fcamlib.data.pictures import load_pictures
from fcamlib.running import Trajectory, trajectory

NAME = f"book/_ext/{Path(__file__).name}"
# Fewer mosaics than the notebooks have: training takes more epochs, so that there is more to see.
SETTING = {"num_train": 1_000, "num_validation": 250, "num_test": 1_000, "seeds": "0"}
LIST_LENGTH = 12
STATIC_EPOCHS, STATIC_MOSAICS = (0, 2, 5), 3  # and the epochs at the switch and at the end
MEASURES = ["accuracy", "focus_accuracy", "saif", "a_z", "s_y"]
RECORD = Path(__file__).parents[1] / "train.csv"
NETWORK = "mlp:1x32"
KEPT = ["loss", "accuracy", "focus_accuracy", "saif"]


def courses(setting: dict[str, Any]) -> dict[str, Trajectory]:
    """Paradigm -> trajectory of training with the attention on all test mosaics."""
    return {run.paradigm: trajectory(run) for run in Grid.of(setting).configs()}


def plane_data(found: dict[str, Trajectory]) -> dict[str, Any]:
    """By paradigm, percent in each cell of the plane and the measures after each epoch."""
    shown = {
        name: {"label": tables.label(name), "cells": [cells.ravel().round(2).tolist() for cells in one.histograms]}
        | one.history[MEASURES].round(3).to_dict("list")
        for name, one in found.items()
    }
    epochs, switch = found["soft"].history["epoch"].tolist(), tables.switch_epoch(found.values())
    return {"epochs": epochs, "switch": switch, "paradigms": shown}


def lists(found: dict[str, Trajectory]) -> dict[str, list[int]]:
    """The mosaics that a reader can go through, by rules that look at the trained models alone."""
    a_z = [(one.examples["alpha"][-1] * one.examples["foreground"]).sum(axis=1) for one in found.values()]
    soft = found["soft"].examples
    every, is_right = np.arange(len(soft["label"])), soft["prob"][-1].argmax(axis=1) == soft["label"]
    elsewhere = np.flatnonzero(is_right & ~soft["foreground"][every, soft["alpha"][-1].argmax(axis=1)])
    most, number = min(LIST_LENGTH, len(every)), min(LIST_LENGTH, len(elsewhere))
    groups = {
        f"the first {most} test mosaics": every,
        f"the {most} where the attention on the foreground differs most":
            np.argsort(-np.ptp(np.stack(a_z), axis=0), kind="stable"),
        f"SA looks elsewhere and is right (FFPT): the first {number} of {len(elsewhere)}": elsewhere,
    }  # fmt: skip
    return {title: numbers[:LIST_LENGTH].tolist() for title, numbers in groups.items() if len(numbers)}


def gallery_data(found: dict[str, Trajectory]) -> dict[str, Any]:
    """Mosaics once each, with attention and prediction of the models in hundredths."""
    groups, kept = lists(found), found["soft"].examples
    chosen = sorted({number for numbers in groups.values() for number in numbers})
    mosaics = [
        {"number": number, "label": int(kept["label"][number]), "foreground": int(kept["foreground"][number].argmax()),
         "looks": {name: looks(one, number) for name, one in found.items()}}
        for number in chosen
    ]  # fmt: skip
    shown = [{"title": title, "mosaics": list(map(chosen.index, numbers))} for title, numbers in groups.items()]
    classes, picture = found["soft"].summary["class_names"], sprite(kept["segments"][chosen])
    return {"classes": classes, "sprite": picture, "lists": shown, "mosaics": mosaics}


def looks(one: Trajectory, number: int) -> list[list[int]]:
    """After each epoch: the weights in hundredths, the place of the largest, the class predicted, its probability."""
    alpha, prob = one.examples["alpha"][:, number], one.examples["prob"][:, number]
    columns = np.rint(100 * alpha), alpha.argmax(axis=1), prob.argmax(axis=1), np.rint(100 * prob.max(axis=1))
    return np.column_stack(columns).astype(int).tolist()


def sprite(segments: UInt8[np.ndarray, "n M H W"]) -> str:
    """One picture of all segments, a row a mosaic, as a data URI."""
    n, num_segments, height, width = segments.shape
    buffer = io.BytesIO()
    sheet = segments.swapaxes(1, 2).reshape(n * height, num_segments * width)
    Image.fromarray(sheet).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def as_markdown(found: dict[str, Trajectory]) -> str:
    """The sentence on the setting and the data as JSON within the page."""
    one, run, last = found["soft"], found["soft"].config, found["soft"].history["epoch"].iloc[-1]
    sentence = (
        f"Shown are {one.summary['title']} with {run.data.described}, {last} epochs, seed {run.seed} and "
        f"{one.summary['n']:,} test mosaics; four models that start from the same weights."
    )
    return f"{sentence}\n\n{raw('fcam-course-data', plane_data(found) | {'gallery': gallery_data(found)})}"


def raw(identifier: str, content: dict[str, Any]) -> str:
    """Data as JSON within the page, which Markdown leaves as it is."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return f'```{{raw}} html\n<script type="application/json" id="{identifier}">{text}</script>\n```\n'


def static_gallery(found: dict[str, Trajectory]) -> dict[str, Any]:
    """The arguments of `plots.attention_gallery`: the first mosaics of the last list and the trained models."""
    *_, numbers = lists(found).values()
    chosen, first = numbers[:STATIC_MOSAICS], found["soft"]
    labels, prob = first.examples["label"][chosen], {n: one.examples["prob"][-1, chosen] for n, one in found.items()}
    return {name: first.examples[name][chosen] for name in ("segments", "foreground")} | {
        "labels": labels, "label_names": first.summary["class_names"],
        "alpha": {name: one.examples["alpha"][-1, chosen] for name, one in found.items()},
        "predictions": {name: values.argmax(axis=1) for name, values in prob.items()},
        "scores": {name: values[np.arange(len(chosen)), labels] for name, values in prob.items()},
    }  # fmt: skip


def provenance(data: str, commit: str, date: str, recorded: bool, argument: str) -> dict[str, Any]:
    """The record of a figure."""
    made = {"data": data, "recorded": recorded, "commits": [commit], "dates": [date]}
    return {"notebook": NAME, "computed": [made], "rerun": f"python {NAME} {argument}"}


def write(folder: Path) -> None:
    """Train, and write what course.md and the landing page show, and what train.md shows beside a reader's training."""
    found = courses(SETTING)
    one, made = found["soft"], found["soft"].summary["provenance"]
    course = provenance(one.summary["title"], made["commit"], made["date"], False, "FOLDER")
    last, data = len(one.histograms) - 1, plane_data(found)
    shown = sorted({epoch for epoch in (*STATIC_EPOCHS, data["switch"], last) if epoch <= last})
    plane = {f"epoch {epoch}": {name: one.histograms[epoch] for name, one in found.items()} for epoch in shown}
    plots.save(plots.focus_prediction_heatmaps(plane), "course-plane", folder, course)
    plots.save(plots.attention_gallery(**static_gallery(found)), "course-gallery", folder, course)
    curves = tables.history_frame(shown_tasks()["cifar"]).groupby(["paradigm", "epoch"])["saif"].mean().unstack()
    at = (epochs := curves.columns.to_numpy(int))[np.searchsorted(epochs, np.arange(1, last + 1) * epochs[-1] / last)]
    for name, row in curves[at].round(3).iterrows():  # the first measured epoch at or after the same share of training
        data["paradigms"][str(name)]["recorded"] = row.tolist()
    frame = pd.read_csv(RECORD, comment="#")
    _, commit, date = RECORD.read_text("utf-8").split("\n", 1)[0].split()
    training = provenance("digits", commit, date, True, "--record")
    plots.save(plots.learning_curves(frame, switch_epoch=10), "train-recorded", folder, training)
    parts = {"course-data": as_markdown(found), "course-plane-data": raw("fcam-course-data", data)}
    for name in ("course-plane", "course-gallery"):
        parts[f"{name}-note"] = plots.how_made(course, name, dated=True) + "\n"
    parts |= {"train-data": data_script(frame), "train-note": plots.how_made(training, "train-recorded") + "\n"}
    for name, text in parts.items():
        (folder / f"{name}.md").write_text(text, "utf-8")


def record() -> None:
    """Keep test measures of the default setting over ten seeds, headed by commit and date."""
    grid = {"dataset": "digits", "seeds": list(range(10)), "focus_network": NETWORK, "classification_network": NETWORK}
    results = store.get_all(Grid.of(grid).configs())
    made = results[0].summary["provenance"]
    frame = tables.history_frame(results, KEPT).round(4)
    RECORD.write_text(f"# {made['commit']} {made['date']}\n{frame.to_csv(index=False)}", "utf-8")


def data_script(frame: pd.DataFrame) -> str:
    """The digits, a character a pixel, with class and pool (e: test), and the range of the runs, as JSON."""
    pictures = load_pictures("digits", 8)
    pools = pd.DataFrame(pictures.pools()).idxmax(axis=1).map({"train": "t", "validation": "v", "test": "e"})
    pixels = "".join("0123456789abcdefg"[value] for value in pictures.values.ravel())
    digits = {"pixels": pixels, "labels": "".join(map(str, pictures.label)), "pools": "".join(pools)}
    ends = frame.groupby(["paradigm", "epoch"])[KEPT].agg(["min", "max"])
    band = {name: {m: part[m].to_numpy().T.tolist() for m in KEPT} for name, part in ends.groupby(level=0)}
    return raw("fcam-train-data", {"digits": digits, "recorded": band})


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--record"]:
            record()
        case [folder]:
            write(Path(folder))
        case _:
            sys.exit(__doc__)
