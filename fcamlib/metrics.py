r"""Measures of accuracy, interpretability and calibration, on arrays of per-instance scores.

`a_z` is the attention on the foreground (summed over all foreground segments) and `s_y` the prediction score of
the true label, both in [0, 1] with shape (n,). Source: arXiv 2307.13421, sec. 2; the threshold and the fixed
bins are this project's choice (the public scripts' bins follow the range of the data); calibration: Guo et al. 2017.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

SAIF_THRESHOLD = 0.8
HISTOGRAM_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
SAIF_TAUS = np.linspace(0.0, 1.0, 101)
CONFIDENCE_BINS = 10


def saif(a_z: Float[np.ndarray, " n"], s_y: Float[np.ndarray, " n"], tau: float = SAIF_THRESHOLD) -> float:
    r"""Strongly accurate interpretable fraction: the share of instances with both scores above `tau`.

    $$\mathrm{SAIF}(\tau) = \frac1n \sum_i [a_z^{(i)} > \tau]\,[s_y^{(i)} > \tau]$$
    """
    a_z, s_y = _scores(a_z, s_y)
    return float(np.mean((a_z > tau) & (s_y > tau)))


def saif_curve(a_z: Float[np.ndarray, " n"], s_y: Float[np.ndarray, " n"]) -> NDArray[np.float64]:
    """SAIF at each threshold in `SAIF_TAUS` (0, 0.01, ..., 1), from a single sort: shape (101,)."""
    a_z, s_y = _scores(a_z, s_y)
    weaker = np.sort(np.minimum(a_z, s_y))
    return 1.0 - np.searchsorted(weaker, SAIF_TAUS, side="right") / weaker.size


def outcome_fractions(focus_hit: Bool[np.ndarray, " n"], prediction_hit: Bool[np.ndarray, " n"]) -> dict[str, float]:
    """Fractions of focus true/false x prediction true/false: `ftpt`, `ffpt`, `ftpf`, `ffpf`; they sum to 1.

    Accuracy is ftpt + ffpt, focus accuracy ftpt + ftpf.
    """
    return {
        "ftpt": float(np.mean(focus_hit & prediction_hit)),
        "ffpt": float(np.mean(~focus_hit & prediction_hit)),
        "ftpf": float(np.mean(focus_hit & ~prediction_hit)),
        "ffpf": float(np.mean(~focus_hit & ~prediction_hit)),
    }


def focus_prediction_histogram(a_z: Float[np.ndarray, " n"], s_y: Float[np.ndarray, " n"]) -> NDArray[np.float64]:
    """Percent of instances in each cell [a_z bin, s_y bin] of the fixed 5 x 5 grid on [0, 1]; sums to 100.

    A bin includes its lower edge and excludes its upper edge; the last bin includes both.
    """
    a_z, s_y = _scores(a_z, s_y)
    counts, _, _ = np.histogram2d(a_z, s_y, bins=[np.asarray(HISTOGRAM_EDGES), np.asarray(HISTOGRAM_EDGES)])
    return 100.0 * counts / a_z.size


def auc(prob: Float[np.ndarray, "n K"], label: Int[np.ndarray, " n"]) -> float | None:
    """Area under the ROC curve; with more than two classes, the one-vs-rest mean over classes.

    None unless every class occurs.
    """
    from sklearn.metrics import roc_auc_score  # its import takes longer than reading stored results

    num_classes = prob.shape[1]
    if set(label.tolist()) != set(range(num_classes)):
        return None
    classes = [1] if num_classes == 2 else range(num_classes)
    return float(np.mean([roc_auc_score(label == k, np.asarray(prob[:, k], dtype=np.float64)) for k in classes]))


def calibration_error(prob: Float[np.ndarray, "n K"], label: Int[np.ndarray, " n"]) -> float:
    r"""Expected calibration error of the predicted class's probability, in ten bins of equal width on [0, 1].

    $$\sum_b \frac{n_b}{n} |\mathrm{acc}_b - \mathrm{conf}_b|$$
    """
    confidence = np.clip(np.asarray(prob, dtype=np.float64).max(axis=1), 0.0, 1.0)
    hit = np.asarray(prob).argmax(axis=1) == label
    place = np.minimum((confidence * CONFIDENCE_BINS).astype(int), CONFIDENCE_BINS - 1)
    gap = np.bincount(place, weights=hit - confidence, minlength=CONFIDENCE_BINS)
    return float(np.abs(gap).sum() / len(label))


def attention_entropy(entropy: Float[np.ndarray, " n"], sizes: Int[np.ndarray, " n"]) -> float | None:
    r"""Mean of $-\sum_j a_j \log a_j / \log M_i$ over instances with $M_i > 1$ segments, in [0, 1]; None if none."""
    several: NDArray[np.bool_] = np.asarray(sizes) > 1
    if not several.any():
        return None
    share = np.asarray(entropy, dtype=np.float64)[several] / np.log(np.asarray(sizes)[several])
    return float(np.clip(share, 0.0, 1.0).mean())


def _scores(a_z: np.ndarray, s_y: np.ndarray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both as float64 in [0, 1]; sums of weights that exceed 1 by rounding are clipped."""
    pair = np.stack([a_z, s_y]).astype(np.float64)
    for name, values in zip(("a_z", "s_y"), pair, strict=True):
        if not np.all((values >= -1e-3) & (values <= 1 + 1e-3)):  # also refuses NaN
            raise ValueError(f"{name} has values outside [0, 1] or NaN: give probabilities.")
    a_z, s_y = pair.clip(0.0, 1.0)
    return a_z, s_y
