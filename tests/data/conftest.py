"""For the tests of data."""

import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def any_warning_is_an_error() -> Iterator[None]:
    """Whatever PIL has to say about an image, a person must not see; nor may a file stay open."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
