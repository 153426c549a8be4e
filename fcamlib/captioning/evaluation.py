r"""Evaluation of a captioning model: loss, captions, and the location of attention for each object.

Attention is upsampled to the picture by spreading the weight of each region evenly over its cell of a square grid, so
the mass inside a box is a sum over regions of the weight times the share of the cell's area that the box covers.
Objects of one category count as one, with the union of their boxes, since words do not distinguish between them. For a
category c that a picture shows, with the caption's words t = 1..T up to <end>,

$$t^* = \arg\max_t \; p_t(c), \qquad s_y = p_{t^*}(c), \qquad
  a_z = \sum_l a_{t^*}(l)\, \frac{|\text{cell}_l \cap \text{boxes}_c|}{|\text{cell}_l|},$$

where p_t(c) sums the probabilities of all words that name c. Source: arXiv 2307.13421, experiments on MSCOCO; the union
and the sum are this project's choice.

If annotators linked phrases of the given captions to boxes, the attention inside a phrase's boxes is measured too, as
the mean over its words, each predicted from the given words before it. The baseline is uniform attention: the share of
the picture covered by the boxes. Source: Liu et al., Attention correctness in neural image captioning, AAAI 2017.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU
from torch import Tensor

from fcamlib import metrics
from fcamlib.captioning.decoding import Greedy, greedy, read, real_words
from fcamlib.captioning.model import STRIDE, Captioner, context_at_test
from fcamlib.data.captions import CaptionData, CaptionTask, decode
from fcamlib.evaluation import evaluating
from fcamlib.numerics import Numerics

CAPTION_EDGES = (0.0, 0.2, 0.3, 1.0)  # of a_z and of s_y
CAPTION_THRESHOLD = 0.3  # for SAIF, the last cell of the heatmap
_CHUNK = 250  # pictures or captions per pass, four times as many on a GPU
Words = Sequence[str]


def bleu(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> dict[str, float]:
    """BLEU-1 to BLEU-4 ("bleu1" ... "bleu4") of a corpus, in percent, with one or more references per picture.

    Computed by sacrebleu on the given words: no tokeniser, no smoothing, case-sensitive; the brevity penalty uses the
    closest reference length.
    """
    said = [" ".join(words) for words in captions]
    most = max(map(len, references))
    # sacrebleu expects the i-th references of all pictures as one list, None if a picture has fewer.
    streams: Any = [[" ".join(own[i]) if i < len(own) else None for own in references] for i in range(most)]
    return {f"bleu{order}": float(_scorer(order).corpus_score(said, streams).score) for order in range(1, 5)}


def bleu_settings() -> str:
    """sacrebleu's signature: its settings and version."""
    scorer = _scorer(4)
    scorer.corpus_score(["a"], [["a"]])
    return str(scorer.get_signature())


def _scorer(order: int) -> BLEU:
    return BLEU(max_ngram_order=order, tokenize="none", smooth_method="none", lowercase=False, force=True)


def cider(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> float | None:
    """CIDEr-D from the package pycocoevalcap, from 0 to 10; None if it is not installed.

    Document frequencies come from the given references. Some published tables multiply by 100.
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

    `boxes` are x0, y0, x1, y1 as fractions of the picture, in [0, 1]; regions are the cells of a square grid over the
    picture, row by row.
    """
    side = math.isqrt(num_regions)
    edges = np.arange(side + 1) / side
    # Edges of boxes and cells divide the picture into pieces, each entirely inside or outside every box and cell.
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


@dataclass(frozen=True)
class CaptionScores:
    """Scores of a split.

    | column of `objects` | meaning, for each category that a picture shows                                           |
    |---------------------|-------------------------------------------------------------------------------------------|
    | `picture`           | row of the picture                                                                        |
    | `category`          | index in the task's categories                                                            |
    | `step`              | the step, from 0, at which a word of the category is most probable                        |
    | `s_y`, `a_z`        | that probability, and the attention inside the boxes at that step                         |
    | `focus_hit`         | whether the region with the largest weight has at least half of the largest covered share |
    | `mentioned`         | whether the greedy caption contains a word for the category                               |
    | `area`              | share of the picture that the boxes cover, which is a_z under uniform attention           |

    """

    captions: tuple[tuple[str, ...], ...]  # greedy, one per picture
    references: tuple[tuple[tuple[str, ...], ...], ...]  # of each picture
    loss: float  # cross-entropy in nats per word of the given captions
    objects: pd.DataFrame  # picture by picture
    phrases: pd.DataFrame  # linked phrases, with `a_z` inside their boxes and `area`

    def summary(self) -> dict[str, float]:
        """Loss, BLEU, and means over phrases and objects, if there are any; SAIF at the threshold 0.3."""
        measures, found = {"loss": self.loss, **bleu(self.captions, self.references)}, self.objects
        if len(self.phrases):
            measures["phrase_a_z"] = float(self.phrases["a_z"].mean())
            measures["uniform_phrase_a_z"] = float(self.phrases["area"].mean())
        if not len(found):
            return measures
        a_z, s_y = found["a_z"].to_numpy(), found["s_y"].to_numpy()
        outcomes = metrics.outcome_fractions(found["focus_hit"].to_numpy(), found["mentioned"].to_numpy())
        return measures | {
            "a_z": float(a_z.mean()),
            "s_y": float(s_y.mean()),
            "uniform_a_z": float(found["area"].to_numpy().mean()),
            "saif": metrics.saif(a_z, s_y, CAPTION_THRESHOLD),
            "focus_accuracy": outcomes["ftpt"] + outcomes["ftpf"],
            "mentioned": outcomes["ftpt"] + outcomes["ffpt"],
            **outcomes,
        }


class CaptionEvaluator:
    """Evaluation on one split, with captions of at most `max_words`; model-independent data are computed once."""

    def __init__(self, task: CaptionTask, split: str, max_words: int, numerics: Numerics) -> None:
        self.data, self.vocabulary = task.splits[split], task.vocabulary
        self.max_words, self.numerics = max_words, numerics
        names = task.word_category[:, None] == torch.arange(len(task.categories))
        self.names = names.to(numerics.device, numerics.dtype)  # (V, C): 1 where a word names a category
        shape = self.data.pictures.segment_shape  # (L, D) of features or (3, S, S) of pictures
        self.regions = shape[0] if len(shape) == 2 else (shape[-1] // STRIDE) ** 2
        shown = [
            (number, category, objects.box.numpy()[np.array(objects.category) == category])
            for number, objects in enumerate(self.data.objects)
            for category in sorted(set(objects.category))
        ]
        self.objects = pd.DataFrame([own[:2] for own in shown], columns=["picture", "category"], dtype=np.int64)
        self.coverage = self._covered([boxes for *_, boxes in shown])
        phrases = [(phrase.caption, phrase.start, phrase.end) for phrase in self.data.phrases]
        self.phrases = np.array(phrases, dtype=np.int64).reshape(-1, 3)
        self.linked = self._covered([phrase.box.numpy() for phrase in self.data.phrases])
        self.chunk = _CHUNK * (4 if numerics.device.type == "cuda" else 1)

    def _covered(self, boxes: Sequence[np.ndarray]) -> NDArray[np.float64]:
        """The coverage of each list of boxes: (n, L)."""
        return np.array([coverage(own, self.regions) for own in boxes]).reshape(-1, self.regions)

    def evaluate(self, model: Captioner, paradigm: str) -> CaptionScores:
        """Score `model` with the test-time contexts of `paradigm`, in evaluation mode and without gradients."""
        with evaluating(model), self.numerics.autocasting():
            loss, phrase_a_z = self._reading(model, paradigm)
            captions, parts = [], []
            for rows, found in self.greedy(model, paradigm):
                captions += [decode(own, self.vocabulary) for own in found.tokens.tolist()]
                parts.append(self._objects(rows, found))
        phrases = pd.DataFrame({"a_z": phrase_a_z, "area": self.linked.mean(axis=1)})
        objects = pd.concat(parts, ignore_index=True)
        return CaptionScores(tuple(captions), self.data.references, loss, objects, phrases)

    def greedy(
        self, model: Captioner, paradigm: str, limit: int | None = None
    ) -> Iterator[tuple[Int[Tensor, " b"], Greedy]]:
        """Yield chunks of pictures, at most `limit` in all, with their greedy captions."""
        for rows in torch.arange(len(self.data.references))[:limit].split(self.chunk):
            regions = model.regions(pictures_at(self.data, rows, self.numerics))
            yield rows, greedy(model, regions, context_at_test(paradigm), self.max_words, self.names)

    def _reading(self, model: Captioner, paradigm: str) -> tuple[float, NDArray[np.float64]]:
        """Mean cross-entropy over all words of the given captions, and the attention inside each phrase's boxes."""
        total = torch.zeros((), dtype=torch.float64, device=self.numerics.device)
        words, parts = 0, [np.zeros(0)]
        for index in torch.arange(len(self.data.picture)).split(self.chunk):
            rows, place = torch.unique(self.data.picture[index], return_inverse=True)
            tokens = trimmed(self.data.tokens[index]).to(self.numerics.device)
            regions = model.regions(pictures_at(self.data, rows, self.numerics))
            found = read(model, regions, place.to(self.numerics.device), tokens, context_at_test(paradigm))
            total -= found.words.sum().double()
            words += int(real_words(tokens).sum())
            here = slice(*np.searchsorted(self.phrases[:, 0], [int(index[0]), int(index[-1]) + 1]))
            caption, start, end = self.phrases[here].T
            if len(caption):
                summed = np.pad(found.log_alpha.exp().double().cpu().numpy().cumsum(axis=1), ((0, 0), (1, 0), (0, 0)))
                caption = caption - int(index[0])
                mean = (summed[caption, end] - summed[caption, start]) / (end - start)[:, None]  # (n, L)
                parts.append((mean * self.linked[here]).sum(axis=1))
        return float(total) / words, np.concatenate(parts)

    def _objects(self, rows: Tensor, found: Greedy) -> pd.DataFrame:
        """Scores of the objects of a chunk of pictures."""
        here = slice(*np.searchsorted(self.objects["picture"], [int(rows[0]), int(rows[-1]) + 1]))
        objects, covered = self.objects[here], self.coverage[here]
        own, category = objects["picture"].to_numpy() - int(rows[0]), objects["category"].to_numpy()
        probability = found.category_prob.masked_fill(~found.real[..., None], 0.0).double().cpu().numpy()
        probability = probability[own, :, category]  # (n, T)
        step = probability.argmax(axis=1)
        weights = found.alpha.double().cpu().numpy()[own, step]  # (n, L)
        at_focus = np.take_along_axis(covered, weights.argmax(axis=1)[:, None], axis=1)[:, 0]
        return objects.assign(
            a_z=(weights * covered).sum(axis=1),
            s_y=probability[np.arange(len(step)), step],
            step=step,
            focus_hit=at_focus >= 0.5 * covered.max(axis=1),
            mentioned=self.names[found.tokens].bool().any(dim=1).cpu().numpy()[own, category],
            area=covered.mean(axis=1),
        )


def pictures_at(data: CaptionData, rows: Int[Tensor, " n"], numerics: Numerics) -> Tensor:
    """Pictures or features as a model sees them, on the device."""
    return data.pictures.rows(rows, numerics.dtype).to(numerics.device)


def trimmed(tokens: Int[Tensor, "B T1"]) -> Int[Tensor, "B t1"]:
    """The same captions without trailing places that are padding in all of them."""
    longest = int(real_words(tokens).sum(dim=1).max())
    return tokens[:, : longest + 1]
