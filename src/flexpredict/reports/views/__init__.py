"""What a model sees, as data for the page: features, predictions and positions to explore, and pictures."""

from flexpredict.reports.views.looking import Views, look_into
from flexpredict.reports.views.stored import stored_views

__all__ = ["Views", "look_into", "stored_views"]
