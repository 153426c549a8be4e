"""`fcam rerun` computes records again from their own configs and says truly how far every number is apart."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from click.testing import Result as Answer

from fcamlib import checks, notebook, paths, store
from fcamlib.cli import main
from fcamlib.config import Grid, SweepGrid
from fcamlib.errors import UserError

TINY = {"num_train": 40, "num_validation": 20, "num_test": 20, "epochs": 2, "paradigms": "soft"}
TINY_SWEEP = {"num_classes": 3, "num_segments": 3, "num_train": 20, "epochs": 2, "alphas": "0.2,1", "batch_size": 10}


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of recorded results, and an empty results folder beside it."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(paths, "recorded_dir", lambda: folder)
    return folder


def answer(*names: str) -> Answer:
    return CliRunner().invoke(main, ["rerun", *names])


def run(**changes: Any) -> store.Result[Any]:
    return store.get(Grid.of({**TINY, **changes}).configs()[0])


def keep(result: store.Result[Any], loss: float = 0.0, **summary: Any) -> None:
    """Record a result, its first training loss or its summary changed, and take it from the results folder."""
    history = result.history
    if loss:
        history["train_loss"] = history["train_loss"] + [loss, *[0.0] * (len(history) - 1)]
    shown = result.folder / "examples.npz"
    files = {"examples.npz": shown.read_bytes()} if shown.exists() else {}
    store.record(store.write(result.config, history, {**result.summary, **summary}, files))
    os.rename(result.folder, result.folder.with_name(f".{result.folder.name}"))


def test_a_rerun_gives_the_recorded_numbers_and_is_stored(recorded: Path) -> None:
    kept, swept = run(), store.get(SweepGrid.of(TINY_SWEEP).config())
    keep(kept)
    keep(swept)
    found = answer("digits-*", swept.folder.name)
    assert found.exit_code == 0, found.output
    lines = found.output.splitlines()
    assert [line.split(":")[0] for line in lines] == [kept.folder.name, swept.folder.name]
    assert all("largest difference 0; in" in line for line in lines)
    assert (paths.results_dir() / kept.folder.name / store.SUMS).is_file()


def test_a_changed_number_or_text_is_found_and_is_status_1(recorded: Path) -> None:
    splits = run(seeds=1).summary["splits"]
    splits["test"]["accuracy"] += 0.25
    keep(run(), loss=0.125)
    keep(run(seeds=1), splits=splits)
    keep(run(seeds=2), title="another title")
    keep(run(seeds=3), class_names=[])
    found = answer("digits-*")
    assert found.exit_code == 1 and found.output.count("NOT REPRODUCED") == 3
    for said in ("0.125 (train_loss)", "0.25 (summary/splits/test/accuracy)", "inf (summary/title)"):
        assert f"largest difference {said}; NOT REPRODUCED" in found.output
    blank = np.array([1.0, np.nan])
    for other, apart in ((blank, 0), (np.array([1.0, 2.0]), np.inf), (blank[:1], np.inf), (None, np.inf)):
        assert checks._apart(blank, other) == apart


def test_with_other_instructions_than_the_records_it_says_so_and_judges_by_the_spread_over_seeds(
    recorded: Path,
) -> None:
    for seed, (shift, reproduced) in enumerate([(1e-4, True), (0.5, False)]):
        result = run(seeds=seed, epochs=2 + seed)
        splits = result.summary["splits"]
        splits["test"]["loss"] += shift
        keep(result, splits=splits, provenance={**result.summary["provenance"], "cpu_capability": "VSX"})
        found = answer(result.config.name)
        assert "the record with VSX (ATEN_CPU_CAPABILITY=vsx takes these" in found.output
        assert (found.exit_code == 0) == reproduced == ("NOT REPRODUCED" not in found.output)


def test_what_cannot_be_rerun_ends_with_one_sentence(recorded: Path) -> None:
    assert "no results are recorded here" in answer("digits-*").output
    keep(run())
    (folder,) = recorded.glob("digits-*")
    (folder / "history.csv").write_text("loss\n1\n")
    for name, sentence in (
        ("nothing-*", "no recorded result matches 'nothing-*': `fcam list` shows the names of all 1."),
        ("digits-*", "is damaged (history.csv does not match its checksum): restore it with git."),
    ):
        found = answer(name)
        assert found.exit_code == 2 and sentence in found.output and "Traceback" not in found.output


def test_of_a_recorded_seed_but_0_no_example_is_kept_and_the_gallery_says_so(recorded: Path) -> None:
    first, second = store.record(run()), store.record(run(seeds=1))
    assert notebook.gallery([first, second])["alpha"]["soft"].shape == (3, 5) and second.arrays() == {}
    with pytest.raises(UserError, match=r"^no example of '.*' is kept, since recorded runs keep those of seed 0 alone"):
        notebook.gallery([second])
