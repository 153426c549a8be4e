"""What a pass over training data gives: running means of its measures, and where its loss stopped being finite."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fcamlib.evaluation import BatchScores
from fcamlib.metrics import SAIF_THRESHOLD

EPOCH_MEASURES = ("loss", "accuracy", "focus_accuracy", "saif")  # of each split, in the history
EVALUATION_MEASURES = (*EPOCH_MEASURES, "a_z", "a_z_high")  # of validation and test data


@dataclass(frozen=True)
class PassResult:
    """Measures of one pass over the training data, taken before each step."""

    measures: dict[str, float]
    bad_step: int  # number from 1 of the first step whose loss was NaN or infinite; 0 where none was

    @classmethod
    def of(cls, meter: Meter, losses: list[Tensor]) -> PassResult:
        """From the loss of each step, read back from the device at once."""
        finite = torch.isfinite(torch.stack(losses)).cpu()
        bad = 0 if bool(finite.all()) else int((~finite).nonzero()[0]) + 1
        return cls(meter.means(), bad)


class Meter:
    """Running means of an epoch's scores, kept on the device; those of the focus where the foreground is known."""

    def __init__(self, device: torch.device) -> None:
        self.total = torch.zeros(5, dtype=torch.float64, device=device)
        self.count = 0

    def add(self, scores: BatchScores) -> None:
        known = scores.has_foreground
        strong = (scores.a_z > SAIF_THRESHOLD) & (scores.s_y > SAIF_THRESHOLD)
        columns = (scores.loss, scores.prediction_hit, scores.focus_hit & known, strong & known, known)
        self.total += torch.stack([column.double().sum() for column in columns])
        self.count += len(scores.loss)

    def means(self) -> dict[str, float]:
        *totals, known = self.total.tolist()
        counts = [self.count, self.count, known, known]
        measures = zip(EPOCH_MEASURES, totals, counts, strict=True)
        return {name: total / count for name, total, count in measures if count}
