"""Write what train.md shows beside the reader's own training: the digits, and recorded runs of the library.

Usage: training_page.py OUTPUT_FOLDER    writes train-data.md, train-note.md and the figure of the recorded runs
       training_page.py --record         computes the runs of the default setting anew, into book/train.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcamlib import plots, store
from fcamlib.config import Grid
from fcamlib.data.pictures import load_pictures

RECORD = Path(__file__).parents[1] / "train.json"
SETTING: dict[str, Any] = {"dataset": "digits", "seeds": ",".join(map(str, range(10)))} | dict.fromkeys(
    ("focus_network", "classification_network"), "mlp:1x32"
)
MEASURES = ("loss", "accuracy", "focus_accuracy", "saif")  # of test mosaics
Runs = dict[str, dict[str, Any]]  # paradigm -> measure -> (seeds, epochs)
LEVELS = "0123456789abcdefg"


def recorded() -> dict[str, Any]:
    """Paradigm -> measure -> (seeds, epochs) of the runs of the default setting, and where they come from."""
    runs: dict[str, Any] = {}
    results = store.get_all(Grid.of(SETTING).configs())
    for result in results:
        for measure in MEASURES:
            values = result.history[f"test_{measure}"].round(4).tolist()
            runs.setdefault(result.config.paradigm, {}).setdefault(measure, []).append(values)
    origins = [result.summary["provenance"] for result in results]
    found = {f"{name}s": sorted({origin[name] for origin in origins}) for name in ("commit", "date")}
    return {"made": {"data": results[0].summary["title"], "recorded": True, **found}, "runs": runs}


def digits() -> dict[str, str]:
    """The digits, a character a pixel, with their classes and pools: t train, v validation, e test."""
    pictures = load_pictures("digits", 8)
    pools = pictures.pools()
    return {
        "pixels": "".join(LEVELS[value] for value in pictures.values.ravel()),
        "labels": "".join(map(str, pictures.label)),
        "pools": "".join(
            "t" if train else "v" if held else "e" for train, held, _ in zip(*pools.values(), strict=True)
        ),
    }


def data_script(runs: Runs) -> str:
    """The digits and the range of the recorded runs, as JSON within the page."""
    band = {n: {m: [v.min(axis=0).tolist(), v.max(axis=0).tolist()] for m, v in one.items()} for n, one in runs.items()}
    text = json.dumps({"digits": digits(), "recorded": band}, separators=(",", ":"))
    return f'<script type="application/json" id="fcam-train-data">{text}</script>'


def read() -> tuple[dict[str, Any], Runs]:
    """Where the recorded runs come from, and the runs."""
    content = json.loads(RECORD.read_text("utf-8"))
    runs = {name: {m: np.array(values) for m, values in one.items()} for name, one in content["runs"].items()}
    return content["made"], runs


def main(folder: Path) -> None:
    """Write the page's data, and the figure with the line how it was made."""
    made, runs = read()
    (folder / "train-data.md").write_text(f"```{{raw}} html\n{data_script(runs)}\n```\n", "utf-8")
    rows = [
        pd.DataFrame({measure: values[seed] for measure, values in one.items()}).assign(paradigm=name, seed=seed)
        for name, one in runs.items()
        for seed in range(len(one["loss"]))
    ]
    frame = pd.concat([row.assign(epoch=row.index + 1) for row in rows])
    rerun = "python book/_ext/training_page.py --record"
    record = {"notebook": "book/train.json", "computed": [made], "rerun": rerun}
    plots.save(plots.learning_curves(frame, switch_epoch=10), "train-recorded", folder, record)
    (folder / "train-note.md").write_text(plots.how_made(record, "train-recorded") + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        RECORD.write_text(json.dumps(recorded(), separators=(",", ":")) + "\n", "utf-8")
    elif len(sys.argv) == 2:
        main(Path(sys.argv[1]))
    else:
        sys.exit(__doc__)
