"""Captioning: configs of its results, and user parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fcamlib.config.defaults import CAPTIONS
from fcamlib.config.parameters import TaskParameters, require_two_phases
from fcamlib.config.results import BatchSize, Computing, Config, Epochs, Layer, Rate, RateOrNone, Seed, Seeds, Share
from fcamlib.config.tasks import Frozen, Some, Words, task_of
from fcamlib.paradigms import SCHEDULES


class CaptionPhase(Frozen):
    """A phase of training with one loss, a fresh optimiser (Adam) and a fresh baseline."""

    paradigm: Literal["soft", "hard"] = Field(description="soft, or hard by REINFORCE")
    epochs: Epochs = Field(description="passes over the training captions")
    encoder_learning_rate: RateOrNone = Field(description="of the encoder; unused with frozen features")
    decoder_learning_rate: Rate = Field(description="of all other weights")

    @property
    def steps(self) -> int:
        """Epochs of the phase."""
        return self.epochs


class CaptionModel(Frozen):
    """Sizes of encoder and decoder; the defaults are the paper's. Source: arXiv 2307.13421, experiments on MSCOCO."""

    encoder: Literal["smallcnn", "features"] = Field("features", description="smallcnn, or frozen features")
    region_dim: Layer = Field(512, description="features of a smallcnn region")
    attention_dim: Layer = Field(256, description="units of additive attention")
    embedding_dim: Layer = Field(512, description="features of a word")
    hidden_dim: Layer = Field(512, description="units of the LSTM")
    state_sees: Literal["region", "word"] = Field("region", description="LSTM input: word and region, or only the word")
    start_state: Literal["zero", "mean"] = Field("mean", description="initial state; mean: of the regions")


class CaptionTraining(Computing):
    """Training and decoding of a captioning model."""

    batch_size: BatchSize = Field(100, description="captions per step")
    gradient_clip: float = Field(5.0, gt=0, description="largest norm of the gradient of all weights")
    teacher_forcing: Share = Field(1.0, description="probability that a step reads the given word")
    baseline_momentum: float = Field(0.9, ge=0, lt=1, description="of the reward baseline, a moving average")
    credit: Literal["caption", "rest"] = Field("caption", description="a region's reward: whole caption or rest of it")
    entropy_weight: RateOrNone = Field(0.0, description="weight of attention's entropy in the hard loss")
    max_words: Words = Field(15, description="most words of a decoded caption")


class CaptionRun(Config):
    """One training of a captioning model."""

    compute: ClassVar[str] = "fcamlib.captioning.training:compute"
    label: ClassVar[str] = "captions-{0.data.slug}-{0.paradigm}-s{0.seed}"
    group: ClassVar[str] = "captions"
    kind: Literal["captions"] = "captions"
    data: Annotated[Any, task_of("caption")]
    model: CaptionModel
    phases: Some[CaptionPhase]
    training: CaptionTraining = CaptionTraining()
    seed: Seed = Field(description="draws weights, batches and regions, and the pictures of scenes")

    @property
    def paradigm(self) -> str:
        """Name of the schedule; two phases with the same loss are named once."""
        names = dict.fromkeys(phase.paradigm for phase in self.phases)
        return "hybrid" if tuple(names) == SCHEDULES["hybrid"].paradigms else "+".join(names)

    @property
    def steps(self) -> int:
        """Epochs of all phases."""
        return sum(phase.epochs for phase in self.phases)

    @property
    def prefix(self) -> CaptionRun | None:
        """The run of all phases but the last, from whose weights this one continues; None for a single phase."""
        return self.model_copy(update={"phases": self.phases[:-1]}) if len(self.phases) > 1 else None


class CaptionGrid(TaskParameters, CaptionTraining, CaptionModel):
    """A grid of captioning runs: every paradigm with every seed.

    All paradigms have two phases with the same lengths and learning rates, each with a fresh optimiser, and differ
    only in the loss: soft then soft, hard then hard, and for the hybrid soft then hard.
    """

    command: ClassVar[str] = "caption"
    usual: ClassVar[str] = "scenes"
    own_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = CAPTIONS

    paradigms: Some[Literal["soft", "hard", "hybrid"]] = Field(
        ("soft", "hard", "hybrid"), description="any of soft, hard, hybrid (soft, then hard)"
    )
    seeds: Seeds = Field((0,), description="each draws weights, batches and regions, and the pictures of scenes")
    epochs: Epochs = Field(20, description="epochs of training")
    switch_epoch: int = Field(10, ge=0, description="epochs of the first phase")
    encoder_learning_rate: RateOrNone = Field(1e-5, description="of the encoder in the first phase")
    decoder_learning_rate: Rate = Field(1e-3, description="of the decoder in the first phase")
    later_encoder_learning_rate: RateOrNone = Field(1e-7, description="of the encoder in the second phase")
    later_decoder_learning_rate: Rate = Field(1e-5, description="of the decoder in the second phase")

    @classmethod
    def _task_fields(cls, fields: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        frozen = own.get("encoder", "features") == "features"
        return fields | ({"features": fields.get("features") or "vgg19"} if frozen else {})

    @model_validator(mode="after")
    def _check_switch(self) -> Any:
        require_two_phases(self.switch_epoch, self.epochs)
        return self

    def configs(self) -> list[CaptionRun]:
        """The runs, paradigm by paradigm, seed by seed."""
        model, training = self.part(CaptionModel), self.part(CaptionTraining)
        return [
            CaptionRun(data=self.task, model=model, phases=self._phases(paradigm), training=training, seed=seed)
            for paradigm in self.paradigms
            for seed in self.seeds
        ]

    def _phases(self, paradigm: str) -> tuple[CaptionPhase, CaptionPhase]:
        first, second = SCHEDULES[paradigm].paradigms if paradigm in SCHEDULES else (paradigm, paradigm)
        later = {
            "epochs": self.epochs - self.switch_epoch,
            "encoder_learning_rate": self.later_encoder_learning_rate,
            "decoder_learning_rate": self.later_decoder_learning_rate,
        }
        return (
            self.part(CaptionPhase, paradigm=first, epochs=self.switch_epoch),
            self.part(CaptionPhase, paradigm=second, **later),
        )
