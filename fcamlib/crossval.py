"""Repeated cross-validation on a user's bags: the paradigms and, where torchmil is installed, ABMIL.

Attention-based multiple-instance learning (ABMIL) is soft attention with an encoder, an attention network of its own
form and a linear classifier. Modules of the library torchmil are put into an `FCAM`, so that the same code trains,
selects and measures them; that this computes what torchmil's own forward pass does is tested. ABMIL has one logit, for
label 1; (0, logit) are the class logits of the same model, and their cross-entropy is torchmil's binary one.
Source: Ilse, Tomczak, Welling 2018, arXiv 1802.04712.
"""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fcamlib.config import REFERENCES, Bags, CrossValidation, Model, Phase, Run, Training, short_source
from fcamlib.data.sdc import SDCTask
from fcamlib.encoders import build_encoder
from fcamlib.errors import UserError
from fcamlib.evaluation import evaluate
from fcamlib.fcam import FCAM
from fcamlib.numerics import Numerics, reproducible
from fcamlib.provenance import provenance
from fcamlib.running import Computed, build_model, data, require_same_data, split_summary, table
from fcamlib.store import Progress, Row
from fcamlib.training import fit

BAG_MODEL = Model(encoder="mlp", focus="mlp", classifier="linear")
BAG_MEASURES = ("accuracy", "auc", "calibration_error", "loss", "attention_entropy")
ATTENTION_DIM = 64


def cross_validation(config: CrossValidation, progress: Progress, scratch: Path) -> Computed:
    """Train and test every method on every fold; the history has one row per repeat, fold and method."""
    require_same_data(_fold_data(config, 0, 0))
    drawn = lru_cache(maxsize=1)(lambda repeat, fold: data(_fold_data(config, repeat, fold), seed=0))
    keys = [
        {"repeat": repeat, "fold": fold, "method": method}
        for repeat in range(config.repeats)
        for fold in range(config.folds)
        for method in config.methods
    ]
    trainings = (
        (key, lambda path, key=key: _fold_row(config, drawn(key["repeat"], key["fold"]), path, **key)) for key in keys
    )
    history = table(trainings, progress, scratch).sort_values(["repeat", "fold", "method"], ignore_index=True)
    versions = provenance(Numerics.of(_bag_training(config)))
    if set(REFERENCES) & set(config.methods):
        from importlib.metadata import version

        versions["packages"] |= {"torchmil": version("torchmil")}
    versions["train_seconds"] = round(float(history["seconds"].sum()), 1)
    return history, {"title": short_source(config.source), "provenance": versions}, {}


def _fold_data(config: CrossValidation, repeat: int, fold: int) -> Bags:
    given = {name: getattr(config, name) for name in ("source", "fingerprint", "validation_share")}
    return Bags(**given, repeat=repeat, fold=fold)


def _bag_training(config: CrossValidation) -> Training:
    given = {name: getattr(config, name) for name in ("batch_size", "threads")}
    return Training(**given, memory_layout="contiguous", device="cpu", keep="best")


def _fold_phases(config: CrossValidation, method: str) -> tuple[Phase, ...]:
    """The schedule of a method; ABMIL trains with the loss of soft attention."""
    half = config.epochs // 2
    lengths = {"soft": half, "hard": config.epochs - half}
    if method != "hybrid":
        lengths = {"soft" if method in REFERENCES else method: config.epochs}
    common = {"learning_rates": config.learning_rates, "optimizer": "adam"}
    return tuple(Phase.model_validate({"paradigm": p, "epochs": n, **common}) for p, n in lengths.items())


def _fold_row(config: CrossValidation, task: SDCTask, checkpoint: Path, repeat: int, fold: int, method: str) -> Row:
    """Train one method on one fold and measure it on the test fold; all methods share seed and order of bags."""
    began, seed, training = time.perf_counter(), repeat * config.folds + fold, _bag_training(config)
    phases, numerics = _fold_phases(config, method), Numerics.of(training)
    if method in REFERENCES:
        model = abmil(task, method == "gated-abmil", seed)[0]
    else:
        anywhere = Bags(source="bags:any")
        model = build_model(Run(data=anywhere, model=BAG_MODEL, phases=phases, training=training, seed=seed), task)
    history = fit(model, task, phases, training, seed, checkpoint).history
    aggregation = phases[-1].paradigm
    with reproducible(config.threads):
        scores = {
            split: evaluate(model, task.splits[split], [aggregation], numerics)[aggregation]
            for split in ("validation", "test")
        }
    measures = split_summary(scores["test"], task.splits["test"])
    return {
        "repeat": repeat,
        "fold": fold,
        "method": method,
        "n": measures["n"],
        **{name: measures[name] for name in BAG_MEASURES},
        "validation_accuracy": float(scores["validation"].prediction_hit.mean()),
        "learning_rate": history[-1]["learning_rate"],
        "seconds": round(time.perf_counter() - began, 2),
    }


class _Attention(nn.Module):
    """torchmil's attention network before the softmax: (N, D) -> (N,)."""

    def __init__(self, pool: Any) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, encoded: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        _, focus_logits = self.pool(encoded[None], return_att=True)  # one bag: before the softmax bags do not mix
        return focus_logits[0]


class _TwoClasses(nn.Module):
    """The class logits (0, logit) of torchmil's one logit: (N, D) -> (N, 2)."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, encoded: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        logit = self.classifier(encoded)  # (N, 1)
        return torch.cat([torch.zeros_like(logit), logit], dim=1)


def abmil(task: SDCTask, gated: bool, seed: int) -> tuple[FCAM, Any]:
    """torchmil's ABMIL for the bags of `task`, as an `FCAM`, and torchmil's own model on the same weights.

    Raises `UserError` where torchmil is not installed, or the bags have more than two classes.
    """
    try:
        from torchmil.models import ABMIL
    except ImportError:
        raise UserError(
            "the methods abmil and gated-abmil need torchmil: pip install 'fcamlib[mil]', or leave them out."
        ) from None
    if len(task.class_names) != 2:
        raise UserError(
            f"abmil and gated-abmil tell two classes apart, and there are {len(task.class_names)}: leave them out."
        )
    encoder, _ = build_encoder("mlp", task, torch.Generator().manual_seed(seed))
    dense = nn.Sequential(
        *list(encoder.children())[1:]
    )  # the same layers without Flatten: torchmil hands over (B, M, D)
    with torch.random.fork_rng(devices=[]):  # torchmil's layers draw from the global generator
        torch.manual_seed(seed)
        model = ABMIL(task.bank.segment_shape, att_dim=ATTENTION_DIM, gated=gated, feat_ext=dense)
    return FCAM(_Attention(model.pool), _TwoClasses(model.classifier), encoder), model
