"""Location: what features tell of where a patch is, and what shifts of the image do to them."""

from flexpredict.evaluation.location.evaluation import evaluate_location
from flexpredict.evaluation.location.tables import print_location

__all__ = ["evaluate_location", "print_location"]
