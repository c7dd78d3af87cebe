"""DAVIS: segments the objects of a video by carrying the masks of its first frame from patch to similar patch."""

from flexpredict.evaluation.davis.evaluation import evaluate_davis, score_masks

__all__ = ["evaluate_davis", "score_masks"]
