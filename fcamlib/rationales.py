r"""Agreement of attention with human rationales, and its faithfulness to the model's own prediction.

| measure           | meaning                                                                                       |
|-------------------|-----------------------------------------------------------------------------------------------|
| token F1          | overlap of the most attended words with the rationale; mean over posts that have one          |
| AUPRC             | average precision of the attention weights as a ranking of words; mean over the same posts    |
| comprehensiveness | decrease of the predicted class's probability when the most attended words are removed        |
| sufficiency       | its decrease when only these words are kept; near 0 or negative if they suffice               |

F1 and average precision come from scikit-learn. Removed words are masked, so the others keep their positions. Source:
DeYoung et al., ERASER, ACL 2020; Mathew et al., HateXplain, AAAI 2021, who use the five most attended words.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from sklearn.metrics import average_precision_score, f1_score
from torch import Tensor

from fcamlib.data.sdc import SDCData
from fcamlib.evaluation import evaluating, outputs
from fcamlib.fcam import FCAM
from fcamlib.numerics import PLAIN, Numerics

TOP_K = 5  # words, as in HateXplain
Weights = Float[np.ndarray, "n M"]
Marks = Bool[np.ndarray, "n M"]


def token_f1(alpha: Weights, rationale: Marks, mask: Marks, top_k: int = TOP_K) -> float:
    """F1 of the `top_k` words with the largest weights against the rationale, mean over the posts: in [0, 1].

    Each post has a rationale; `mask` is True for real words. Ties are broken by position.
    """
    _check(rationale, mask)
    chosen = most_attended(torch.from_numpy(alpha), torch.from_numpy(mask), top_k).numpy()
    return float(f1_score(rationale, chosen, average="samples", zero_division=0.0))


def auprc(alpha: Weights, rationale: Marks, mask: Marks) -> float:
    """Average precision of the attention weights of each post's words, mean over the posts: in [0, 1]."""
    _check(rationale, mask)
    return float(average_precision_score(rationale, np.where(mask, alpha, -1.0), average="samples"))


def _check(rationale: Marks, mask: Marks) -> None:
    if not (rationale & mask).any(axis=1).all() or (rationale & ~mask).any():
        raise ValueError("a post has no rationale, or one in its padding: leave it out.")


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
            left = [
                _probability(model, replace(part, mask=m, is_checked=True), predicted, paradigm, numerics) for m in kept
            ]
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


def _probability(model: FCAM, data: SDCData, classes: Tensor, paradigm: str, numerics: Numerics) -> Tensor:
    """Probability of the given classes (B, 1) on a chunk, which is evaluated in one piece."""
    _, output = next(outputs(model, data, [paradigm], numerics))
    return output.log_prob(paradigm).gather(1, classes).exp()
