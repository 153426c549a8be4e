"""Repeated cross-validation on a user's bags: what its numbers depend on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fcamlib.config.base import StoredConfig
from fcamlib.config.sources import portable_source, short_source

Method = Literal["soft", "hard", "lvml", "hybrid", "abmil", "gated-abmil"]
REFERENCES: tuple[Method, ...] = ("abmil", "gated-abmil")  # from the library torchmil
METHODS: tuple[Method, ...] = ("soft", "hard", "lvml", "hybrid", *REFERENCES)


class CrossValidationConfig(StoredConfig):
    """Every method on every fold of every repeat, all with the same splits, encoder, optimiser and selection.

    On each fold each learning rate trains from the same weights; the one whose best epoch has the highest validation
    accuracy (then the lowest validation loss) is kept, with the weights of that epoch.
    """

    kind: Literal["cross-validation"] = "cross-validation"
    source: str = Field(description="bags:PATH")
    fingerprint: str = Field(description="sha256 of the file")
    methods: tuple[Method, ...] = Field(min_length=1, description="what is compared")
    repeats: int = Field(ge=1, le=1_000, description="repeated cross-validations")
    folds: int = Field(ge=2, le=1_000, description="folds of each")
    validation_share: float = Field(0.2, gt=0, lt=1, description="share of the training bags held out")
    epochs: int = Field(ge=2, description="epochs of each candidate; the hybrid's first half is soft")
    learning_rates: tuple[float, ...] = Field(
        min_length=1, description="learning rates of Adam, compared on validation"
    )
    batch_size: int = Field(ge=1, description="bags per step")
    threads: int = Field(1, ge=1, le=256, description="CPU threads")

    @property
    def name(self) -> str:
        """Readable name with the first 8 hex digits of the config's hash."""
        return f"{short_source(self.source)}-cv{self.repeats}x{self.folds}-{self.digest()[:8]}"

    def portable(self) -> CrossValidationConfig:
        """The same with the data source without its path."""
        return self.model_copy(update={"source": portable_source(self.source)})
