"""Repeated cross-validation on a user's bags: the paradigms and, if torchmil is installed, ABMIL.

Attention-based multiple-instance learning (ABMIL) is soft attention with an encoder, a specific attention network and a
linear classifier. Modules of the library torchmil are wrapped in an `FCAM`. ABMIL has one logit, for label 1; the
equivalent class logits are (0, logit), and their cross-entropy is torchmil's binary cross-entropy.
Source: Ilse, Tomczak, Welling 2018, arXiv 1802.04712.
"""

from __future__ import annotations

import time
from functools import lru_cache, partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fcamlib.config import REFERENCES, Bags, CrossValidation, Model, Phase, Run, Training, short_source
from fcamlib.data.sdc import SDCTask
from fcamlib.errors import DivergenceError, UserError, one_line
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.networks import build_encoder
from fcamlib.numerics import Numerics, reproducible
from fcamlib.provenance import provenance
from fcamlib.running import Computed, build_model, data, require_same_data, split_summary, table
from fcamlib.store import Progress, Row
from fcamlib.training import fit

BAG_MODEL = Model(encoder="mlp", focus="mlp", classifier="linear")
KEYS = ("repeat", "fold", "method")
BAG_MEASURES = ("accuracy", "auc", "calibration_error", "loss", "attention_entropy")
ATTENTION_DIM = 64


def cross_validation(config: CrossValidation, progress: Progress, scratch: Path) -> Computed:
    """Train and test every method on every fold; the history has one row per repeat, fold and method.

    If the loss diverged at every learning rate, the row has the reason, `failure`, in place of measures;
    `DivergenceError` if no training is left.
    """
    keys = product(range(config.repeats), range(config.folds), config.methods)
    runs = {key: _run(config, *key) for key in keys}
    *_, last = runs.values()
    require_same_data(last.data)
    drawn = lru_cache(maxsize=1)(partial(data, seed=0))
    trainings = (
        (dict(zip(KEYS, key, strict=True)), lambda path, key=key, run=run: _fold_row(key, run, drawn(run.data), path))
        for key, run in runs.items()
    )
    history = table(trainings, progress, scratch).sort_values([*KEYS], ignore_index=True)
    if "accuracy" not in history:
        raise DivergenceError(history["failure"].iloc[0])
    versions = provenance(Numerics.of(last.training))
    if set(REFERENCES) & set(config.methods):
        versions["packages"] |= {"torchmil": version("torchmil")}
    versions["train_seconds"] = round(float(history["seconds"].sum()), 1)
    return history, {"title": short_source(config.source), "provenance": versions}, {}


def _run(config: CrossValidation, repeat: int, fold: int, method: str) -> Run:
    """A method on a fold; all methods share seed and order of bags. ABMIL trains with soft attention's loss."""
    bags = config.model_dump(include={"source", "fingerprint", "validation_share"}) | {"repeat": repeat, "fold": fold}
    given = config.model_dump(include={"batch_size", "threads"})
    training = Training(**given, memory_layout="contiguous", device="cpu", keep="best")
    lengths = {"soft" if method in REFERENCES else method: config.epochs}
    if method == "hybrid":
        lengths = {"soft": config.epochs // 2, "hard": config.epochs - config.epochs // 2}
    common = {"learning_rates": config.learning_rates, "optimizer": "adam"}
    phases = tuple(Phase.model_validate({"paradigm": p, "epochs": n, **common}) for p, n in lengths.items())
    seed = repeat * config.folds + fold
    return Run(data=Bags(**bags), model=BAG_MODEL, phases=phases, training=training, seed=seed)


def _fold_row(key: tuple[int, int, str], run: Run, task: SDCTask, checkpoint: Path) -> Row:
    """Train one method on one fold and measure it on the test fold."""
    began, numerics, method = time.perf_counter(), Numerics.of(run.training), key[2]
    model = abmil(task, method == "gated-abmil", run.seed)[0] if method in REFERENCES else build_model(run, task)
    row: Row = {**dict(zip(KEYS, key, strict=True)), "n": len(task.splits["test"])}
    try:
        history = fit(model, task, run.phases, run.training, run.seed, checkpoint).history
    except DivergenceError as error:
        return row | {"seconds": round(time.perf_counter() - began, 2), "failure": one_line(error)}
    kind, test, validation = run.aggregation, task.splits["test"], task.splits["validation"]
    with reproducible(run.training.threads):
        measures = split_summary(evaluate(model, test, [kind], numerics)[kind], test)
        hits = evaluate(model, validation, [kind], numerics)[kind].prediction_hit
    return {
        **row,
        **{name: measures[name] for name in BAG_MEASURES},
        "validation_accuracy": float(hits.mean()),
        "learning_rate": history[-1]["learning_rate"],
        "seconds": round(time.perf_counter() - began, 2),
    }


class _Attention(nn.Module):
    """torchmil's attention network before the softmax: (N, D) -> (N,)."""

    def __init__(self, pool: Any) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, encoded: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        _, focus_logits = self.pool(encoded[None], return_att=True)  # one bag: before the softmax, bags are independent
        return focus_logits[0]


class _TwoClasses(nn.Module):
    """The class logits (0, logit) from torchmil's single logit: (N, D) -> (N, 2)."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, encoded: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        logit = self.classifier(encoded)  # (N, 1)
        return torch.cat([torch.zeros_like(logit), logit], dim=1)


def abmil(task: SDCTask, gated: bool, seed: int) -> tuple[FCAM, Any]:
    """torchmil's ABMIL for the bags of `task`, as an `FCAM`, and torchmil's own model with the same weights."""
    try:
        from torchmil.models import ABMIL
    except ImportError:
        advice = "pip install 'fcamlib[mil]', or leave them out"
        raise UserError(f"the methods abmil and gated-abmil need torchmil: {advice}.") from None
    if (number := len(task.class_names)) != 2:
        raise UserError(f"abmil and gated-abmil need two classes, but there are {number}: leave them out.")
    encoder, _ = build_encoder("mlp", task, torch.Generator().manual_seed(seed))
    dense = nn.Sequential(*list(encoder.children())[1:])  # without Flatten: torchmil hands over (B, M, D)
    with torch.random.fork_rng(devices=[]):  # torchmil's layers draw from the global generator
        torch.manual_seed(seed)
        model = ABMIL(task.bank.segment_shape, att_dim=ATTENTION_DIM, gated=gated, feat_ext=dense)
    return FCAM(_Attention(model.pool), _TwoClasses(model.classifier), encoder), model
