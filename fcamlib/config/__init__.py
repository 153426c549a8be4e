"""Configurations: what defines a result, and the parameters that people set; nothing here imports torch."""

import sys

from fcamlib.config.defaults import *  # noqa: F403
from fcamlib.config.defaults import STUDIES
from fcamlib.config.parameters import *  # noqa: F403
from fcamlib.config.parameters import Ablation, CaptionGrid, CostParameters, FlowParameters, Grid, StudyGrid, SweepGrid
from fcamlib.config.results import *  # noqa: F403
from fcamlib.config.results import (
    CaptionModel,
    CaptionRun,
    CaptionTraining,
    Config,
    CrossValidation,
    Model,
    Run,
    Study,
    Sweep,
    Training,
    kind_of,
)
from fcamlib.config.sources import *  # noqa: F403
from fcamlib.config.tasks import *  # noqa: F403
from fcamlib.config.tasks import Bags, Coco, Mosaics, Orthogonal, Scenes, Series, Task, Text

# Former names and modules, to be removed when nothing uses them.
RunConfig = Run
CaptionRunConfig = CaptionRun
FixedFocusConfig = Sweep
StudyConfig = Study
CrossValidationConfig = CrossValidation
StoredConfig = Config
MosaicsConfig = Mosaics
TextConfig = Text
SeriesConfig = Series
BagsConfig = Bags
OrthogonalConfig = Orthogonal
ScenesConfig = Scenes
CocoConfig = Coco
TaskConfig = Task
ModelConfig = Model
TrainingConfig = Training
CaptionModelConfig = CaptionModel
CaptionTrainingConfig = CaptionTraining
Experiment = Grid
TaskExperiment = Grid
CaptionExperiment = CaptionGrid
FixedFocusExperiment = SweepGrid
StudyExperiment = StudyGrid
AblationExperiment = Ablation
FlowExperiment = FlowParameters
CostExperiment = CostParameters
experiment = Grid.of
caption_experiment = CaptionGrid.of
fixed_focus_experiment = SweepGrid.of
study_experiment = StudyGrid.of
stored_class = kind_of
RECORDED_STUDIES = STUDIES
CAPTION_SCHEDULES = ("soft", "hard", "hybrid")
for _former in ("base", "caption_runs", "captions", "cost", "fixed_focus", "flow"):  # which notebooks import
    sys.modules[f"{__name__}.{_former}"] = sys.modules[__name__]
