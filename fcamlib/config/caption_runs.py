"""A captioning run: what its numbers depend on, and the parameters that people set for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from fcamlib.config.base import Device, Frozen, Precision, Seeds, StoredConfig, _as_names
from fcamlib.config.captions import CaptionsDataConfig, CocoConfig, ScenesConfig, captions_data
from fcamlib.errors import UserError, explain

CaptionParadigm = Literal["soft", "hard"]
CaptionSchedule = Literal["soft", "hard", "hybrid"]
CAPTION_SCHEDULES: tuple[CaptionSchedule, ...] = ("soft", "hard", "hybrid")
CaptionSchedules = Annotated[tuple[CaptionSchedule, ...], BeforeValidator(_as_names), Field(min_length=1)]
EncoderName = Literal["smallcnn", "features"]
StartName = Literal["zero", "learned", "mean"]
Credit = Literal["caption", "rest"]


class CaptionPhase(Frozen):
    """One stretch of training with one loss, a fresh optimiser (Adam) and a fresh baseline."""

    paradigm: CaptionParadigm = Field(description="soft, or hard by REINFORCE")
    epochs: int = Field(ge=1, le=100_000, description="passes over the training captions")
    encoder_learning_rate: float = Field(ge=0, le=100, description="of the encoder; without effect on features")
    decoder_learning_rate: float = Field(gt=0, le=100, description="of everything else")


class CaptionModelConfig(Frozen):
    """Sizes of encoder and decoder. The paper's are the defaults; source: arXiv 2307.13421, experiments on MSCOCO."""

    encoder: EncoderName = Field("features", description="smallcnn, trained from scratch, or frozen features")
    region_dim: int = Field(512, ge=1, le=65_536, description="numbers of a region of smallcnn")
    attention_dim: int = Field(256, ge=1, le=65_536, description="units of additive attention")
    embedding_dim: int = Field(512, ge=1, le=65_536, description="numbers of a word's vector")
    hidden_dim: int = Field(512, ge=1, le=65_536, description="units of the LSTM")
    state_sees: Literal["region", "word"] = Field(
        "region", description="LSTM's input: the word before and the attended region, or that word alone"
    )
    start_state: StartName = Field("mean", description="LSTM's first state: zero, learned, or from the mean region")


class CaptionTrainingConfig(Frozen):
    """How a captioning model is trained and read out, and how the numbers are computed."""

    batch_size: int = Field(100, ge=1, description="captions per step")
    gradient_clip: float = Field(5.0, gt=0, description="largest norm of the gradient of all weights")
    teacher_forcing: float = Field(
        1.0, ge=0, le=1, description="probability that the word before is the caption's own, not the model's guess"
    )
    baseline_momentum: float = Field(0.9, ge=0, lt=1, description="of the moving average of rewards, subtracted")
    credit: Credit = Field(
        "caption", description="rewards a region with the log probability of the caption, or of its rest"
    )
    entropy_weight: float = Field(0.0, ge=0, le=100, description="weight of attention's entropy in the hard loss")
    max_words: int = Field(15, ge=1, le=1_000, description="words after which decoding stops")
    precision: Precision = Field("float32", description="floating-point format")
    threads: int = Field(1, ge=1, le=256, description="CPU threads")
    device: Device = Field("auto", description="auto: CUDA when present, except in float64")
    evaluate_every: int = Field(1, ge=1, description="epochs between evaluations on validation and test")


class CaptionRunConfig(StoredConfig):
    """Everything that the numbers of a captioning run depend on."""

    kind: Literal["captions"] = "captions"
    data: CaptionsDataConfig
    model: CaptionModelConfig
    phases: tuple[CaptionPhase, ...] = Field(min_length=1)
    training: CaptionTrainingConfig = CaptionTrainingConfig()
    seed: int = Field(ge=0, le=2**31 - 1, description="draws weights, batches and regions; of scenes also the pictures")

    @property
    def paradigm(self) -> str:
        """soft, hard, "hybrid" for soft then hard, otherwise joined by "+"."""
        names = list(dict.fromkeys(phase.paradigm for phase in self.phases))
        return names[0] if len(names) == 1 else "hybrid" if names == ["soft", "hard"] else "+".join(names)

    @property
    def prefix(self) -> CaptionRunConfig | None:
        """The run of all phases but the last, whose weights this one goes on from; None of a single phase."""
        return self.model_copy(update={"phases": self.phases[:-1]}) if len(self.phases) > 1 else None

    @property
    def name(self) -> str:
        """Readable name with the first 8 hex digits of the config's hash."""
        return f"captions-{self.data.slug}-{self.paradigm}-s{self.seed}-{self.digest()[:8]}"

    def portable(self) -> CaptionRunConfig:
        """The same with the data source without its path."""
        return self.model_copy(update={"data": self.data.portable()})


_SCENES: dict[str, Any] = {  # chosen on validation pictures, so that a run takes seconds
    "num_train": 150,
    "num_validation": 50,
    "num_test": 100,
    "max_objects": 1,
    "image_size": 56,
    "encoder": "smallcnn",
    "region_dim": 32,
    "attention_dim": 16,
    "embedding_dim": 32,
    "hidden_dim": 96,
    "start_state": "zero",
    "state_sees": "word",
    "epochs": 9,
    "switch_epoch": 6,
    "encoder_learning_rate": 6e-3,
    "decoder_learning_rate": 6e-3,
    "later_encoder_learning_rate": 1e-3,
    "later_decoder_learning_rate": 1e-3,
    "batch_size": 20,
    "credit": "rest",
    "precision": "float64",
}
_COCO: dict[str, Any] = {  # the paper's, as far as its public scripts state them
    "num_validation": 5_000,
    "image_size": 224,
    "encoder": "features",
    "region_dim": 512,
    "attention_dim": 256,
    "embedding_dim": 512,
    "hidden_dim": 512,
    "start_state": "mean",
    "state_sees": "region",
    "epochs": 20,
    "switch_epoch": 10,
    "encoder_learning_rate": 1e-5,
    "decoder_learning_rate": 1e-3,
    "later_encoder_learning_rate": 1e-7,
    "later_decoder_learning_rate": 1e-5,
    "batch_size": 100,
    "credit": "caption",
    "precision": "float32",
}
CAPTION_DEFAULTS = {"scenes": _SCENES, "coco": _COCO}


class CaptionExperiment(Frozen):
    """A grid of captioning runs, as people set it: every paradigm with every seed.

    0, "" and -1 mean the default of the data source. All paradigms have two phases of the same lengths and learning
    rates, each with a fresh optimiser, and differ in nothing but the loss: soft then soft, hard then hard, and the
    hybrid soft then hard. The first phase of soft attention and of the hybrid is one and the same.
    """

    dataset: str = Field("scenes", description="scenes, coco or coco:PATH")
    num_train: int = Field(0, ge=0, le=1_000_000, description="training pictures; of coco by default all")
    num_validation: int = Field(0, ge=0, le=1_000_000, description="validation pictures, held out from training")
    num_test: int = Field(0, ge=0, le=1_000_000, description="test pictures; of coco by default all")
    max_objects: int = Field(0, ge=0, le=3, description="scenes: most objects of a picture")
    image_size: int = Field(0, ge=0, le=1_024, description="side of a picture in pixels")
    weights: str = Field("", description="coco: file of VGG19's weights; empty: torchvision's ImageNet weights")
    words: str = Field("", description="coco: YAML file with more words for the categories")
    paradigms: CaptionSchedules = Field(CAPTION_SCHEDULES, description="any of soft, hard, hybrid (soft, then hard)")
    seeds: Seeds = Field((0,), description="each draws weights, batches and regions; of scenes also the pictures")
    epochs: int = Field(0, ge=0, le=100_000, description="epochs of training")
    switch_epoch: int = Field(0, ge=0, description="epochs of the first phase")
    encoder_learning_rate: float = Field(0, ge=0, le=100, description="of the encoder in the first phase")
    decoder_learning_rate: float = Field(0, ge=0, le=100, description="of the decoder in the first phase")
    later_encoder_learning_rate: float = Field(0, ge=0, le=100, description="of the encoder in the second phase")
    later_decoder_learning_rate: float = Field(0, ge=0, le=100, description="of the decoder in the second phase")
    batch_size: int = Field(0, ge=0, description="captions per step")
    gradient_clip: float = Field(5.0, gt=0, description="largest norm of the gradient of all weights")
    teacher_forcing: float = Field(
        1.0, ge=0, le=1, description="probability that the word before is the caption's own, not the model's guess"
    )
    baseline_momentum: float = Field(0.9, ge=0, lt=1, description="of REINFORCE's moving average, which is subtracted")
    credit: Literal["", "caption", "rest"] = Field(
        "", description="rewards of a region: the whole caption, or its rest"
    )
    entropy_weight: float = Field(0.0, ge=0, le=100, description="weight of attention's entropy in the hard loss")
    encoder: Literal["", "smallcnn", "features"] = Field("", description="smallcnn, or frozen features")
    region_dim: int = Field(0, ge=0, le=65_536, description="numbers of a region of smallcnn")
    attention_dim: int = Field(0, ge=0, le=65_536, description="units of additive attention")
    embedding_dim: int = Field(0, ge=0, le=65_536, description="numbers of a word's vector")
    hidden_dim: int = Field(0, ge=0, le=65_536, description="units of the LSTM")
    start_state: Literal["", "zero", "learned", "mean"] = Field("", description="LSTM's first state")
    state_sees: Literal["", "region", "word"] = Field(
        "", description="LSTM's input: word and region, or the word alone"
    )
    max_words: int = Field(15, ge=1, le=1_000, description="words after which decoding stops")
    precision: Literal["", Precision] = Field("", description="float64, float32, tfloat32 (on a GPU) or bfloat16")
    threads: int = Field(1, ge=1, le=256, description="CPU threads")
    device: Device = Field("auto", description="auto (CUDA when present, except in float64), cpu or cuda")
    evaluate_every: int = Field(1, ge=1, description="epochs between evaluations")

    @model_validator(mode="after")
    def _check(self) -> CaptionExperiment:
        if self.kind not in CAPTION_DEFAULTS or (self.kind == "scenes" and self.dataset != "scenes"):
            raise ValueError(f"dataset='{self.dataset}' is unknown: choose scenes, coco or coco:PATH")
        for name in ("max_objects", "weights", "words"):
            if (value := getattr(self, name)) and (name == "max_objects") != (self.kind == "scenes"):
                raise ValueError(f"{name}={value} does not belong to dataset='{self.dataset}': leave it out")
        for name in ("seeds", "paradigms"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name}={','.join(map(str, values))} names a value twice: give each once")
        epochs, switch = self._filled("epochs"), self._filled("switch_epoch")
        if not 0 < switch < epochs:
            raise ValueError(
                f"switch_epoch={switch} does not lie inside epochs={epochs}: give each phase at least one epoch"
            )
        return self

    @property
    def kind(self) -> str:
        """The data source's name without a path."""
        return self.dataset.split(":", 1)[0]

    def configs(self) -> list[CaptionRunConfig]:
        """The runs of the grid, paradigm by paradigm, seed by seed."""
        data = self._data()
        model = CaptionModelConfig(**{name: self._filled(name) for name in CaptionModelConfig.model_fields})
        training = CaptionTrainingConfig(**{name: self._filled(name) for name in CaptionTrainingConfig.model_fields})
        return [
            CaptionRunConfig(data=data, model=model, phases=self._phases(paradigm), training=training, seed=seed)
            for paradigm in self.paradigms
            for seed in self.seeds
        ]

    def _data(self) -> ScenesConfig | CocoConfig:
        names = ("num_train", "num_validation", "num_test", "max_objects")
        given = {name: self._filled(name) for name in (*names, "image_size", "weights", "words")}
        given |= {"features": "vgg19"} if self._filled("encoder") == "features" else {}
        known = (ScenesConfig if self.kind == "scenes" else CocoConfig).model_fields
        return captions_data(self.dataset, {name: value for name, value in given.items() if value and name in known})

    def _phases(self, paradigm: CaptionSchedule) -> tuple[CaptionPhase, ...]:
        switch = self._filled("switch_epoch")
        return tuple(
            CaptionPhase(
                paradigm=loss,
                epochs=epochs,
                encoder_learning_rate=self._filled(f"{prefix}encoder_learning_rate"),
                decoder_learning_rate=self._filled(f"{prefix}decoder_learning_rate"),
            )
            for loss, epochs, prefix in zip(
                LOSSES[paradigm], (switch, self._filled("epochs") - switch), ("", "later_"), strict=True
            )
        )

    def _filled(self, name: str) -> Any:
        """The user's value of a field, or its data source's default where it has one."""
        return getattr(self, name) or CAPTION_DEFAULTS[self.kind].get(name, getattr(self, name))


LOSSES: dict[CaptionSchedule, tuple[CaptionParadigm, CaptionParadigm]] = {
    "soft": ("soft", "soft"),
    "hard": ("hard", "hard"),
    "hybrid": ("soft", "hard"),
}


def caption_experiment(parameters: Mapping[str, Any]) -> CaptionExperiment:
    """Parameters as text or values -> a checked experiment; the first fault is one sentence (`UserError`)."""
    try:
        return CaptionExperiment.model_validate(dict(parameters))
    except ValidationError as error:
        raise UserError(explain(error, CaptionExperiment)) from None
