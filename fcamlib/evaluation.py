r"""Evaluation: one pass over a data set gives the scores under every prediction rule.

A context-free model is evaluated once per distinct segment of the data, and its scores are gathered. This is exact,
and its cost grows with the bank rather than with instances times segments.

Of texts, attention is compared with human rationales, and its faithfulness to the model's own prediction is measured:

| measure           | meaning                                                                                       |
|-------------------|-----------------------------------------------------------------------------------------------|
| token F1          | overlap of the most attended words with the rationale; mean over posts that have one          |
| AUPRC             | average precision of the attention weights as a ranking of words; mean over the same posts    |
| comprehensiveness | decrease of the predicted class's probability when the most attended words are removed        |
| sufficiency       | its decrease when only these words are kept; near 0 or negative if they suffice               |

Removed words are masked, so the others keep their positions. Source: DeYoung et al., ERASER, ACL 2020; Mathew et al.,
HateXplain, AAAI 2021, who use the five most attended words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fcamlib import metrics
from fcamlib.chunked import Chunks, surely_fitting
from fcamlib.data.sdc import SDCData, distinct
from fcamlib.fcam import BYTES_OF_A_LOGIT, FCAM, FCAMOutput
from fcamlib.numerics import PLAIN, Numerics
from fcamlib.paradigms import PAPER, needs

TEMPORARIES = 8  # tensors of one size that a pass holds at the same time
TOP_K = 5  # words, as in HateXplain
Weights = Float[np.ndarray, "n M"]
Marks = Bool[np.ndarray, "n M"]
EPOCH_MEASURES = ("loss", "accuracy", "focus_accuracy", "saif")  # of training data, in the history
EVALUATION_MEASURES = (*EPOCH_MEASURES, "a_z", "a_z_high")  # of validation and test data


@dataclass(frozen=True)
class Scores:
    """Scores under one prediction rule: arrays (n,) in the order of the instances, or tensors for a batch."""

    a_z: Any  # attention on the foreground
    s_y: Any  # prediction score of the true label
    focus_hit: Any  # whether the largest weight is on the foreground
    prediction_hit: Any
    prediction: Any  # class
    loss: Any  # the paradigm's training loss in nats
    has_foreground: Any  # whether the foreground is known
    entropy: Any  # of the attention weights, in nats, at most log M
    max_attention: Any  # the confidence of the focus
    prob: Any  # of each class, (n, K)

    def summary(self) -> dict[str, float]:
        """Loss and accuracy, and the focus and outcome measures over the instances whose foreground is known."""
        measures = {"loss": float(self.loss.mean()), "accuracy": float(self.prediction_hit.mean())}
        known = self.has_foreground
        if not known.any():
            return measures
        outcomes = metrics.outcome_fractions(self.focus_hit[known], self.prediction_hit[known])
        return measures | {
            "focus_accuracy": outcomes["ftpt"] + outcomes["ftpf"],
            "saif": metrics.saif(self.a_z[known], self.s_y[known]),
            "a_z": float(self.a_z[known].mean(dtype=np.float64)),
            "a_z_high": float((self.a_z[known] > metrics.SAIF_THRESHOLD).mean()),
            **outcomes,
        }


def batch_scores(output: FCAMOutput, data: SDCData, paradigm: str) -> Scores:
    """Scores of a forward pass over `data` under the prediction rule of `paradigm`."""
    log_prob = output.log_prob(paradigm)  # (B, K)
    focus = output.log_alpha.argmax(dim=1, keepdim=True)
    prediction = log_prob.argmax(dim=1)
    alpha = output.log_alpha.exp()
    return Scores(
        a_z=(alpha * data.foreground).sum(dim=1),
        s_y=log_prob.gather(1, data.label[:, None]).squeeze(1).exp(),
        focus_hit=data.foreground.gather(1, focus).squeeze(1),
        prediction_hit=prediction == data.label,
        prediction=prediction,
        loss=output.loss(paradigm, data.label, reduction="none"),
        has_foreground=data.has_foreground,
        entropy=torch.special.entr(alpha).sum(dim=1),
        max_attention=alpha.amax(dim=1),
        prob=log_prob.exp(),
    )


def evaluate(
    model: FCAM, data: SDCData, paradigms: Sequence[str] = PAPER, numerics: Numerics = PLAIN
) -> dict[str, Scores]:
    """Scores of `model` on `data`, which is on the device of `numerics`, under each paradigm's prediction rule."""
    batches: dict[str, list[Scores]] = {paradigm: [] for paradigm in paradigms}
    with evaluating(model), numerics.autocasting():
        for part, output in outputs(model, data, paradigms, numerics):
            for paradigm in paradigms:
                batches[paradigm].append(batch_scores(output, part, paradigm))
    names = [field.name for field in fields(Scores)]
    return {
        paradigm: Scores(**{name: torch.cat([getattr(part, name) for part in parts]).cpu().numpy() for name in names})
        for paradigm, parts in batches.items()
    }


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module returns to its previous mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module, was_training in modes:
            module.training = was_training


def outputs(
    model: FCAM, data: SDCData, paradigms: Sequence[str], numerics: Numerics
) -> Iterator[tuple[SDCData, FCAMOutput]]:
    """Yield groups of instances, each with a forward pass that serves all `paradigms`."""
    if model.context_free:
        yield from _tabulated(model, data, paradigms, numerics)
        return
    fitting = numerics.rows_at_once(TEMPORARIES * numerics.dtype.itemsize * data.num_segments**2)  # pairs of places
    for part in _parts(data, min(numerics.evaluated_at_once, fitting)):
        rows, index = distinct(part.segments)
        segments = data.bank.rows(rows, numerics.dtype, numerics.channels_last)
        yield part, model(segments, index, paradigms, part.mask)


def _tabulated(
    model: FCAM, data: SDCData, paradigms: Sequence[str], numerics: Numerics
) -> Iterator[tuple[SDCData, FCAMOutput]]:
    """Passes of a context-free model: each distinct segment is scored once, in a table."""
    used = torch.unique(data.segments).long()
    row_of = torch.zeros(len(data.bank.values), dtype=torch.long, device=used.device)  # row of the bank -> of the table
    row_of[used] = torch.arange(len(used), device=used.device)
    size = min(numerics.evaluated_at_once, surely_fitting(data.bank, numerics))
    table = Chunks(model, data.bank, used, size, numerics)
    focus_logits, class_logits = table.scores(needs(paradigms, "segments"))
    num_logits = data.num_segments * (1 if class_logits is None else class_logits.shape[1])
    fitting = numerics.rows_at_once(BYTES_OF_A_LOGIT * num_logits)
    at_once = numerics.rows_at_once(TEMPORARIES * numerics.dtype.itemsize * prod(data.bank.segment_shape))
    for part in _parts(data, min(size, fitting)):
        sums = None
        if needs(paradigms, "mixture"):
            rows, index = distinct(part.segments)
            sums = partial(Chunks(model, data.bank, rows, at_once, numerics).weighted_sums, index)
        yield part, model.combine(focus_logits, class_logits, row_of[part.segments.long()], part.mask, sums)


def _parts(data: SDCData, size: int) -> Iterator[SDCData]:
    for instances in torch.arange(len(data), device=data.label.device).split(size):
        yield data.take(instances).trimmed()


def bag_measures(scores: Scores, data: SDCData) -> dict[str, float | None]:
    """Measures that do not need a known foreground; None if a measure is not defined on the data."""
    label = data.label.cpu().numpy()
    sizes = np.full(len(label), data.num_segments) if data.mask is None else data.mask.sum(dim=1).cpu().numpy()
    return {
        "auc": metrics.auc(scores.prob, label),
        "calibration_error": metrics.calibration_error(scores.prob, label),
        "attention_entropy": metrics.attention_entropy(scores.entropy, sizes),
    }


class Meter:
    """Running means of an epoch's scores, kept on the device; focus measures only if the foreground is known."""

    def __init__(self, device: torch.device) -> None:
        self.total = torch.zeros(5, dtype=torch.float64, device=device)
        self.count = 0

    def add(self, scores: Scores) -> None:
        """Add a batch."""
        known = scores.has_foreground
        strong = (scores.a_z > metrics.SAIF_THRESHOLD) & (scores.s_y > metrics.SAIF_THRESHOLD)
        columns = (scores.loss, scores.prediction_hit, scores.focus_hit & known, strong & known, known)
        self.total += torch.stack([column.double().sum() for column in columns])
        self.count += len(scores.loss)

    def means(self) -> dict[str, float]:
        """The measures in `EPOCH_MEASURES`; only the first two if no foreground is known."""
        *totals, known = self.total.tolist()
        counts = [self.count, self.count, known, known]
        measures = zip(EPOCH_MEASURES, totals, counts, strict=True)
        return {name: total / count for name, total, count in measures if count}


# --- rationales -------------------------------------------------------------------------------------------------------


def token_f1(alpha: Weights, rationale: Marks, mask: Marks, top_k: int = TOP_K) -> float:
    """F1 of the `top_k` words with the largest weights against the rationale, mean over the posts: in [0, 1].

    Each post has a rationale; `mask` is True for real words. Ties are broken by position.
    """
    from sklearn.metrics import f1_score

    chosen = most_attended(torch.from_numpy(alpha), torch.from_numpy(mask), top_k).numpy()
    return float(f1_score(rationale, chosen, average="samples", zero_division=0.0))


def auprc(alpha: Weights, rationale: Marks, mask: Marks) -> float:
    """Average precision of the attention weights of each post's words, mean over the posts: in [0, 1].

    Each post has a rationale; `mask` is True for real words.
    """
    from sklearn.metrics import label_ranking_average_precision_score

    # its mean over posts of average precision is average_precision_score's, in a third of the time
    return float(label_ranking_average_precision_score(rationale, np.where(mask, alpha, -1.0)))


def most_attended(
    alpha: Float[Tensor, "B M"], mask: Bool[Tensor, "B M"], top_k: int | Tensor = TOP_K
) -> Bool[Tensor, "B M"]:
    """The `top_k` (one number, or one per post) words with the largest weights; all words of a shorter post."""
    order = alpha.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True, stable=True)
    return (order.argsort(dim=1) < torch.as_tensor(top_k, device=mask.device).reshape(-1, 1)) & mask


def agreement(
    model: FCAM, data: SDCData, paradigm: str, top_k: int = TOP_K, numerics: Numerics = PLAIN
) -> dict[str, float | int | None]:
    """All measures of `model` on `data` under the prediction rule of `paradigm`; None if no post qualifies.

    Token F1 and AUPRC are over the `num_rationales` posts with a rationale, comprehensiveness and sufficiency over the
    `num_faithfulness` posts of two or more words; in posts of at most `top_k` words all but one count as attended.
    """
    overlaps, weights, falls = [], [], []  # of each chunk: mean F1 and AUPRC, posts with a rationale; of each post
    with evaluating(model), numerics.autocasting():
        for part, output in outputs(model, data, [paradigm], numerics):
            mask = torch.ones_like(part.foreground) if part.mask is None else part.mask
            alpha, log_prob, length = output.log_alpha.exp(), output.log_prob(paradigm), mask.sum(dim=1)
            predicted = log_prob.argmax(dim=1, keepdim=True)
            attended = most_attended(alpha, mask, (length - 1).clamp(min=1, max=top_k))
            kept = [mask & ~attended | mask & (length[:, None] < 2), attended]  # a post keeps its only word
            left = []
            for words in kept:  # one piece, as the chunk itself
                _, shortened = next(outputs(model, replace(part, mask=words), [paradigm], numerics))
                left.append(shortened.log_prob(paradigm).gather(1, predicted).exp())
            fall = log_prob.gather(1, predicted).exp() - torch.cat(left, dim=1)  # (B, 2)
            falls.append(fall[length > 1].double().cpu().numpy())
            if (known := part.has_foreground).any():
                weight, marks, real = (v[known].cpu().numpy() for v in (alpha.double(), part.foreground, mask))
                overlaps.append((token_f1(weight, marks, real, top_k), auprc(weight, marks, real)))
                weights.append(int(known.sum()))
    faithful = np.concatenate(falls)
    overlap = np.average(overlaps, axis=0, weights=weights).tolist() if weights else [None, None]
    mean_fall = faithful.mean(axis=0).tolist() if len(faithful) else [None, None]
    names = ("token_f1", "auprc", "comprehensiveness", "sufficiency")
    counts = {"num_rationales": sum(weights), "num_faithfulness": len(faithful)}
    return dict(zip(names, overlap + mean_fall, strict=True)) | counts
