"""Sizes of images and patches where nobody named any."""

import pytest

from flexpredict.errors import UserError
from flexpredict.sizes import default_image_size, default_patch_size


def test_default_sizes_are_those_nearest_below() -> None:
    assert default_image_size([(500, 300), (100, 180), (70, 900)]) == 96
    assert default_image_size([(10, 10)]) == 32 and default_image_size([(4000, 3000)]) == 224
    assert [default_patch_size((side, side), 16) for side in (224, 128, 96, 64, 48, 32)] == [16, 16, 12, 8, 6, 4]
    assert default_patch_size((224, 224), 14) == 14 and default_patch_size((97, 97), 16) == 16
    with pytest.raises(UserError, match="No image"):
        default_image_size([])
