"""What readers are told: the README's numbers and words are those of the records, and the prose is plain."""

import ast
import functools
import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import findings
import numpy as np
import pandas as pd
import pytest

from fcamlib import cost, store, tables
from fcamlib.config import COMPARED, STUDIES, CaptionRun, CrossValidation, Run, StudyGrid

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
PARADIGMS = ("soft", "hard", "hybrid")
README = (ROOT / "README.md").read_text("utf-8")


@functools.cache
def recorded(kind: type[Any]) -> list[Any]:
    """The recorded results of one kind, read once."""
    return store.every(kind, recorded=True)


@pytest.fixture(scope="module")
def found() -> dict[str, list[Any]]:
    """The recorded results that the README and the landing page tell of."""
    return findings.shown_tasks()


def test_the_readme_is_short_and_its_table_is_that_of_the_records(found: dict[str, list[Any]]) -> None:
    table = tables.markdown(findings.results_table(found))
    assert table.join(findings.MARKS) in README, "run book/_ext/findings.py README.md"
    assert len(README.splitlines()) <= 90 and len(table.splitlines()) <= 2 + 8


def test_the_picture_in_the_readme_was_drawn_from_the_records(found: dict[str, list[Any]]) -> None:
    drawn_from = json.loads((ROOT / "figures" / "overview.json").read_text("utf-8"))["runs"]
    assert sorted(run.folder.name for key in findings.DRAWN for run in found[key]) == drawn_from


def test_what_the_readme_and_the_landing_page_say_of_the_numbers_holds(found: dict[str, list[Any]]) -> None:
    last = {key: tables.last_epochs([run.history for run in runs]) for key, runs in found.items()}
    assert last == dict.fromkeys(found, 5) | {"keywords": 4}
    of = {key: tables.evidence(runs) for key, runs in found.items()}
    criteria = {key: tables.criteria(runs) for key, runs in found.items()}
    said = {key: {claim: tables.verdict(c) for claim, c in of_task.items()} for key, of_task in criteria.items()}
    for key in ("digits", "clouds"):
        assert {said[key][claim] for claim in ("S1", "S2", "S3")} == {"supported"}
    assert [key for key in said if said[key]["H1"] == "supported"] == ["digits", "keywords"]
    contradicted = {(key, c) for key, of_task in said.items() for c in of_task if of_task[c] == "contradicted"}
    assert contradicted == {*(("hatexplain", claim) for claim in ("D1", "D2", "H1")), ("scenes", "H1")}
    cifar, hate = of["cifar"], of["hatexplain"]
    for other in ("soft", "hard"):
        assert (cifar.saif["hybrid"] > cifar.saif[other]).all() and (hate.saif["hybrid"] > hate.saif[other]).all()
        assert (hate.accuracy["hybrid"] < hate.accuracy[other]).all()
    assert cifar.saif["lvml"].mean() > cifar.saif["hybrid"].mean() - 0.01
    assert (of["scenes"].accuracy["hybrid"] < of["scenes"].accuracy["soft"]).all()


def test_what_the_claims_page_says_of_epochs_before_the_switch_holds(found: dict[str, list[Any]]) -> None:
    def gains(runs: list[Any], measure: str, epochs: int) -> np.ndarray:
        ends = {(run.config.paradigm, run.config.seed): run.history[f"test_{measure}"].dropna().tail(epochs).mean()
                for run in runs}  # fmt: skip
        of = {name: np.array([value for key, value in sorted(ends.items()) if key[0] == name]) for name in PARADIGMS}
        return of["hybrid"] - np.maximum(of["soft"], of["hard"])

    for measure, margin in (("saif", 0.01), ("accuracy", 0.02)):
        limits = tables.interval(gains(found["keywords"], measure, 4))
        assert limits is not None and limits[0] > -margin
    for regions, runs in on_photographs(1e-5).items():
        lost = [gains(runs, "bleu4", epochs).mean() for epochs in (5, 1)]
        assert lost[0] < 0 and lost[1] / lost[0] == pytest.approx(2, abs=0.1), regions


def on_photographs(rate: float) -> dict[int, list[Any]]:
    """Number of regions -> recorded runs on photographs with this rate in the second phase."""
    runs = [run for run in recorded(CaptionRun) if run.config.data.source != "scenes"]
    alike = [run for run in runs if run.config.phases[1].decoder_learning_rate == rate]
    return {
        (size // 16) ** 2: [run for run in alike if run.config.data.image_size == size]
        for size in sorted({run.config.data.image_size for run in alike})
    }


# Phrasings of a translation rather than of English; each has a plain word: "is shown", "again", "minus", "alone".
BANNED = (
    r"\banew\b", r"\bgoes? on (?:as|with|from|where)\b", r"\bbesides\b", r"\bby much\b", r"\bfor ever\b",
    r"\bless (?:SA|HA|the better)\b", r"\bby itself\b", r"\b(?:stands?|lies?) (?:below|beside|furthest|at hand)\b",
    r"\bcolumn stands\b", r"\bno lucky choice\b", r"\btold apart\b", r"\bdecides? no(?:thing| claim)\b",
    r"\bwhoever\b", r"\beasily taken for\b", r"\bwithout the clock\b", r"\bThis machine just computed\b",
    r"\bhave an opinion\b", r"\bhas an opinion\b", r"\bnot at hand\b", r"\bopening? of hosts\b", r"\bno other host\b",
    r"\bno shortage of\b", r"\bWhere no run\b", r"\bholds emptily\b", r"\bloses its meaning\b", r"\bis content\b",
    r"\b(?:rows?|columns?|panels?|curves?|numbers?|words?|one) an? (?:post|caption|picture|region|run|epoch|seed)\b",
    r"\bone and the same\b", r"\bsur(?:er|est)\b", r"\bsettles? nothing\b", r"\bwords alone\b", r"\bmend\b",
    r"\bmade so\b", r"\bwhere none (?:is|was|are)\b", r"\bas (?:it|they) (?:lies?|stands?)\b", r"\bhead start\b",
    r"\bnobody tells\b",
    r"\d %", r"\*\*Reading\.\*\*", r"\bTry it\b", r"\bas (?:often|good|much) below as above\b",
)  # fmt: skip


def pages() -> dict[str, str]:
    """File -> its prose, without code: pages of the book, notebooks, texts at the root, and docstrings."""
    found = {path.name: path.read_text("utf-8") for path in [*ROOT.glob("*.md"), *(ROOT / "book").glob("*.md")]}
    for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        found[path.name] = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for path in (ROOT / "fcamlib").rglob("*.py"):
        nodes = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, DOCUMENTED))
        found[str(path)] = "\n\n".join(ast.get_docstring(node) or "" for node in nodes)
    return {name: re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S) for name, text in found.items()}


def test_no_page_reads_like_a_translation() -> None:
    pattern = re.compile("|".join(BANNED), re.I)
    assert not [(name, match[0]) for name, text in pages().items() for match in pattern.finditer(text)]


def test_what_pages_conclude_from_recorded_studies_and_folds_holds() -> None:
    """The takeaways and discussions of pages 09, 12 and 13."""

    def history(name: str) -> pd.DataFrame:
        found = store.find(StudyGrid.of(STUDIES[name]).config())
        assert found is not None, name
        return found.history

    def gains(name: str, by: str) -> pd.DataFrame:
        return tables.gain_frame(history(name), by.split()).set_index(by.split())

    assert (gains("capacities", "focus classifier")["accuracy_low"] > -0.02).all(), "no loss with any pair of networks"
    switches = gains("switches", "soft_share")
    assert (switches.loc[0.25:0.75, "saif_low"] > 0).all() and (switches.loc[[0.1, 0.9], "saif_low"] < 0).all()
    saif = history("controls").pivot(index="seed", columns="paradigm", values="saif")
    for name in ("soft", "hard"):
        restarted = tables.interval((saif[f"{name}+{name}"] - saif[name]).to_numpy())
        gained = tables.interval((saif["hybrid"] - saif[f"{name}+{name}"]).to_numpy())
        assert restarted and gained and -0.003 < restarted[0] <= restarted[1] < 0.003 and gained[0] > 0.04
    assert (gains("rates", "learning_rate")["saif"] > 0).all(), "the hybrid's mean SAIF is the highest at every rate"
    scale = history("scale")
    saif = scale.pivot(index=["num_segments", "seed"], columns="paradigm", values="saif")
    gain = saif["hybrid"] - saif[["soft", "hard"]].max(axis=1)
    assert (gain[5] > 0).all() and (gain[20] < 0).any() and (gain[100] < 0).any()
    assert (saif.loc[1000:] == 0).all(axis=None)
    focus = scale.groupby(["paradigm", "num_segments"])["focus_accuracy"].min()
    assert focus["soft", 100] > 0.5 > focus["soft", 1000]
    folds = recorded(CrossValidation)
    for measure in ("accuracy", "auc"):
        assert set(tables.paired_table(folds, measure)["verdict"]) == {"no difference found"}


@pytest.mark.parametrize("name", ["02_accuracy_and_saif", "03_focus_prediction_heatmaps"])
def test_claims_on_recorded_runs_name_the_task_of_these_runs(name: str) -> None:
    cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text("utf-8"))["cells"]
    (outputs,) = (cell["outputs"] for cell in cells if "tables.claims_table({title:" in "".join(cell["source"]))
    assert "CIFAR-10, m = 5, 10,000 mosaics, 50 epochs" in "".join(outputs[0]["data"]["text/plain"])


def test_what_pages_12_and_13_say_of_recorded_runs_holds() -> None:
    """Many segments with Adam, and the controls on CIFAR-10 that restart without switching."""
    adam = [run for run in recorded(Run) if getattr(run.config.phases[0], "optimizer", "") == "adam"]
    hundred, thousand, thousands = tables.tasks(adam).values()
    found = tables.frame(thousand, at="end").query("measure == 'focus_accuracy'").groupby("paradigm")["value"]
    assert found.mean().round(2).to_dict() == {"soft": 0.57, "hybrid": 0.53, "lvml": 0.37, "hard": 0.31}
    assert [round(found.agg(end)["soft"], 2) for end in ("min", "max")] == [0.34, 0.77]
    means = tables.frame(hundred, at="end").query("measure == 'saif'").groupby("paradigm")["value"].mean()
    assert means.idxmax() == "lvml"
    plateaus, stuck = [], []
    for group in (hundred, thousand, thousands):
        paradigm = [run.config.paradigm for run in group]
        epochs = pd.Series([(run.history["train_loss"] >= 0.9 * np.log(3)).sum() for run in group])
        plateaus.append(epochs.groupby(paradigm).median())
        stuck.append((epochs == 80).groupby(paradigm).sum().to_dict())
        assert tables.verdict(tables.criteria(group, ["H1"])["H1"]) == "inconclusive"
    assert (plateaus[1] / plateaus[0]).min() > 3 and (plateaus[1] / plateaus[0]).max() < 6.5
    assert stuck[:2] == [dict.fromkeys(COMPARED, 0) | {"hard": late} for late in (0, 1)]
    assert stuck[2] == {"soft": 4, "hard": 2, "lvml": 2, "hybrid": 4} and plateaus[2]["soft"] == 80
    assert (plateaus[2] / plateaus[1])[["hard", "lvml"]].round().tolist() == [3, 3]
    pictures = [run for run in recorded(Run) if run.config.data.source == "cifar10"]
    ends = tables.frame([run for run in pictures if run.config.steps == 50], at="end").query("measure == 'saif'")
    saif = ends.pivot(index="seed", columns="paradigm", values="value")
    for name in ("soft", "hard"):
        restarted = tables.interval((saif[f"{name}+{name}"] - saif[name]).to_numpy())
        gained = tables.interval((saif["hybrid"] - saif[f"{name}+{name}"]).to_numpy())
        assert restarted and gained and restarted[0] < 0 < restarted[1] < 0.03 and gained[0] > 0.04


def test_what_page_2_and_the_readme_say_of_hard_attention_at_the_papers_rate_holds() -> None:
    pictures = [run for run in recorded(Run) if run.config.data.source == "cifar10"]
    faster = [run for run in pictures if run.config.phases[0].learning_rates == (0.05,)]
    of = {(run.config.training.precision, run.config.seed): run.history for run in faster}
    focus = {key: history.set_index("epoch")["test_focus_accuracy"].dropna() for key, history in of.items()}
    assert focus.pop(("bfloat16", 0)).round(2).to_dict() == {5: 0.45, 10: 0.49, 15: 0.46, 20: 0.25}
    assert len(focus) == 5 and {each.idxmax() for each in focus.values()} <= {10, 15, 20}
    best, last = ([round(number(each), 2) for each in focus.values()] for number in (max, lambda each: each[30]))
    assert (min(best), max(best), min(last), max(last)) == (0.5, 0.52, 0.23, 0.43)


def test_what_page_2_says_of_150_epochs_holds() -> None:
    pictures = [run for run in recorded(Run) if run.config.data.source == "cifar10" and run.config.steps == 150]
    of: dict[Any, Any] = {(run.config.paradigm, run.config.seed): run.history.set_index("epoch") for run in pictures}
    assert len(of) == 8
    for seed, best, after, end, rise in ((0, 0.55, 110, 0.44, [0.31, 0.47]), (1, 0.56, 50, 0.46, [0.33, 0.50])):
        soft, hard, hybrid = (of[name, seed] for name in ("soft", "hard", "hybrid"))
        assert soft["train_accuracy"].loc[100:].min() > 0.999
        assert (
            soft.loc[[100, 150], ["test_accuracy", "test_focus_accuracy", "test_saif"]].diff().abs().max().max() < 0.02
        )
        focus, loss = hard["test_focus_accuracy"].dropna(), hard["train_loss"]
        assert (round(focus.max(), 2), focus.idxmax(), round(focus[150], 2)) == (best, after, end)
        assert loss.idxmin() in (109, 110) and loss.iloc[-10:].mean() > 1.3 * loss.loc[101:110].mean()
        assert hybrid["train_loss"].loc[126:].mean() > 0.9 * hybrid["train_loss"].loc[76:100].mean()
        assert hybrid.loc[[75, 80], "test_saif"].round(2).tolist() == rise
        accuracy, saif = hybrid["test_accuracy"], {name: of[name, seed].loc[150, "test_saif"] for name, _ in of}
        assert accuracy[75] - 0.02 <= accuracy[80] > accuracy[150] and rise[1] > saif["hybrid"] + 0.01
        assert max(saif, key=lambda name: saif[name]) == "lvml"


def test_what_page_12_says_of_pictures_with_twenty_segments_holds() -> None:
    runs = [run for run in recorded(Run) if run.config.data.source == "cifar10"]
    of = {run.config.paradigm: run for run in runs if run.config.data.num_segments == 20}
    kept = ["test_accuracy", "test_focus_accuracy", "test_saif", "test_a_z_high", "train_loss"]
    at: dict[str, Any] = {name: run.history.set_index("epoch")[kept] for name, run in of.items()}
    ends = {name: [round(at[name].loc[30, measure], 2) for measure in kept[:3]] for name in at}
    assert ends.pop("soft") == [0.56, 0.38, 0.16] and ends.pop("lvml") == [0.54, 0.36, 0.16]
    assert ends == {"hard": [0.36, 0.1, 0.0], "hybrid": [0.49, 0.31, 0.06]}
    assert [round(at["hybrid"].loc[15, measure], 2) for measure in kept[:3]] == [0.48, 0.28, 0.02]
    assert at["hybrid"].loc[[15, 20, 30], "test_a_z_high"].round(2).tolist() == [0.02, 0.21, 0.27]
    assert at["soft"].loc[[20, 30], "test_a_z_high"].round(2).tolist() == [0.08, 0.18]
    sure = {name: np.sum(run.summary["splits"]["test"]["histogram"], axis=0)[-1] for name, run in of.items()}
    assert sure["hybrid"] < sure["soft"], "predictions with a score above 0.8"
    assert all(at[name].loc[30, "train_loss"] < at[name].loc[25, "train_loss"] - 0.05 for name in at if name != "hard")


def test_what_the_pages_on_text_and_claims_say_of_hatexplain_holds() -> None:
    """The discussion of page 07, and D1 and D2 on the claims page: word embeddings, 550 epochs."""
    runs = [run for run in recorded(Run) if run.config.data.source == "hatexplain"]
    of = {title.rpartition("then ")[2]: group for title, group in tables.tasks(runs).items() if "550 epochs" in title}
    group = of["50 epochs at 0.008"]
    cells = tables.histogram_table(group)
    focus, score = cells.iloc[:, [0, 2]].sum(axis=1), cells.iloc[:, [0, 1]].sum(axis=1)
    said = [(focus, [22, 73, 73, 70]), (score, [50, 26, 41, 31])]  # SA, HA, LVML, hybrid
    assert all((found - shares).abs().max() <= 0.51 for found, shares in said)
    entropy = {late: tables.frame(g).query("measure == 'attention_entropy'") for late, g in of.items()}
    mean = {late: table.groupby("paradigm")["value"].mean().round(2) for late, table in entropy.items()}
    late = [mean[f"{epochs} epochs at {rate}"]["hybrid"] for epochs, rate in product((50, 275), (0.008, 0.1))]
    assert late == [0.13, 0.05, 0.09, 0.04]
    assert mean["50 epochs at 0.008"]["soft"] == 0.72
    early = tables.history_frame(group, ["focus_accuracy"]).groupby(["paradigm", "epoch"])["focus_accuracy"].mean()
    assert [round(early[at], 2) for at in (("soft", 5), ("hard", 5), ("soft", 30))] == [0.78, 0.71, 0.71]


def test_what_page_13_says_of_the_switch_on_hatexplain_holds() -> None:
    runs = [run for run in recorded(Run) if run.config.data.source == "hatexplain"]
    single = [run for run in runs if len(run.config.phases) == 1 and run.config.phases[0].learning_rates == (0.1,)]
    gains: dict[float, Any] = {}
    for rate in (0.1, 0.008):
        hybrids = [run for run in runs if run.config.steps == 150 and run.config.phases[1].learning_rates == (rate,)]
        rows = tables.rows_at([*single, *hybrids], 150)
        gains[rate] = tables.gain_frame(rows, ["soft_share"]).sort_values("soft_share")
        assert (gains[rate]["soft_share"] * 150).round().tolist() == [5, 10, 30, 100]
        assert (gains[rate]["n"] == 5).all()
    early = pd.concat([of.iloc[:2] for of in gains.values()])
    assert early["saif"].between(0.015, 0.045).all() and early["accuracy"].min() > -0.02
    assert sorted(early["verdict"]) == ["inconclusive"] * 2 + ["supported"] * 2
    assert [round(of["accuracy"].iloc[2], 2) for of in gains.values()] == [-0.05, -0.09]
    assert gains[0.008]["saif"].is_monotonic_increasing and gains[0.1]["saif"].iloc[3] < 0


def test_what_page_13_says_of_the_length_of_training_holds() -> None:
    names = ("digits", "keywords", "motifs", "clouds", "rates")
    rows = {name: store.get(StudyGrid.of(STUDIES[f"lengths-{name}"]).config()).history for name in names}
    by = {name: "learning_rate" if name == "rates" else "epochs" for name in names}
    gains = {name: tables.gain_frame(rows[name], [by[name]]) for name in names}
    assert {name: of["verdict"].tolist() for name, of in gains.items()} == {
        "digits": ["supported"] * 3, "rates": ["inconclusive"] * 2,
        "motifs": ["inconclusive", "inconclusive", "contradicted"],
        "keywords": ["inconclusive", "supported", "supported"],
        "clouds": ["inconclusive", "supported", "supported"],
    }  # fmt: skip
    lost, level = gains["motifs"].iloc[2], gains["rates"]
    assert [round(lost[measure], 2) for measure in ("saif", "accuracy")] == [-0.15, -0.09]
    assert level["saif"].between(-0.02, 0).all() and level["accuracy"].between(-0.02, 0).all()
    soft = {name: of[of["paradigm"] == "soft"].groupby(by[name])["accuracy"].mean() for name, of in rows.items()}
    assert soft["motifs"].round(2).tolist() == [0.84, 0.77, 0.63] and soft["rates"].min() > 0.88
    for name in ("hard", "lvml"):
        of = rows["motifs"][rows["motifs"]["paradigm"] == name]
        assert of.groupby("epochs")[["accuracy", "saif"]].mean().diff().dropna().gt(0).all(axis=None)
    assert np.ptp(gains["digits"]["saif"]) < 0.005 and rows["keywords"].groupby("paradigm")["saif"].mean().min() > 0.98
    bags = gains["clouds"]
    assert bags["accuracy"].round(2).tolist() == [-0.02, -0.01, -0.01]
    assert bags["saif"].round(2).tolist() == [0.05, 0.05, 0.04]


def test_what_the_pages_on_captions_and_cost_say_of_the_records_holds() -> None:
    """The takeaways of pages 10 and 11."""
    on_scenes = {}
    for title, group in tables.tasks(recorded(CaptionRun)).items():
        first, second = next(run.config.phases for run in group if run.config.paradigm == "hybrid")
        if title.startswith("scenes"):
            divisor = round(first.decoder_learning_rate / second.decoder_learning_rate)
            on_scenes[group[0].config.model.state_sees, second.epochs, divisor] = group
    assert set(on_scenes) == set(product(("region", "word"), (10, 30), (2, 10, 100)))
    ends: dict[Any, Any] = {
        variant: tables.frame(group, at="end").pivot(index=["measure", "seed"], columns="paradigm", values="value")
        for variant, group in sorted(on_scenes.items())
    }
    saif = [list(end.loc["saif"][["soft", "hybrid"]].mean().round(2)) for end in ends.values()]
    assert saif[:6] == [[0.61, 0.72], [0.63, 0.63], [0.61, 0.5], [0.61, 0.78], [0.64, 0.76], [0.63, 0.59]]
    gain = {variant: end["hybrid"] - end["soft"] for variant, end in ends.items()}
    for variant in (("region", 10, 2), ("region", 30, 2), ("region", 30, 10)):
        assert (gain[variant]["saif"] > 0).all() and len(gain[variant]["saif"]) == 5
    assert (gain["region", 30, 2]["saif"] > gain["region", 10, 2]["saif"]).all()
    words = [of["saif"].mean() for (sees, _, _), of in gain.items() if sees == "word"]
    assert min(words) > -0.085 and max(words) < -0.005
    lost = [-of["bleu4"].mean() for of in gain.values()]
    assert min(lost) > 7.5 and max(lost) < 23.5
    for run in (run for run in recorded(CaptionRun) if run.config.paradigm == "hybrid"):
        by_epoch = run.history.set_index("epoch")["validation_bleu4"]
        assert by_epoch.idxmax() <= run.config.phases[0].epochs, "selection keeps SA's weights"
    for variant, group in on_scenes.items():
        hybrids = [run for run in group if run.config.paradigm == "hybrid"]
        if not all("switch" in run.summary for run in hybrids):
            continue
        rows = {
            "SA at the switch": [run.history.query("epoch == 10")["test_bleu4"].item() for run in hybrids],
            "the same weights, one region": [run.summary["switch"]["test"]["bleu4"] for run in hybrids],
            "after the hard phase": [run.summary["splits"]["test"]["bleu4"] for run in hybrids],
            "SA after its second phase": [
                run.summary["splits"]["test"]["bleu4"] for run in group if run.config.paradigm == "soft"
            ],
        }
        table = tables.at_switch(group, ["bleu4"])
        assert table is not None and table["bleu4"].to_dict() == pytest.approx(
            {name: np.mean(values) for name, values in rows.items()}, abs=5e-4
        )
        soft, one_region, after, control = (float(np.mean(values)) for values in rows.values())
        assert soft - one_region > (29 if variant[0] == "region" else 20) and 7.5 < after - one_region < 19.5
        assert soft - control < (2 if variant[1] == 10 else 6)
    said = {
        (1e-5, 49): ({"soft": 0.42, "hard": 0.28, "hybrid": 0.41}, {"soft": 12.3, "hard": 8.1, "hybrid": 9.4}),
        (1e-5, 196): ({"soft": 0.45, "hard": 0.28, "hybrid": 0.44}, {"soft": 12.7, "hard": 8.2, "hybrid": 8.9}),
        (1e-4, 196): ({"hybrid": 0.41}, {"hybrid": 9.2}),
    }
    for (rate, number), (attention, bleu4) in said.items():
        tests = [
            {"paradigm": run.config.paradigm} | run.summary["splits"]["test"] for run in on_photographs(rate)[number]
        ]
        mean = pd.DataFrame(tests).groupby("paradigm").mean(numeric_only=True)
        assert mean["phrase_a_z"].round(2).to_dict() == attention and mean["bleu4"].round(1).to_dict() == bleu4
        assert set(mean["uniform_phrase_a_z"].round(2)) == {0.31}
    of = cost.table(cost.measurements()).set_index(["way", "num_segments", "paradigm"]).sort_index()
    growth = {way: of["median"][way, 10_000] / of["median"][way, 100] for way in ("bank", "every")}
    assert [round(f(growth[way])) for way in growth for f in (min, max)] == [7, 13, 160, 276]
    assert of["peak_mb"]["chunks", 10_000].max() < 36
