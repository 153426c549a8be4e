r"""How well attention agrees with human rationales, and how faithful it is to the model's own prediction.

| measure           | what it says                                                                                  |
|-------------------|-----------------------------------------------------------------------------------------------|
| token F1          | overlap of the most attended words with the rationale; mean over posts that have one          |
| AUPRC             | average precision of the attention weights as a ranking of words; mean over the same posts    |
| comprehensiveness | fall of the predicted class's probability when the most attended words are taken away         |
| sufficiency       | its fall when only they are left; near 0, or below, where they suffice                        |

F1 and average precision are scikit-learn's. The faithfulness pair is computed here: ferret-xai has it, but only for
models and tokenisers of the library transformers, and captum, which is kept up, has neither of the two. A word is
taken away by masking it: the others keep their places. Source of the measures: DeYoung et al., ERASER, ACL 2020;
Mathew et al., HateXplain, AAAI 2021, which takes the five most attended words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, f1_score
from torch import Tensor

from fcamlib.data.sdc import SDCData
from fcamlib.evaluation import evaluating, outputs
from fcamlib.fcam import FCAM
from fcamlib.numerics import PLAIN, Numerics

TOP_K = 5  # words, as HateXplain's authors take
Weights = Float[np.ndarray, "n M"]
Marks = Bool[np.ndarray, "n M"]


def token_f1(alpha: Weights, rationale: Marks, mask: Marks, top_k: int = TOP_K) -> float:
    """F1 of the `top_k` words with the largest weights against the rationale, mean over the posts: in [0, 1].

    Each post has a rationale; `mask` is True for real words. Ties go by place.
    """
    _check(alpha, rationale, mask)
    chosen = most_attended(torch.from_numpy(alpha), torch.from_numpy(mask), top_k).numpy()
    return float(f1_score(rationale, chosen, average="samples", zero_division=0.0))


def auprc(alpha: Weights, rationale: Marks, mask: Marks) -> float:
    """Average precision of the attention weights of each post's words, mean over the posts: in [0, 1]."""
    _check(alpha, rationale, mask)
    return float(average_precision_score(rationale, np.where(mask, alpha, -1.0), average="samples"))


def _check(alpha: NDArray[np.floating], rationale: NDArray[np.bool_], mask: NDArray[np.bool_]) -> None:
    if not (rationale & mask).any(axis=1).all() or (rationale & ~mask).any():
        raise ValueError("a post has no rationale, or one in its padding: leave it out.")


def most_attended(
    alpha: Float[Tensor, "B M"], mask: Bool[Tensor, "B M"], top_k: int | Tensor = TOP_K
) -> Bool[Tensor, "B M"]:
    """The `top_k` words with the largest weights of each post, all words of a shorter one; ties by place.

    `top_k` is one number, or one a post (B,).
    """
    order = alpha.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(dim=1)  # (B, M) place of each word in the ranking
    bound = top_k[:, None] if isinstance(top_k, Tensor) else top_k
    return (rank < bound) & mask


def agreement(
    model: FCAM, data: SDCData, paradigm: str, top_k: int = TOP_K, numerics: Numerics = PLAIN
) -> dict[str, float | int | None]:
    """All measures of `model` on `data`, predicting as `paradigm` does; None where no post has what a measure needs.

    Token F1 and AUPRC are over the `num_rationales` posts with a rationale, the faithfulness pair over the
    `num_faithfulness` posts of two words or more; of a post of `top_k` words or fewer all but one count as attended.
    """
    parts = list(_parts(model, data, paradigm, top_k, numerics))
    drops = np.concatenate([part.drops for part in parts])
    scored = [part for part in parts if part.num_rationales]
    weights = [part.num_rationales for part in scored]
    has_two = ~np.isnan(drops[:, 0])
    removed, kept = drops[has_two].mean(axis=0).tolist() if has_two.any() else (None, None)
    return {
        "token_f1": float(np.average([part.f1 for part in scored], weights=weights)) if scored else None,
        "auprc": float(np.average([part.precision for part in scored], weights=weights)) if scored else None,
        "comprehensiveness": removed,
        "sufficiency": kept,
        "num_rationales": sum(weights),
        "num_faithfulness": int(has_two.sum()),
    }


class _Part(NamedTuple):
    """Measures of a chunk of posts."""

    f1: float
    precision: float
    num_rationales: int
    drops: NDArray[np.float64]  # (B, 2) comprehensiveness and sufficiency, NaN for posts of one word


def _parts(model: FCAM, data: SDCData, paradigm: str, top_k: int, numerics: Numerics) -> Iterator[_Part]:
    with evaluating(model), numerics.autocasting():
        for part, output in outputs(model, data, [paradigm], numerics):
            mask = torch.ones_like(part.foreground) if part.mask is None else part.mask
            alpha = output.log_alpha.exp()  # (B, M)
            log_prob = output.log_prob(paradigm)  # (B, K)
            predicted = log_prob.argmax(dim=1, keepdim=True)
            length = mask.sum(dim=1)
            chosen = most_attended(alpha, mask, (length - 1).clamp(min=1, max=top_k))
            full = log_prob.gather(1, predicted).exp()
            drops = [
                full - _probability(model, replace(part, mask=kept, is_checked=True), predicted, paradigm, numerics)
                for kept in (_not_empty(mask & ~chosen, mask), chosen)
            ]
            known = part.has_foreground
            weights, marks, real = (v[known].cpu().numpy() for v in (alpha.double(), part.foreground, mask))
            yield _Part(
                token_f1(weights, marks, real, top_k) if len(marks) else float("nan"),
                auprc(weights, marks, real) if len(marks) else float("nan"),
                len(marks),
                torch.cat(drops, dim=1).double().masked_fill(length[:, None] < 2, torch.nan).cpu().numpy(),
            )


def _not_empty(kept: Tensor, mask: Tensor) -> Tensor:
    """Posts of one word keep it; their measures are left out."""
    return torch.where(kept.any(dim=1, keepdim=True), kept, mask)


def _probability(model: FCAM, data: SDCData, classes: Tensor, paradigm: str, numerics: Numerics) -> Tensor:
    """Probability of the given classes (B, 1) on a chunk that is one part again."""
    _, output = next(outputs(model, data, [paradigm], numerics))
    return output.log_prob(paradigm).gather(1, classes).exp()
