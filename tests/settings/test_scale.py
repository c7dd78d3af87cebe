"""Which defaults a run has."""

import pytest

from flexpredict.settings.recipe import Recipe
from flexpredict.settings.scale import SMALL_RUN, scale_of


@pytest.mark.parametrize(
    ("recipe", "images", "scale"),
    [
        (Recipe(), SMALL_RUN - 1, "small"),
        (Recipe(), SMALL_RUN, "published"),
        (Recipe(method="mae"), SMALL_RUN - 1, "small"),
        (Recipe(method="data2vec"), SMALL_RUN - 1, "published"),
        (Recipe(init_from="weights"), SMALL_RUN, "continued"),
        (Recipe(scale="published"), 1, "published"),
    ],
)
def test_the_scale_follows_from_method_length_and_start(recipe: Recipe, images: int, scale: str) -> None:
    assert scale_of(recipe, images) == scale
