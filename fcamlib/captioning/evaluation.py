"""Evaluation of a captioning model: loss, greedy captions, and for each object where attention was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from fcamlib import metrics
from fcamlib.captioning.decoding import Greedy, greedy
from fcamlib.captioning.losses import real_words, word_log_prob
from fcamlib.captioning.metrics import CAPTION_THRESHOLD, bleu, coverage
from fcamlib.captioning.model import Captioner, context_at_test
from fcamlib.captioning.networks import num_regions
from fcamlib.data.captions import CaptionData, CaptionTask
from fcamlib.data.vocabulary import decode
from fcamlib.evaluation import evaluating
from fcamlib.numerics import Numerics

_CHUNK = 250  # pictures or captions per pass
_GPU_FACTOR = 4


@dataclass(frozen=True)
class ObjectScores:
    """Scores of every category that a picture shows, picture by picture: see `fcamlib.captioning.metrics`.

    Parameters
    ----------
    picture, category : (n,) int
    a_z, s_y : (n,) float
        Attention inside the boxes at the step where a word of the category is most probable, and that probability.
    step : (n,) int
        The step, from 0.
    focus_hit : (n,) bool
        Whether the region with the largest weight at that step lies in the boxes: at least half as much of its cell as
        of the cell that the boxes cover most.
    mentioned : (n,) bool
        Whether the greedy caption has a word of the category.
    area : (n,) float
        Share of the picture that the boxes cover: a_z under uniform attention.
    """

    picture: NDArray[np.int64]
    category: NDArray[np.int64]
    a_z: NDArray[np.float64]
    s_y: NDArray[np.float64]
    step: NDArray[np.int64]
    focus_hit: NDArray[np.bool_]
    mentioned: NDArray[np.bool_]
    area: NDArray[np.float64]


@dataclass(frozen=True)
class CaptionScores:
    """What an evaluation finds.

    Parameters
    ----------
    captions : tuple of tuples of str
        Greedy captions, one a picture.
    loss : float
        Cross-entropy in nats per word of the given captions, with the contexts of test time.
    objects : ObjectScores
    """

    captions: tuple[tuple[str, ...], ...]
    loss: float
    objects: ObjectScores

    def summary(self, references: tuple[tuple[tuple[str, ...], ...], ...]) -> dict[str, float]:
        """Loss, BLEU, and means over objects; SAIF at the threshold 0.3. Measures of objects only where there are."""
        measures = {"loss": self.loss, **bleu(self.captions, references)}
        found = self.objects
        if not len(found.a_z):
            return measures
        outcomes = metrics.outcome_fractions(found.focus_hit, found.mentioned)
        return measures | {
            "a_z": float(found.a_z.mean()),
            "s_y": float(found.s_y.mean()),
            "uniform_a_z": float(found.area.mean()),
            "saif": metrics.saif(found.a_z, found.s_y, CAPTION_THRESHOLD),
            "focus_accuracy": outcomes["ftpt"] + outcomes["ftpf"],
            "mentioned": outcomes["ftpt"] + outcomes["ffpt"],
            **outcomes,
        }


class CaptionEvaluator:
    """Evaluation on one split; what does not depend on the model is computed once.

    Parameters
    ----------
    task : CaptionTask
    split : str
    max_words : int
        Length at which greedy captions are cut.
    numerics : Numerics
    """

    def __init__(self, task: CaptionTask, split: str, max_words: int, numerics: Numerics) -> None:
        self.data, self.vocabulary = task.splits[split], task.vocabulary
        self.max_words, self.numerics = max_words, numerics
        self.names = category_names(task).to(numerics.device, numerics.dtype)
        regions = num_regions(self.data.pictures.segment_shape)
        pairs = [
            (number, category, coverage(objects.box.numpy()[np.array(objects.category) == category], regions))
            for number, objects in enumerate(self.data.objects)
            for category in sorted(set(objects.category))
        ]
        self.picture = np.array([pair[0] for pair in pairs], dtype=np.int64)
        self.category = np.array([pair[1] for pair in pairs], dtype=np.int64)
        self.coverage = np.stack([pair[2] for pair in pairs]) if pairs else np.zeros((0, regions))
        self.chunk = _CHUNK * (_GPU_FACTOR if numerics.device.type == "cuda" else 1)

    def evaluate(self, model: Captioner, paradigm: str) -> CaptionScores:
        """Scores of `model`, read out as `paradigm` does at test time, in evaluation mode and without gradients."""
        with evaluating(model), self.numerics.autocasting():
            loss = self._loss(model, paradigm)
            captions, parts = [], []
            for rows, found in self.greedy(model, paradigm):
                tokens = found.tokens.cpu()
                captions += [decode(own, self.vocabulary) for own in tokens.tolist()]
                parts.append(self._objects(rows, tokens, found))
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return CaptionScores(tuple(captions), loss, ObjectScores(**columns))

    def greedy(
        self, model: Captioner, paradigm: str, limit: int | None = None
    ) -> Iterator[tuple[Int[Tensor, " b"], Greedy]]:
        """Chunks of pictures, at most `limit` in all, with their greedy captions."""
        number = len(self.data.references) if limit is None else min(limit, len(self.data.references))
        context = context_at_test(paradigm)
        for rows in torch.arange(number).split(self.chunk):
            regions = model.regions(pictures_at(self.data, rows, self.numerics))
            yield rows, greedy(model, regions, context, self.max_words, self.names)

    def _loss(self, model: Captioner, paradigm: str) -> float:
        """Mean over all words of the split."""
        total = torch.zeros((), dtype=torch.float64, device=self.numerics.device)
        words = 0
        for index in torch.arange(len(self.data.picture)).split(self.chunk):
            rows, place = torch.unique(self.data.picture[index], return_inverse=True)
            tokens = trimmed(self.data.tokens[index]).to(self.numerics.device)
            real = real_words(tokens)
            regions = model.regions(pictures_at(self.data, rows, self.numerics))
            output = model(regions.take(place.to(self.numerics.device)), tokens, context_at_test(paradigm))
            total -= word_log_prob(output.log_prob, tokens, real).sum().double()
            words += int(real.sum())
        return float(total) / words

    def _objects(self, rows: Tensor, tokens: Tensor, found: Greedy) -> dict[str, np.ndarray]:
        """Scores of the objects of a chunk of pictures."""
        first, last = int(rows[0]), int(rows[-1])
        here = slice(*np.searchsorted(self.picture, [first, last + 1]))
        picture, category, covered = self.picture[here], self.category[here], self.coverage[here]
        own = picture - first
        probability = found.category_prob.masked_fill(~found.real[..., None], 0.0).double().cpu().numpy()
        alpha = found.alpha.double().cpu().numpy()
        probability = probability[own, :, category]  # (n, T)
        step = probability.argmax(axis=1)
        weights = alpha[own, step]  # (n, L)
        said = self.names.cpu()[tokens].any(dim=1).numpy()  # (B, C)
        at_focus = np.take_along_axis(covered, weights.argmax(axis=1)[:, None], axis=1)[:, 0]
        return {
            "picture": picture,
            "category": category,
            "a_z": (weights * covered).sum(axis=1),
            "s_y": probability[np.arange(len(step)), step],
            "step": step,
            "focus_hit": at_focus >= 0.5 * covered.max(axis=1),
            "mentioned": said[own, category],
            "area": covered.mean(axis=1),
        }


def category_names(task: CaptionTask) -> Float[Tensor, "V C"]:
    """1 where a word names a category."""
    names = torch.zeros(len(task.vocabulary), len(task.categories))
    words = (task.word_category >= 0).nonzero().squeeze(1)
    names[words, task.word_category[words].long()] = 1.0
    return names


def pictures_at(data: CaptionData, rows: Int[Tensor, " n"], numerics: Numerics) -> Tensor:
    """Pictures or features, as a model sees them, on the device."""
    return data.pictures.rows(rows, numerics.dtype).to(numerics.device)


def trimmed(tokens: Int[Tensor, "B T1"]) -> Int[Tensor, "B t1"]:
    """The same captions without the places at the end that are padding in all of them."""
    longest = int(real_words(tokens).sum(dim=1).max())
    return tokens[:, : longest + 1]
