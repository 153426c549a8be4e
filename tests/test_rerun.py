"""`fcam rerun` computes records again from their own configs and says truly how far every number is apart."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from click.testing import Result as Answer

from fcamlib import examples, paths, provenance, rerun, store
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
    kept = store.get(Grid.of(TINY).configs()[0])
    swept = store.get(SweepGrid.of(TINY_SWEEP).config())
    keep(kept)
    keep(swept)
    found = answer("digits-*", swept.folder.name)
    assert found.exit_code == 0, found.output
    lines = found.output.splitlines()
    assert [line.split(":")[0] for line in lines] == [kept.folder.name, swept.folder.name]
    assert all("largest difference 0; in" in line for line in lines)
    assert (paths.results_dir() / kept.folder.name / store.SUMS).is_file()


def test_a_changed_number_of_the_history_or_the_final_measures_is_found_and_is_status_1(recorded: Path) -> None:
    first, second = (store.get(config) for config in Grid.of({**TINY, "seeds": "0,1"}).configs())
    keep(first, loss=0.125)
    splits = second.summary["splits"]
    splits["test"]["accuracy"] += 0.25
    keep(second, splits=splits)
    found = answer("digits-*")
    assert found.exit_code == 1 and found.output.count("NOT REPRODUCED") == 2
    assert "largest difference 0.125 (train_loss); NOT REPRODUCED" in found.output
    assert "largest difference 0.25 (summary/splits/test/accuracy); NOT REPRODUCED" in found.output


def test_a_missing_value_or_another_text_is_an_infinite_difference(recorded: Path) -> None:
    result = store.get(Grid.of(TINY).configs()[0])
    whole = result.summary
    keep(result, title="another title")
    found = answer(result.folder.name)
    assert found.exit_code == 1 and "largest difference inf (summary/title)" in found.output
    blank = np.array([1.0, np.nan])
    assert rerun._apart(blank, blank) == 0 and rerun._apart(blank, np.array([1.0, 2.0])) == np.inf
    assert rerun._apart(blank, blank[:1]) == np.inf and rerun._apart(np.array([None, "a"]), np.array([None, "a"])) == 0
    assert "provenance" in whole


def test_a_record_of_another_instruction_set_is_computed_with_it_where_the_processor_has_it(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = store.get(Grid.of(TINY).configs()[0])
    source = result.summary["provenance"]
    keep(result, provenance={**source, "cpu_capability": "AVX2"})
    record: store.Result[Any] = store.every(recorded=True)[0]
    for sets, set_by_hand, expected in [
        (["AVX2", "AVX512"], None, "AVX2"),
        (["AVX2", "AVX512"], "avx2", ""),
        (["AVX2"], None, ""),
        ([], None, ""),
    ]:
        monkeypatch.setattr(rerun, "instruction_sets", lambda sets=sets: sets)
        monkeypatch.delenv(rerun.CAPABILITY, raising=False)
        if set_by_hand:
            monkeypatch.setenv(rerun.CAPABILITY, set_by_hand)
        assert rerun.capability(record) == expected
    assert set(provenance.instruction_sets()) <= {"AVX2", "AVX512"}


def test_without_the_records_instruction_set_it_says_so_and_judges_by_the_spread_over_seeds(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerun, "instruction_sets", lambda: [])
    for seed, (shift, reproduced) in enumerate([(1e-4, True), (0.5, False)]):
        (config,) = Grid.of({**TINY, "seeds": seed, "epochs": 2 + seed}).configs()
        result = store.get(config)
        splits = result.summary["splits"]
        splits["test"]["loss"] += shift
        keep(result, splits=splits, provenance={**result.summary["provenance"], "cpu_capability": "VSX"})
        found = answer(config.name)
        assert "the record with VSX, which this machine does not have" in found.output
        assert (found.exit_code == 0) == reproduced == ("NOT REPRODUCED" not in found.output)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["nothing-*"], "no recorded result is called 'nothing-*': results/recorded/ holds 1, by name."),
        (["digits-*"], "is damaged (history.csv does not have its checksum): fetch it anew with git."),
    ],
)
def test_what_cannot_be_rerun_ends_with_one_sentence(recorded: Path, names: list[str], sentence: str) -> None:
    assert "no results are recorded here" in answer("digits-*").output
    keep(store.get(Grid.of(TINY).configs()[0]))
    (folder,) = recorded.glob("digits-*")
    (folder / "history.csv").write_text("loss\n1\n")
    found = answer(*names)
    assert found.exit_code == 2 and sentence in found.output and "Traceback" not in found.output


def test_of_a_recorded_seed_but_0_no_example_is_kept_and_the_gallery_says_so(recorded: Path) -> None:
    runs = [store.get(config) for config in Grid.of({**TINY, "seeds": "0,1"}).configs()]
    first, second = map(store.record, runs)
    assert examples.gallery([first, second])["alpha"]["soft"].shape == (3, 5) and second.arrays() == {}
    with pytest.raises(UserError, match=r"^recorded runs keep examples of seed 0 alone, and these begin with seed 1"):
        examples.gallery([second])
