"""One function per figure: arrays and tables in, a figure that shows itself in a notebook out.

The functions read nothing and train nothing, so a change of colour never costs a run. Every figure is drawn on
a white card of fixed size, with one colour, marker and line style per paradigm throughout (`fcamlib.paradigms`).
`show` saves a figure and displays it with the line how it was made.
"""

from fcamlib.plots.curves import (
    caption_curves,
    cost_over_segments,
    curvature,
    fixed_focus_curves,
    flow_curves,
    gain_over_switch,
    incentive_over_alpha,
    learning_curves,
    measures_over,
    phase_portrait,
    saif_over_tau,
    speed_ratios,
)
from fcamlib.plots.estimates import accuracy_saif_summary, crossval_accuracy
from fcamlib.plots.heatmaps import caption_heatmaps, focus_prediction_heatmaps, gain_heatmap
from fcamlib.plots.look import PageFigure, how_made, save, show, style
from fcamlib.plots.pictures import attention_gallery, sample_mosaics
from fcamlib.plots.sequences import CaptionExample, series_attention, word_attention
