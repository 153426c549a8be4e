r"""Measures that need no truth about instances: ranking, calibration, and how far the attention is spread.

| measure                     | values        | what                                                              |
|-----------------------------|---------------|-------------------------------------------------------------------|
| AUC                         | [0, 1]        | area under the receiver operating characteristic; more than two    |
|                             |               | classes: mean over classes, each against the rest                  |
| expected calibration error  | [0, 1]        | $\sum_b \frac{n_b}{n} |\mathrm{acc}_b - \mathrm{conf}_b|$, 10 bins |
| attention entropy           | [0, 1]        | $-\sum_j a_j \log a_j / \log M_i$, mean over bags of M_i > 1        |

A measure that is not defined on some data, such as the AUC where all bags have one label, is None.
Source: Guo et al. 2017 (calibration); the other two are the field's usual ones.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from fcamlib.data.sdc import SDCData
from fcamlib.evaluation import Scores

NUM_BINS = 10


def bag_measures(scores: Scores, data: SDCData) -> dict[str, float | None]:
    """AUC, expected calibration error and mean attention entropy of a data set's scores."""
    label = data.label.cpu().numpy()
    sizes = np.full(len(label), data.num_segments) if data.mask is None else data.mask.sum(dim=1).cpu().numpy()
    return {
        "auc": auc(scores.prob, label),
        "calibration_error": calibration_error(scores.prob, label),
        "attention_entropy": attention_entropy(scores.entropy, sizes),
    }


def auc(prob: Float[np.ndarray, "n K"], label: Int[np.ndarray, " n"]) -> float | None:
    """Area under the ROC curve; None where a class does not occur, or no other does."""
    prob = np.asarray(prob, dtype=np.float64)
    if prob.shape[1] == 2:
        return float(roc_auc_score(label == 1, prob[:, 1])) if 0 < (label == 1).sum() < len(label) else None
    if set(label.tolist()) != set(range(prob.shape[1])):
        return None
    return float(np.mean([roc_auc_score(label == k, prob[:, k]) for k in range(prob.shape[1])]))


def calibration_error(prob: Float[np.ndarray, "n K"], label: Int[np.ndarray, " n"], num_bins: int = NUM_BINS) -> float:
    """Expected calibration error of the predicted class's probability, in bins of equal width on [0, 1]."""
    confidence = np.clip(np.asarray(prob, dtype=np.float64).max(axis=1), 0.0, 1.0)
    hit = np.asarray(prob).argmax(axis=1) == label
    place = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    gap = np.bincount(place, weights=hit - confidence, minlength=num_bins)
    return float(np.abs(gap).sum() / len(label))


def attention_entropy(entropy: Float[np.ndarray, " n"], sizes: Int[np.ndarray, " n"]) -> float | None:
    """Mean of the entropy in units of its largest value, log M, over bags of more than one instance; None without."""
    several: NDArray[np.bool_] = np.asarray(sizes) > 1
    if not several.any():
        return None
    share = np.asarray(entropy, dtype=np.float64)[several] / np.log(np.asarray(sizes)[several])
    return float(np.clip(share, 0.0, 1.0).mean())
