"""The captioning benchmark: its sides compute the same, and it writes what it measures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch.testing import assert_close

from fcamlib.bench import captions as bench_captions
from fcamlib.bench.captions import main, measure, random_captions, training_step
from fcamlib.captioning.model import Captioner
from fcamlib.config.caption_runs import CaptionModelConfig


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that a test has time for."""
    for name, value in {"NUM_REGIONS": 9, "REGION_DIM": 6, "NUM_WORDS": 30, "LENGTH": 4, "BATCH": 3}.items():
        monkeypatch.setattr(bench_captions, name, value)


def test_keys_computed_once_or_anew_give_the_same_loss_and_gradients() -> None:
    model = Captioner(CaptionModelConfig(), (9, 6), 30, torch.Generator().manual_seed(0)).double()
    regions, tokens = torch.rand(3, 9, 6, dtype=torch.float64), random_captions(3)
    found = []
    for name in ("soft", "keys"):
        loss = training_step(name, model, regions, tokens)
        found.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    for once, anew in zip(*found, strict=True):
        assert_close(once, anew, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", ["greedy", "soft", "hard", "keys"])
def test_a_measure_is_a_rate_and_a_memory(name: str) -> None:
    row = measure(name, 2, 1, "cpu")
    assert row["batch"] == 3 and row["seconds"]["low"] <= row["seconds"]["median"] <= row["seconds"]["high"]
    assert row["pictures_per_second"] == pytest.approx(3 / row["seconds"]["median"]) and row["peak_mib"] >= 0


def test_greedy_decodes_to_the_full_length() -> None:
    assert bench_captions.step_of("greedy", 2, torch.device("cpu"))().tokens.shape == (2, 4)


def test_command_writes_what_it_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [measure("soft", 1, 1, "cpu")]
    content = {"what": "seconds", "how": "small", "provenance": {}, "rows": rows}
    monkeypatch.setattr(bench_captions, "measure_captions", lambda *given: content)
    result = CliRunner().invoke(main, ["--json", str(tmp_path / "captions.json")])
    assert result.exit_code == 0 and result.output.startswith("soft: ")
    assert json.loads((tmp_path / "captions.json").read_text()) == content
