"""What figures and tables show of single instances, on a short run of generated posts."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fcamlib import store
from fcamlib.config import Grid, Run, Text
from fcamlib.data.keywords import PHRASES
from fcamlib.data.text import text_task, text_words
from fcamlib.errors import UserError
from fcamlib.examples import posts_table, word_attention
from fcamlib.numerics import Numerics
from fcamlib.rationales import agreement
from fcamlib.running import trained_model
from fcamlib.store import Result
from fcamlib.tables import AGREEMENT, frame, means

SIZES = {"num_train": 120, "num_validation": 30, "num_test": 40, "max_tokens": 8}
CONFIG = Text(source="keywords", **SIZES)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Result]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCAM_RESULTS", str(tmp_path_factory.mktemp("results")))
        grid = {"dataset": "keywords", "paradigms": "lvml,logit_mixture", "epochs": 1, "seeds": "2,5", **SIZES}
        yield store.get_all(Grid.of(grid).configs())


def test_agreement_is_that_of_the_trained_models(runs: list[Result]) -> None:
    table = means(frame(runs), measures=AGREEMENT)
    assert table.index.tolist() == ["LVML", "logit mixture"] and table["seeds"].tolist() == ["2", "2"]
    values = []
    for run in runs[:2]:
        model, task = trained_model(run)
        values.append(agreement(model, task.splits["test"], "lvml", numerics=Numerics.of(run.config.training)))
    for column, name in (("token F1", "token_f1"), ("AUPRC", "auprc"), ("sufficiency", "sufficiency")):
        mean = np.mean([value[name] for value in values])
        assert table[column].iloc[0].startswith(f"{mean:.3f} (")  # two seeds: the range, no interval


def test_words_and_attention_of_a_generated_post_and_of_no_real_one(runs: list[Result], tmp_path: Path) -> None:
    shown = word_attention(runs, place=3)
    marked = " ".join(shown.index[shown["rationale"] == "yes"])
    assert marked in {phrase for phrases in PHRASES.values() for phrase in phrases}
    for column in shown.columns[1:]:
        assert shown[column].astype(float).sum() == pytest.approx(1.0, abs=0.05)
    run = Result[Run](tmp_path)
    run.__dict__["config"] = runs[0].config.model_copy(update={"data": Text(source="hatexplain")})
    with pytest.raises(UserError, match="posts of dataset='hatexplain' are not shown"):
        word_attention([run])


def test_words_are_numbered_as_the_bank_is() -> None:
    task, words = text_task(CONFIG, 4), text_words(CONFIG, 4)
    assert len(words) == len(task.bank.values) and words[0] == "(unknown)"
    train = task.splits["train"]
    row = int(train.has_foreground.nonzero()[0])
    phrase = " ".join(words[number] for number in train.segments[row][train.foreground[row]].tolist())
    assert phrase in PHRASES[task.class_names[int(train.label[row])]]


def test_posts_are_counted_and_never_shown() -> None:
    task = text_task(CONFIG, 0)
    shown, train = posts_table(task).loc["train"], task.splits["train"]
    assert train.mask is not None
    assert (shown["posts"], shown["longest"], shown["unknown words"]) == (120, 8, "0.0%")
    assert list(shown[["weather", "music", "neither"]]) == np.bincount(train.label).tolist()
    assert shown["with rationale"] == int((train.label < 2).sum())
    lengths = train.mask.sum(dim=1).double()
    assert shown["words per post"] == pytest.approx(float(lengths.mean()), abs=0.051)
    share = (train.foreground.sum(dim=1) / lengths)[train.label < 2].mean()
    assert shown["marked words"] == f"{float(share):.0%}"
