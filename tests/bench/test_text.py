"""The sides of the text benchmark compute the same numbers from the same posts."""

from __future__ import annotations

import pytest
import torch
from click.testing import CliRunner
from torch.testing import assert_close

from fcamlib.bench import text as bench_text
from fcamlib.bench.text import EpochTime, library_loss, main, measure, plain_loss, random_posts, simple_model, table
from fcamlib.data.sdc import SDCTask


@pytest.fixture(scope="module")
def posts() -> SDCTask:
    return random_posts()


def test_random_posts_have_the_size_of_hatexplain(posts: SDCTask) -> None:
    data = posts.splits["train"]
    assert data.mask is not None
    length = data.mask.sum(dim=1)
    assert len(data) == 15_383 and len(posts.bank.values) == 24_992
    assert float(length.double().mean()) == pytest.approx(23.5, abs=0.5)
    assert int(length.max()) == data.num_segments <= 165


@pytest.mark.parametrize("paradigm", bench_text.PARADIGMS)
def test_losses_and_gradients_agree(posts: SDCTask, paradigm: str) -> None:
    model = simple_model(posts, dtype=torch.float64)
    batch = posts.splits["train"].take(torch.arange(12))
    results = []
    for loss_of, data in ((plain_loss, batch), (plain_loss, batch.trimmed()), (library_loss, batch.trimmed())):
        model.zero_grad()
        loss = loss_of(model, data, paradigm)
        loss.backward()
        results.append((loss.detach(), [p.grad for p in model.parameters()]))
    for loss, gradients in results[1:]:
        assert_close(loss, results[0][0], rtol=1e-12, atol=0)
        for got, wanted in zip(gradients, results[0][1], strict=True):
            assert_close(got, wanted, rtol=1e-10, atol=1e-14)


def test_measure_times_every_side_and_compares_losses(posts: SDCTask) -> None:
    times = measure(posts, "lvml", steps=1)
    assert min(times.library, times.batch, times.set) > 0  # which is least depends on what else the machine does
    assert times.loss_difference < 1e-5
    shown = table([EpochTime("soft", 12.0, 6.0, 2.0, 3e-7)]).iloc[0].tolist()
    assert shown == ["soft", "12.0 s", "6.0 s", "2.0 s", "6.0, 3.0", "3e-07"]


def test_command_measures_a_part(monkeypatch: pytest.MonkeyPatch, posts: SDCTask) -> None:
    monkeypatch.setattr(bench_text, "random_posts", lambda: posts)
    result = CliRunner().invoke(main, ["--steps", "1"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("random posts: 15,383 posts, 24,992 words, at most")
    assert [line.split()[0] for line in result.output.splitlines()[2:]] == list(bench_text.PARADIGMS)
