"""Cross-validation on bags: ABMIL as torchmil computes it, tests that mind the folds' dependence."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from fcamlib import paths, store
from fcamlib.cli import main
from fcamlib.config import Bags, CrossValidation
from fcamlib.data.sdc import SDCTask
from fcamlib.data.vectors import bags_task
from fcamlib.errors import UserError
from fcamlib.tables import TRUTHLESS, frame, means, paired_table

# --- tables ---------------------------------------------------------------------------------------------------------


def history(values: dict[str, list[float | None]], sizes: list[int]) -> pd.DataFrame:
    rows = [
        {"repeat": place // 2, "fold": place % 2, "method": method, "n": size, "accuracy": value, "auc": value}
        | {"calibration_error": 0.1, "loss": 0.5, "attention_entropy": None}
        for method, column in values.items()
        for place, (value, size) in enumerate(zip(column, sizes, strict=True))
    ]
    return pd.DataFrame(rows)


def test_tables_weight_folds_by_their_bags_and_pair_the_same_folds() -> None:
    rows = history({"hybrid": [0.5, 1.0, 0.75, 1.0], "soft": [0.25, 1.0, 1.0, 0.5]}, [8, 2, 4, 6]).sample(
        frac=1, random_state=0
    )
    config = SimpleNamespace(kind="cross-validation", repeats=2, folds=2, methods=("soft", "hybrid"))
    result = SimpleNamespace(config=config, summary={"title": "b"}, history=rows, folder=Path("b"))
    table = means(frame([result]), measures=TRUTHLESS, spread="sd")
    assert list(table.index) == ["SA", "hybrid"]
    hybrid = np.array([(8 * 0.5 + 2) / 10, (4 * 0.75 + 6) / 10])
    assert table.loc["hybrid", "accuracy"] == f"{hybrid.mean():.3f} ± {hybrid.std(ddof=1):.3f}"
    assert table.loc["hybrid", "attention entropy"] == "-" and table.loc["hybrid", "repeats"] == "2"
    text = paired_table([result])
    assert list(text.index) == [("b", "hybrid - SA")] and text["verdict"].tolist() == ["no difference found"]


# --- ABMIL ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_clouds() -> SDCTask:
    sizes = {"num_segments": 5, "num_features": 6, "num_classes": 2, "num_train": 9, "num_validation": 4, "num_test": 4}
    return bags_task(Bags(source="clouds", **sizes), seed=0)


@pytest.mark.parametrize("gated", [False, True])
def test_abmil_is_what_torchmil_computes(gated: bool, two_clouds: SDCTask) -> None:
    pytest.importorskip("torchmil")
    from fcamlib.crossval import abmil

    before = torch.random.get_rng_state()
    model, theirs = abmil(two_clouds, gated, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before), "the global generator was used up"
    data = two_clouds.splits["train"]
    assert data.mask is not None and not bool(data.mask.all())
    segments = data.bank.values[data.segments.long()]
    logit, focus_logits = theirs.forward(segments, data.mask, return_att=True)
    output = model(data.bank.values, data.segments.long(), "soft", data.mask)
    torch.testing.assert_close(
        output.log_prob("soft")[:, 1], torch.nn.functional.logsigmoid(logit), atol=1e-6, rtol=1e-5
    )
    masked = focus_logits.masked_fill(~data.mask, -torch.inf)
    torch.testing.assert_close(output.log_alpha.exp(), masked.softmax(dim=1), atol=1e-6, rtol=1e-5)
    loss = theirs.compute_loss(data.label, segments, data.mask)[1]["BCEWithLogitsLoss"]
    torch.testing.assert_close(output.loss("soft", data.label), loss, atol=1e-6, rtol=1e-5)
    again, _ = abmil(two_clouds, gated, seed=3)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, rtol=0, atol=0)


def test_abmil_needs_torchmil_and_two_classes(two_clouds: SDCTask, monkeypatch: pytest.MonkeyPatch) -> None:
    from fcamlib.crossval import abmil

    with monkeypatch.context() as patch:
        patch.setitem(__import__("sys").modules, "torchmil.models", None)
        with pytest.raises(
            UserError, match=r"^the methods abmil and gated-abmil need torchmil: pip install 'fcamlib\[mil"
        ):
            abmil(two_clouds, False, 0)
    pytest.importorskip("torchmil")
    three = SDCTask(two_clouds.splits, ("a", "b", "c"), "three")
    with pytest.raises(UserError, match=r"need two classes, but there are 3: leave them out\.$"):
        abmil(three, False, 0)


# --- the whole --------------------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(paths, "recorded_dir", lambda: tmp_path / "recorded")
    draws = np.random.default_rng(2)
    bag = np.repeat(np.arange(24), 3)
    features = draws.normal(size=(72, 5)) + 3 * (bag % 2)[:, None]
    fold = np.stack([np.arange(24) // 2 % 3, np.arange(24) // 8])
    (tmp_path / "sets").mkdir()
    np.savez(tmp_path / "sets" / "mine.npz", features=features, bag=bag, label=np.arange(24) % 2, fold=fold)
    return f"bags:{tmp_path / 'sets' / 'mine.npz'}"


OPTIONS = ("--methods", "soft,hybrid", "--epochs", "4", "--learning-rates", "0.01", "--batch-size", "8")


def command(source: str, *options: str) -> Any:
    return CliRunner().invoke(main, ["crossval", "--dataset", source, *OPTIONS, *options])


def test_the_command_shows_the_table_and_a_recorded_result_holds_no_path(source: str, tmp_path: Path) -> None:
    first = command(source)
    assert re.search(r"^SA +2 +\d\.\d{3} ± ", first.stdout, re.MULTILINE) and first.stderr == ""
    (stored,) = store.every(CrossValidation)
    rows = stored.history
    assert len(rows) == 2 * 3 * 2 and (rows["n"] == 8).all() and rows["accuracy"].mean() > 0.8, "the task is easy"
    assert not rows.duplicated(["repeat", "fold", "method"]).any()
    assert CliRunner().invoke(main, ["record", stored.folder.name]).exit_code == 0
    (kept,) = store.every(CrossValidation, recorded=True)
    assert kept.config.source == "bags:mine.npz" and kept.config.digest == stored.config.digest
    for file in kept.folder.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes()
    again = command(source)
    assert again.stderr == "" and str(kept.folder) in again.stdout, "the recorded result answers"
    summary = json.loads((kept.folder / "summary.json").read_text())
    assert summary["title"] == "mine" and summary["provenance"]["train_seconds"] > 0


def test_wrong_parameters_are_one_sentence(source: str) -> None:
    for options, said in {
        (
            "--methods",
            "soft,forest",
        ): "methods='forest' is not allowed: choose soft, hard, lvml, hybrid, abmil or gated-",
        ("--repeats", "3"): f"repeats=3 exceeds the repeats in dataset='{source}': give at most 2.",
        ("--dataset", "digits"): "dataset='digits' cannot be cross-validated: give bags:PATH",
        ("--dataset", "bags:none.npz"): "dataset='bags:none.npz': there is no file",
    }.items():
        result = command(source, *options)
        assert result.exit_code == 2 and result.stderr.startswith(f"fcam: {said}"), result.output
