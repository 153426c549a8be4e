"""Write what train.md shows beside the reader's own training: the digits, and recorded runs of the library.

Usage: training_page.py OUTPUT_FOLDER    writes train-data.md, train-note.md and the figure of the recorded runs
       training_page.py --record         computes the runs of the default setting, or finds them, into book/train.csv
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd

from fcamlib import plots, store, tables
from fcamlib.config import Grid
from fcamlib.data.pictures import load_pictures

RECORD = Path(__file__).parents[1] / "train.csv"
NETWORKS = dict.fromkeys(("focus_network", "classification_network"), "mlp:1x32")
MEASURES = ("loss", "accuracy", "focus_accuracy", "saif")
LEVELS = "0123456789abcdefg"


def record() -> None:
    """Keep test measures of the default setting over ten seeds, headed by commit and date."""
    results = store.get_all(Grid.of({"dataset": "digits", "seeds": list(range(10)), **NETWORKS}).configs())
    made = results[0].summary["provenance"]
    frame = tables.history_frame(results, MEASURES).round(4)
    RECORD.write_text(f"# {made['commit']} {made['date']}\n{frame.to_csv(index=False)}", "utf-8")


def data_script(frame: pd.DataFrame) -> str:
    """The digits, a character a pixel, with class and pool (e: test), and the range of the runs, as JSON."""
    pictures = load_pictures("digits", 8)
    pools = pd.DataFrame(pictures.pools()).idxmax(axis=1).map({"train": "t", "validation": "v", "test": "e"})
    pixels = "".join(LEVELS[value] for value in pictures.values.ravel())
    digits = {"pixels": pixels, "labels": "".join(map(str, pictures.label)), "pools": "".join(pools)}
    ends = frame.groupby(["paradigm", "epoch"])[list(MEASURES)].agg(["min", "max"])
    band = {
        name: {m: part[[(m, "min"), (m, "max")]].to_numpy().T.tolist() for m in MEASURES}
        for name, part in ends.groupby(level=0)
    }
    text = json.dumps({"digits": digits, "recorded": band}, separators=(",", ":"))
    return f'<script type="application/json" id="fcam-train-data">{text}</script>'


def main(folder: Path) -> None:
    """Write the page's data, and the figure with the line how it was made."""
    frame = pd.read_csv(RECORD, comment="#")
    _, commit, date = RECORD.read_text("utf-8").split("\n", 1)[0].split()
    (folder / "train-data.md").write_text(f"```{{raw}} html\n{data_script(frame)}\n```\n", "utf-8")
    made = {"data": "digits", "recorded": True, "commits": [commit], "dates": [date]}
    rerun = "python book/_ext/training_page.py --record"
    provenance = {"notebook": "book/_ext/training_page.py", "computed": [made], "rerun": rerun}
    plots.save(plots.learning_curves(frame, switch_epoch=10), "train-recorded", folder, provenance)
    (folder / "train-note.md").write_text(plots.how_made(provenance, "train-recorded") + "\n", "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    record() if sys.argv[1] == "--record" else main(Path(sys.argv[1]))
