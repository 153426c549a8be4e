"""One function per figure: arrays and tables in, a figure that shows itself in a notebook out.

The functions read nothing and train nothing, so a change of colour never costs a run. Every figure is drawn on
a white card of fixed size, readable on a light and on a dark page, with one colour, marker and line style per
paradigm throughout.
"""

from fcamlib.plots.captions import CaptionExample, caption_curves, caption_heatmaps, word_attention
from fcamlib.plots.cost import cost_over_segments
from fcamlib.plots.curves import learning_curves, saif_over_tau
from fcamlib.plots.folds import crossval_accuracy
from fcamlib.plots.gallery import attention_gallery
from fcamlib.plots.heatmaps import focus_prediction_heatmaps
from fcamlib.plots.incentives import fixed_focus_curves, incentive_over_alpha
from fcamlib.plots.look import PARADIGM_LABEL, PARADIGM_STYLE, PageFigure, ParadigmStyle, style
from fcamlib.plots.mosaics import sample_mosaics
from fcamlib.plots.saving import save
from fcamlib.plots.series import series_attention
from fcamlib.plots.studies import gain_heatmap, measures_over
from fcamlib.plots.summary import accuracy_saif_summary
from fcamlib.plots.theory import curvature, flow_curves, phase_portrait, speed_ratios
from fcamlib.plots.verdicts import verdict_matrix

__all__ = [
    "PARADIGM_LABEL",
    "PARADIGM_STYLE",
    "CaptionExample",
    "PageFigure",
    "ParadigmStyle",
    "accuracy_saif_summary",
    "attention_gallery",
    "caption_curves",
    "caption_heatmaps",
    "cost_over_segments",
    "crossval_accuracy",
    "curvature",
    "fixed_focus_curves",
    "flow_curves",
    "focus_prediction_heatmaps",
    "gain_heatmap",
    "incentive_over_alpha",
    "learning_curves",
    "measures_over",
    "phase_portrait",
    "saif_over_tau",
    "sample_mosaics",
    "save",
    "series_attention",
    "speed_ratios",
    "style",
    "verdict_matrix",
    "word_attention",
]
