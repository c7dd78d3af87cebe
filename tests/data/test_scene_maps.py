"""Classes and distances of every pixel of a scene."""

import numpy as np

from flexpredict.data.scenes.scenes import draw_scenes


def test_every_pixel_has_the_class_and_the_distance_of_the_object_that_it_shows() -> None:
    drawn = draw_scenes(np.arange(60), size=48)
    classes, depths = drawn.class_masks(), drawn.depth_maps()
    assert classes.shape == depths.shape == drawn.masks.shape
    assert np.array_equal(classes == 0, drawn.masks == 0) and np.array_equal(depths == 0, drawn.masks == 0)
    for scene, (mask, of_class, depth) in enumerate(zip(drawn.masks, classes, depths, strict=True)):
        objects = [number for number in range(1, drawn.counts[scene] + 1) if (mask == number).any()]
        distances = [np.unique(depth[mask == number]) for number in objects]
        assert all(len(values) == 1 for values in distances), "an object is at one distance"
        assert np.all(np.diff(np.concatenate(distances)) > 0), "objects are numbered from near to far"
        kinds = [np.unique(of_class[mask == number]) for number in objects]
        assert all(len(values) == 1 for values in kinds)
        if 1 in objects:
            assert distances[0][0] == drawn.nearest[scene]


def test_every_object_is_of_the_class_of_its_scene() -> None:
    drawn = draw_scenes(np.arange(300), size=32)
    own = 1 + drawn.classes[:, None, None]
    assert np.array_equal(drawn.class_masks(), np.where(drawn.masks > 0, own, 0))
