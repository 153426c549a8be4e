"""Text: the task, and the parameters that people set for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from fcamlib.config.base import SCHEDULES, TextSchedules
from fcamlib.config.grid import Defaults, TaskExperiment
from fcamlib.config.sources import TaskConfig, short_source
from fcamlib.config.training import ModelConfig

TEXT_NETWORKS = ("text200", "text50", "mlp", "linear")
TEXT_ENCODERS = ("embedding", "transformer")  # what `fcamlib.encoders` holds for words, known without torch

LabelRule = Literal["majority", "first"]
RationaleRule = Literal["union", "majority", "first"]


class TextConfig(TaskConfig):
    """A text task: which posts, and how they become words, labels and rationales."""

    source: str = Field(description="keywords, hatexplain, hatexplain:PATH or text:PATH")
    fingerprint: str = Field("", description="sha256 over the contents of the source's files")
    num_train: int = Field(0, ge=0, description="training posts; 0 means all of the source")
    num_validation: int = Field(0, ge=0, description="validation posts; 0 means all of the source")
    num_test: int = Field(0, ge=0, description="test posts; 0 means all of the source")
    max_tokens: int = Field(512, ge=4, le=100_000, description="words of a post that are kept, from its start")
    label: LabelRule = Field("majority", description="HateXplain: the annotators' majority or the first one's")
    rationale: RationaleRule = Field("union", description="HateXplain: words that any, most or the first one marked")
    min_count: int = Field(1, ge=1, description="occurrences that a word of the vocabulary needs")
    paper_vocabulary: bool = Field(False, description="take the vocabulary from all splits, as the public scripts do")
    label_noise: float = Field(0.0, ge=0, lt=1, description="share of training labels changed to another class")

    @property
    def slug(self) -> str:
        """The task in the name of a run."""
        return short_source(self.source) + (f"-n{self.num_train}" if self.num_train else "")

    @property
    def described(self) -> str:
        """Size of the task in words."""
        return f"{self.num_train:,} posts" if self.num_train else "all posts"

    def current_fingerprint(self) -> str:
        """sha256 over the contents of the source's files; empty for generated posts."""
        return text_fingerprint(self.source)


def text_files(source: str) -> dict[str, Path]:
    """The files of a text source by name; HateXplain's are downloaded where they are missing. None for `keywords`."""
    if source.startswith("hatexplain"):
        from fcamlib.data.hatexplain import hatexplain_files

        return hatexplain_files(source)
    if source.startswith("text:"):
        from fcamlib.data.posts import jsonl_files

        return jsonl_files(source)
    return {}


def text_fingerprint(source: str) -> str:
    """sha256 over the names and contents of a source's files; empty for generated posts."""
    from fcamlib.data.files import joint_hash

    files = text_files(source)
    return joint_hash(files if len(files) > 1 else dict(zip([""], files.values(), strict=False)))


_POSTS: dict[str, Any] = {
    "num_train": 0,
    "num_validation": 0,
    "num_test": 0,
    "max_tokens": 512,
    "encoder": "embedding",
    "epochs": 50,
    "learning_rates": (0.1,),
    "hard_learning_rates": (0.1,),
    "batch_size": 256,
    "precision": "float32",
    "focus_network": "text200",
    "classification_network": "text200",
}


class TextExperiment(TaskExperiment):
    """A grid of runs on text, as people set it."""

    defaults: ClassVar[Defaults] = {
        "keywords": {
            **_POSTS,
            "num_train": 500,
            "num_validation": 200,
            "num_test": 500,
            "max_tokens": 12,
            "epochs": 8,
            "learning_rates": (0.03,),
            "hard_learning_rates": (0.03,),
            "batch_size": 50,
            "precision": "float64",
        },
        "hatexplain": _POSTS,
        "text": _POSTS,
    }
    with_path: ClassVar[dict[str, str]] = {"text": "file or folder"}
    path_optional: ClassVar[dict[str, str]] = {"hatexplain": "folder"}
    networks: ClassVar[tuple[str, ...]] = TEXT_NETWORKS

    dataset: str = Field("keywords", description="keywords, hatexplain, hatexplain:PATH, or text:PATH")
    num_train: int = Field(0, ge=0, le=100_000_000, description="training posts; default all, 500 of keywords")
    num_validation: int = Field(0, ge=0, le=100_000_000, description="validation posts; default all, 200 of keywords")
    num_test: int = Field(0, ge=0, le=100_000_000, description="test posts; default all, 500 of keywords")
    max_tokens: int = Field(0, ge=0, le=100_000, description="words of a post that are kept")
    label: LabelRule = Field("majority", description="HateXplain's labels: majority or first annotator")
    rationale: RationaleRule = Field("union", description="HateXplain's rationales: union, majority or first annotator")
    min_count: int = Field(1, ge=1, description="occurrences that a word of the vocabulary needs")
    paper_vocabulary: bool = Field(False, description="take the vocabulary from all splits, as the public scripts do")
    label_noise: float = Field(0.0, ge=0, lt=1, description="share of training labels changed to another class")
    paradigms: TextSchedules = Field(SCHEDULES, description="any of soft, hard, lvml, hybrid, logit_mixture")
    encoder: Literal["", "embedding", "transformer"] = Field("", description="embedding or transformer")
    batch_size: int = Field(0, ge=0, description="posts per step")

    @model_validator(mode="after")
    def _check_text(self) -> TextExperiment:
        if self.kind != "hatexplain":
            for name, usual in (("label", "majority"), ("rationale", "union")):
                if getattr(self, name) != usual:
                    raise ValueError(
                        f"{name}={getattr(self, name)} does not belong to dataset='{self.dataset}', whose posts have "
                        "no annotators: leave it out"
                    )
        if 0 < self.max_tokens < 4:
            raise ValueError(f"max_tokens={self.max_tokens} is too short: give at least 4 words")
        return self

    def _data(self) -> TextConfig:
        sizes = {name: self._filled(name) for name in ("num_train", "num_validation", "num_test", "max_tokens")}
        return TextConfig(
            source=self.dataset,
            fingerprint=text_fingerprint(self.dataset),
            label=self.label,
            rationale=self.rationale,
            min_count=self.min_count,
            paper_vocabulary=self.paper_vocabulary,
            label_noise=self.label_noise,
            **sizes,
        )

    def _model(self) -> ModelConfig:
        encoder = self._filled("encoder")
        focus = self.focus_network or ("text50" if encoder == "transformer" else self._filled("focus_network"))
        return super()._model().model_copy(update={"encoder": encoder, "focus": focus})
