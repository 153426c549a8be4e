r"""Measures of captions and of where attention was, on arrays and words.

Attention is upsampled to the picture by spreading the weight of each region evenly over its cell of a square grid, so
the mass inside a box is a sum over regions, each weight times the share of its cell's area that the box covers. Several
objects of one category count as one, with the union of their boxes, since no word says which of them is meant. Of a
category c that a picture shows, with the caption's words t = 1..T up to <end>,

$$t^* = \arg\max_t \; p_t(c), \qquad s_y = p_{t^*}(c), \qquad
  a_z = \sum_l a_{t^*}(l)\, \frac{|\text{cell}_l \cap \text{boxes}_c|}{|\text{cell}_l|},$$

where p_t(c) sums the probabilities of all words that name c. Source: arXiv 2307.13421, experiments on MSCOCO; the union
and the sum are this project's choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU

CAPTION_EDGES = (0.0, 0.2, 0.3, 1.0)  # of a_z and of s_y
CAPTION_THRESHOLD = 0.3  # of SAIF: the heatmap's last cell
MAX_ORDER = 4
Words = Sequence[str]


def bleu(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> dict[str, float]:
    """BLEU-1 to BLEU-4 of a corpus, in percent, against one or several references a picture.

    Computed by sacrebleu on words as they are: no tokeniser, no smoothing, case kept, the closest reference's length in
    the brevity penalty. BLEU-n is the geometric mean of the precisions of orders 1 to n.

    Parameters
    ----------
    captions : sequence of sequences of str
        One caption a picture.
    references : sequence of sequences of sequences of str
        The references of each picture, at least one.

    Returns
    -------
    dict
        "bleu1" ... "bleu4", each from 0 to 100.
    """
    if len(captions) != len(references) or not captions:
        raise ValueError(f"{len(captions)} captions and {len(references)} pictures' references: give one each.")
    if bare := next((number for number, given in enumerate(references) if not given), None):
        raise ValueError(f"picture {bare} has no reference: give at least one.")
    said = [" ".join(words) for words in captions]
    most = max(map(len, references))
    # sacrebleu takes the i-th reference of every picture together, None where a picture has fewer.
    streams: Any = [[" ".join(own[i]) if i < len(own) else None for own in references] for i in range(most)]
    return {
        f"bleu{order}": float(_scorer(order).corpus_score(said, streams).score) for order in range(1, MAX_ORDER + 1)
    }


def bleu_settings() -> str:
    """How sacrebleu computes the measures, as it describes it: settings, then its version."""
    scorer = _scorer(MAX_ORDER)
    scorer.corpus_score(["a"], [["a"]])
    return str(scorer.get_signature())


def _scorer(order: int) -> BLEU:
    return BLEU(max_ngram_order=order, tokenize="none", smooth_method="none", lowercase=False, force=True)


def cider(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> float | None:
    """CIDEr-D by the package pycocoevalcap; None where it is not installed.

    Document frequencies are those of the references given. From 0 to 10; published tables multiply by 100 or not.
    """
    try:
        scorer = import_module("pycocoevalcap.cider.cider").Cider()
    except ImportError:
        return None
    said = {number: [" ".join(words)] for number, words in enumerate(captions)}
    given = {number: [" ".join(words) for words in own] for number, own in enumerate(references)}
    return float(scorer.compute_score(given, said)[0])


def coverage(boxes: Float[np.ndarray, "N 4"], num_regions: int) -> NDArray[np.float64]:
    """Share of each region's cell that the union of boxes covers: (L,), from 0 to 1.

    Parameters
    ----------
    boxes : (N, 4) float
        x0, y0, x1, y1 as fractions of the picture.
    num_regions : int
        L, a square number: the regions are the cells of a grid over the picture, row by row.
    """
    side = math.isqrt(num_regions)
    if side * side != num_regions:
        raise ValueError(f"{num_regions} regions are no square grid: give a square number.")
    edges = np.arange(side + 1) / side
    boxes = np.clip(np.asarray(boxes, dtype=np.float64), 0.0, 1.0)
    # Between neighbouring edges of boxes and cells, every piece lies wholly inside or outside of each.
    x = np.unique(np.concatenate([edges, boxes[:, 0], boxes[:, 2]]))
    y = np.unique(np.concatenate([edges, boxes[:, 1], boxes[:, 3]]))
    middle_x, middle_y = (x[:-1] + x[1:]) / 2, (y[:-1] + y[1:]) / 2
    in_x = (boxes[:, :1] < middle_x) & (middle_x < boxes[:, 2:3])  # (N, X)
    in_y = (boxes[:, 1:2] < middle_y) & (middle_y < boxes[:, 3:4])  # (N, Y)
    inside = np.einsum("ny,nx->yx", in_y, in_x)  # boolean: any box
    area = inside * np.diff(y)[:, None] * np.diff(x)[None, :]
    cells = np.zeros((side, side))
    column = np.searchsorted(edges, middle_x, side="right") - 1
    row = np.searchsorted(edges, middle_y, side="right") - 1
    np.add.at(cells, (row[:, None], column[None, :]), area)
    return np.clip(cells.ravel() * num_regions, 0.0, 1.0)


def caption_histogram(a_z: Float[np.ndarray, " n"], s_y: Float[np.ndarray, " n"]) -> NDArray[np.float64]:
    """Percent of objects in each cell [a_z bin, s_y bin] with the edges 0, 0.2, 0.3, 1; sums to 100: (3, 3)."""
    edges = [np.asarray(CAPTION_EDGES)] * 2
    counts, _, _ = np.histogram2d(np.clip(a_z, 0.0, 1.0), np.clip(s_y, 0.0, 1.0), bins=edges)
    return 100.0 * counts / len(a_z)
