"""What is said of images whose labels will not do."""

from pathlib import Path

import pytest
import torch
from pictures import picture

from flexpredict.data.sources.image_source import ArraySource
from flexpredict.data.sources.opening import open_source
from flexpredict.errors import UserError
from flexpredict.evaluation.labeled_images import numbered_alike, with_labels


def test_one_folder_alone_is_no_class_and_the_message_says_so(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    picture(0).save(tmp_path / "cats" / "0.png")
    with pytest.raises(UserError, match=r"have no labels.*folders directly below it, one for each class"):
        with_labels(open_source(str(tmp_path)), "training")


@pytest.mark.parametrize(
    ("lacking", "classes", "suggested"),
    [
        ("7 objects", ("5 objects", "6 objects"), None),
        ("12", ("1", "2"), None),
        ("7 object", ("5 objects", "6 objects"), "5 objects"),
        ("catt", ("cat", "dog"), "cat"),
    ],
)
def test_a_class_that_differs_in_its_number_only_is_no_slip_for_another(
    lacking: str, classes: tuple[str, ...], suggested: str | None
) -> None:
    def images(classes: tuple[str, ...]) -> ArraySource:
        pixels = torch.zeros(len(classes), 8, 8, 3, dtype=torch.uint8)
        return ArraySource("x", pixels, classes, torch.arange(len(classes)))

    with pytest.raises(UserError, match=f"have no image in x: {lacking}") as refused:
        numbered_alike(with_labels(images((lacking,)), "test"), with_labels(images(classes), "training"))
    assert ("Did you mean" in str(refused.value)) == (suggested is not None)
    assert suggested is None or f"'{suggested}'" in str(refused.value)
