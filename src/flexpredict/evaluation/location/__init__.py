"""`flexpredict evaluate location`: how much features depend on position, and what shifts do to them."""

from dataclasses import dataclass, field

from flexpredict.data.arguments import ImagesLike
from flexpredict.evaluation.results import Result, ResultPlaces
from flexpredict.features.arguments import FrozenFeatures
from flexpredict.settings.parameters import takes_fields_of
from flexpredict.settings.ranges import ranged


@dataclass(frozen=True, kw_only=True)
class LocationSettings(FrozenFeatures, ResultPlaces):
    """Settings of `evaluate_location`.

    Args:
        data: images to fit on.
        test: images to test on (default: one half of data).
        shifts: largest shift in patches (default: 3, but at most half the grid).
        images: largest number of images to fit on, and to test on, but at least one of each class (default: all).
        seed: seed of the halves and of the images held out.
    """

    data: ImagesLike = field(kw_only=False)
    test: ImagesLike | None = field(default=None, kw_only=False)
    shifts: int | None = ranged(None, least=0)
    images: int | None = ranged(None, least=1)
    seed: int = ranged(0, least=0)


@takes_fields_of(LocationSettings)
def evaluate_location(asked: LocationSettings) -> Result:
    """Measure how much features depend on the position of a patch, and what shifts of the image do to them.

    The location share is the part of the variance of features that position explains. A linear regression predicts
    row and column from single patches. Test images are shifted by fractions of a patch and by whole patches: how
    far do pooled features move, and how much accuracy does a linear probe lose? Images need no labels, but without
    labels there are no accuracies.
    """
    from flexpredict.evaluation.location.evaluation import measure_location

    space = asked.open_workspace()
    sources = space.open_source(asked.data), None if asked.test is None else space.open_source(asked.test)
    result = measure_location(space, *sources, asked, shifts=asked.shifts, images=asked.images, seed=asked.seed)
    asked.save(result, space.fabric)
    return result
