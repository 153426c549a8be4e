"""The cost of attention: methods for one mathematics, and counts that equal their derivation."""

import pandas as pd
import pytest
import torch

from benchmarks import cost as benchmark
from fcamlib import cost
from fcamlib.config import CostParameters
from fcamlib.paradigms import PAPER

SMALL = CostParameters(num_segments=(3, 40), batch_size=4, num_pictures=400, repeats=2, counted_segments=(2, 100))


@pytest.mark.parametrize("paradigm", PAPER)
def test_three_methods_give_one_loss_and_one_gradient(paradigm: str) -> None:
    model, data = cost.problem(SMALL, 40, dtype=torch.float64)
    found = []
    for method in cost.METHODS:
        loss = cost.output(method, model, data, paradigm, chunk_bytes=20_000).loss(paradigm, data.label)
        gradient = torch.autograd.grad(loss, list(model.parameters()))
        found.append(torch.cat([loss.detach()[None], *(part.flatten() for part in gradient)]))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-9, atol=1e-14)
    assert 0 < cost.chunk_difference(SMALL, paradigm) < 1e-10


def test_counted_operations_are_the_derived_ones() -> None:
    table = pd.DataFrame(cost.counted_rows(SMALL))
    assert (table["MFLOP derived"] == table["MFLOP bank"]).all()
    large, small = (table[table["m"] == m].set_index("paradigm") for m in (100, 2))
    assert (large["U"] <= 400).all() and (large["MFLOP every"] > 3 * large["MFLOP bank"]).all()
    assert (large["MB chunks"] < large["MB bank"]).all() and (large["MFLOP chunks"] > large["MFLOP bank"]).all()
    assert (small["MFLOP bank"] <= small["MFLOP every"]).all()
    assert (large.loc["hard"].filter(like="MFLOP") == large.loc["lvml"].filter(like="MFLOP")).all()


def test_what_does_not_fit_into_memory_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "MOST_BYTES", 40_000)  # less than 4 x 40 segments need, more than 4 x 3
    for number, methods in ((3, list(cost.METHODS)), (40, ["chunks"])):
        rows = benchmark.measured(SMALL, number, "hard")
        assert [row["way"] for row in rows] == methods
        table = cost.table({"rows": rows})
        assert (table["low"] <= table["median"]).all() and (table["median"] <= table["high"]).all()
