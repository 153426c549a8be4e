"""The cost of attention: three ways of one mathematics, counts that equal their derivation, and the page's tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from fcamlib import paths, plots
from fcamlib.__main__ import main
from fcamlib.bench import cost as bench_cost
from fcamlib.bench import cost_tables
from fcamlib.bench.cost import WAYS, problem
from fcamlib.config.cost import CostExperiment
from fcamlib.errors import DataError
from fcamlib.fcam import PARADIGMS

SMALL = CostExperiment(
    num_segments=(3, 40), batch_size=4, num_pictures=400, repeats=2, counted_segments=(2, 100), draws=20_000
)


@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_three_ways_give_one_loss_and_one_gradient(paradigm: str) -> None:
    model, data = problem(SMALL, 40, dtype=torch.float64)
    found = []
    for way in WAYS:
        loss = bench_cost.output(way, model, data, paradigm, chunk_bytes=20_000).loss(paradigm, data.label)
        gradient = torch.autograd.grad(loss, list(model.parameters()))
        found.append(torch.cat([loss.detach()[None], *(part.flatten() for part in gradient)]))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-9, atol=1e-14)


def test_counted_operations_are_the_derived_ones() -> None:
    table = cost_tables.counted_table(SMALL)
    assert len(table) == 6
    assert table["MFLOP derived"].tolist() == table["MFLOP bank"].tolist()
    numbers = table.astype(float).reset_index()
    large, small = (numbers[numbers["m"] == m].set_index("paradigm") for m in (100, 2))
    assert (large["U"] <= 400).all() and (large["MFLOP every"] > 3 * large["MFLOP bank"]).all()
    assert (large["MB chunks"] < large["MB bank"]).all() and (large["MFLOP chunks"] > large["MFLOP bank"]).all()
    assert (small["MFLOP bank"] <= small["MFLOP every"]).all()
    both = large.loc[["HA", "LVML"]].filter(like="MFLOP").to_numpy()
    assert (both[0] == both[1]).all()


def test_chunks_agree_and_biases_are_as_stated() -> None:
    assert cost_tables.agreement_table(SMALL)["below 1e-10"].all()
    bias = cost_tables.bias_table(SMALL)
    distances = bias["largest z of the gradient"].astype(float)
    assert (distances[:2] < 4).all() and (distances[2:] > 10).all()
    assert (bias["largest z of the loss"].astype(float) < 4).all()
    top = cost_tables.topk_table(SMALL)
    gap, bound = top["gap (nats)"].astype(float), top["bound"].astype(float)
    assert (gap <= bound + 1e-4).all() and gap.is_monotonic_decreasing and abs(gap.iloc[-1]) < 1e-4


def test_command_measures_each_way_and_leaves_out_what_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_cost, "MOST_BYTES", 64 * 60 * 1_000)  # less than 64 x 100 segments need
    path = tmp_path / "cost.json"
    arguments = ["bench", "--measure", "cost", "--num-segments", "2,100", "--repeats", "1", "--json", str(path)]
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 0, shown.output
    content = json.loads(path.read_text())
    data = cost_tables.frame(content)
    ways = {m: list(group["way"].unique()) for m, group in data.groupby("num_segments")}
    assert ways == {2: list(WAYS), 100: ["chunks"]}
    assert (data["low"] <= data["median"]).all() and (data["peak_mb"] > 0).all()
    table = cost_tables.measured_table(content)
    assert table.index.tolist() == [(label, m) for label in ("SA", "HA", "LVML") for m in (2, 100)]
    assert table.loc[("SA", 100), WAYS["bank"]] == ""
    assert "distinct segments in chunks" in shown.output
    grown = cost_tables.growth_table(content)
    assert grown.loc[("HA", WAYS["chunks"]), "to m"] == 100


def test_measurements_are_recorded_or_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "recorded_dir", lambda: tmp_path)
    with pytest.raises(DataError, match="set live=true to measure"):
        cost_tables.measurements(SMALL)
    live = SMALL.model_copy(update={"live": True, "num_segments": (2,), "repeats": 1})
    assert len(cost_tables.measurements(live)["rows"]) == 9
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "cost.json").write_text('{"rows": []}')
    assert cost_tables.measurements(SMALL) == {"rows": []}


def test_figure_draws_what_was_measured() -> None:
    rows = [
        {"paradigm": p, "way": way, "num_segments": m, "median": 2.0 * m, "low": m, "high": 3.0 * m, "peak_mb": 5.0 * m}
        for p in PARADIGMS for way in ("bank", "chunks") for m in (100, 2, 20)
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    fig = plots.cost_over_segments(frame, {"bank": "once", "chunks": "in chunks"})
    lines = {line.get_gid(): line for ax in fig.axes for line in ax.get_lines()}
    assert len(lines) == 12
    for column, factor in (("median", 2.0), ("peak_mb", 5.0)):
        line = lines[f"{column}-chunks-hard"]
        assert list(np.asarray(line.get_xdata())) == [2, 20, 100]
        assert list(np.asarray(line.get_ydata())) == [2 * factor, 20 * factor, 100 * factor]
    with pytest.raises(ValueError, match="holds chunks"):
        plots.cost_over_segments(frame, {"bank": "once"})
