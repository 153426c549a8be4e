"""Configurations: what defines a run, and the parameters that people set.

`RunConfig` holds everything that a run's numbers depend on; its hash names the run in the store.
`Experiment`, and its counterparts for text, series and bags, are the flat sets of parameters shared by the notebooks,
the command line and the profiles; they coerce what papermill and a shell deliver as text, fill in each data source's
defaults and yield the runs. Nothing here imports torch, so that a command line or a pipeline starts at once.
"""

from fcamlib.config.bags import BAGS_NETWORKS, BagsConfig, BagsExperiment
from fcamlib.config.base import (
    SCHEDULES,
    Device,
    Frozen,
    MemoryLayout,
    Names,
    Numbers,
    Optimizer,
    Paradigm,
    Precision,
    Rates,
    Schedule,
    Schedules,
    Seeds,
    StoredConfig,
)
from fcamlib.config.caption_runs import CaptionExperiment, CaptionRunConfig, caption_experiment
from fcamlib.config.course import CourseConfig
from fcamlib.config.cross_validation import METHODS, REFERENCES, CrossValidationConfig
from fcamlib.config.experiments import all_datasets, experiment, experiment_class
from fcamlib.config.fixed_focus import FixedFocusConfig, FixedFocusExperiment, fixed_focus_experiment
from fcamlib.config.grid import TaskExperiment
from fcamlib.config.orthogonal import OrthogonalConfig
from fcamlib.config.pictures import PICTURE_NETWORKS, SOURCE_DEFAULTS, Experiment, MosaicsConfig
from fcamlib.config.runs import EXPERIMENTS, RunConfig
from fcamlib.config.series import SERIES_NETWORKS, SeriesConfig, SeriesExperiment
from fcamlib.config.sources import TaskConfig, portable_source, short_source, source_fingerprint, source_path
from fcamlib.config.stored import stored_class
from fcamlib.config.study import RECORDED_STUDIES, AblationExperiment, StudyConfig, StudyExperiment, study_experiment
from fcamlib.config.text import TEXT_NETWORKS, TextConfig, TextExperiment
from fcamlib.config.training import ModelConfig, Phase, TrainingConfig

# What `fcamlib.networks` holds, known without torch.
NETWORKS = tuple(dict.fromkeys((*PICTURE_NETWORKS, *TEXT_NETWORKS, *SERIES_NETWORKS, *BAGS_NETWORKS)))

__all__ = [
    "BAGS_NETWORKS",
    "EXPERIMENTS",
    "METHODS",
    "NETWORKS",
    "PICTURE_NETWORKS",
    "RECORDED_STUDIES",
    "REFERENCES",
    "SCHEDULES",
    "SERIES_NETWORKS",
    "SOURCE_DEFAULTS",
    "TEXT_NETWORKS",
    "AblationExperiment",
    "BagsConfig",
    "BagsExperiment",
    "CaptionExperiment",
    "CaptionRunConfig",
    "CourseConfig",
    "CrossValidationConfig",
    "Device",
    "Experiment",
    "FixedFocusConfig",
    "FixedFocusExperiment",
    "Frozen",
    "MemoryLayout",
    "ModelConfig",
    "MosaicsConfig",
    "Names",
    "Numbers",
    "Optimizer",
    "OrthogonalConfig",
    "Paradigm",
    "Phase",
    "Precision",
    "Rates",
    "RunConfig",
    "Schedule",
    "Schedules",
    "Seeds",
    "SeriesConfig",
    "SeriesExperiment",
    "StoredConfig",
    "StudyConfig",
    "StudyExperiment",
    "TaskConfig",
    "TaskExperiment",
    "TextConfig",
    "TextExperiment",
    "TrainingConfig",
    "all_datasets",
    "caption_experiment",
    "experiment",
    "experiment_class",
    "fixed_focus_experiment",
    "portable_source",
    "short_source",
    "source_fingerprint",
    "source_path",
    "stored_class",
    "study_experiment",
]
