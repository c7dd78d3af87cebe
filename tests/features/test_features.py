"""Features of whole sources: made once, in parts, by any number of ranks, of what can be read."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from mean_color import MeanColor
from PIL import Image
from ranks import call_on_two_ranks
from rich.console import Console
from tiny import write_pictures

import flexpredict
from flexpredict.cli import main
from flexpredict.data.sources.opening import ImageSource, open_source
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.features import parts as parts_module
from flexpredict.features.extraction import Features, cached_features, extract_features
from flexpredict.model.building import build_encoder
from flexpredict.settings.extraction import Extraction

pytestmark = pytest.mark.usefixtures("small_parts")
HOW = Extraction(batch_size=8)


def cached(encoder: ImageEncoder, source: ImageSource, how: Extraction = HOW) -> Features:
    return cached_features(encoder, source, how, Fabric(accelerator="cpu", devices=1), Console(quiet=True))


def folder(path: Path, count: int = 40) -> ImageSource:
    return open_source(str(write_pictures(path / "pictures", count, size=32)))


def test_features_are_those_of_the_images_in_their_order(tmp_path: Path) -> None:
    found = cached(MeanColor(), folder(tmp_path))
    files = sorted((tmp_path / "pictures").iterdir())
    by_hand = [np.asarray(Image.open(file), np.float32).mean(axis=(0, 1)) for file in files]
    np.testing.assert_allclose(found.vectors.numpy(), by_hand, atol=1e-2)
    assert found.indices.tolist() == list(range(40)) and found.skipped == []


def test_a_second_call_reads_what_the_first_has_kept(tmp_path: Path) -> None:
    source, encoder = folder(tmp_path), MeanColor()
    first = cached(encoder, source)
    assert encoder.seen == 40
    again = cached(encoder, source)
    assert encoder.seen == 40 and torch.equal(first.vectors, again.vectors)


def test_an_interrupted_extraction_goes_on_where_it_was(tmp_path: Path) -> None:
    source, encoder = folder(tmp_path), MeanColor()
    encoder.fails_after = 30  # in the second of three parts
    with pytest.raises(KeyboardInterrupt):
        cached(encoder, source)
    encoder.fails_after, encoder.seen = 10**9, 0
    found = cached(encoder, source)
    assert encoder.seen == 40 - 16, "the first part is not made again"
    assert torch.equal(found.vectors, extract_features(MeanColor(), source, HOW).vectors)


def test_a_part_that_was_cut_short_on_disk_is_made_again(tmp_path: Path, own_cache: Path) -> None:
    source, encoder = folder(tmp_path), MeanColor()
    first = cached(encoder, source)
    part = sorted(own_cache.rglob("part-*"))[1]
    part.write_bytes(part.read_bytes()[:-8])
    assert torch.equal(cached(encoder, source).vectors, first.vectors)
    assert encoder.seen == 40 + 16


def test_other_weights_settings_or_images_make_other_features(tmp_path: Path) -> None:
    source, encoder = folder(tmp_path), MeanColor()
    first = cached(encoder, source)
    torch.testing.assert_close(cached(MeanColor(2.0), source).vectors, 2 * first.vectors)
    cached(encoder, source, replace(HOW, image_size=(16, 24)))
    assert encoder.seen == 80
    Image.new("RGB", (32, 32), (10, 20, 30)).save(tmp_path / "pictures" / "007.png")
    changed = cached(encoder, open_source(str(tmp_path / "pictures")))
    assert encoder.seen == 120
    torch.testing.assert_close(changed.vectors[7], torch.tensor([10.0, 20.0, 30.0]), atol=1e-3, rtol=0)
    kept = torch.arange(40) != 7
    assert torch.equal(changed.vectors[kept], first.vectors[kept])


@pytest.mark.parametrize("name", ["plain", "timm:test_vit,pretrained=no"])
def test_features_of_the_last_layers_hold_those_of_the_last(name: str, tmp_path: Path, own_cache: Path) -> None:
    source, vit = folder(tmp_path), "vit_tiny_patch16_224"
    plain = ViTEncoder(build_encoder(vit, (32, 32), options={"depth": 3, "embed_dim": 24}), vit, vit)
    encoder = plain.eval() if name == "plain" else flexpredict.load(name)
    how = replace(HOW, image_size=32)
    alone = extract_features(encoder, source, how).vectors
    cached(encoder, source, replace(how, layers=3))
    parts = len(list(own_cache.rglob("part-*")))
    torch.testing.assert_close(cached(encoder, source, how).vectors, alone)
    made = len(list(own_cache.rglob("part-*"))) - parts
    assert made == (0 if name == "plain" else parts), "timm's own pooling of the last layer may be another"


def test_what_cannot_be_read_is_left_out_and_counted_up_to_a_twentieth(tmp_path: Path) -> None:
    whole = cached(MeanColor(), folder(tmp_path))
    for broken in (3, 39):
        (tmp_path / "pictures" / f"{broken:03d}.png").write_bytes(b"nothing")
    found = cached(MeanColor(), open_source(str(tmp_path / "pictures")))
    kept = [index for index in range(40) if index not in (3, 39)]
    assert found.indices.tolist() == kept
    assert torch.equal(found.vectors, whole.vectors[kept])
    assert [Path(failure.name).name for failure in found.skipped] == ["003.png", "039.png"]
    (tmp_path / "pictures" / "010.png").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"3 of 40 images of .* could not be read, for example .*003.png"):
        cached(MeanColor(), open_source(str(tmp_path / "pictures")))


def test_a_part_of_which_nothing_can_be_read_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "_MOST_IMAGES", 2)
    folder(tmp_path)
    for broken in (4, 5):
        (tmp_path / "pictures" / f"{broken:03d}.png").write_bytes(b"nothing")
    encoder = MeanColor()
    found = cached(encoder, open_source(str(tmp_path / "pictures")))
    assert found.vectors.shape == (38, 3) and len(found.skipped) == 2 and encoder.seen == 38


def test_features_that_are_not_numbers_are_refused_at_once_and_not_kept(tmp_path: Path, own_cache: Path) -> None:
    encoder = MeanColor(float("nan"))
    with pytest.raises(UserError, match=r"the mean color gives NaN or infinity for 8 of 8 images, .*000.png"):
        cached(encoder, folder(tmp_path))
    assert encoder.seen == 8 and not list(own_cache.rglob("part-*"))


def test_bfloat16_is_close_to_float32() -> None:
    options = {"embed_dim": 48, "depth": 2, "num_heads": 2}
    encoder = ViTEncoder(build_encoder("vit_tiny_patch16_224", (32, 32), 8, options=options), "tiny", "a tiny one")
    source = open_source("scenes:32,size=32")
    exact = cached(encoder, source).vectors
    rough = cached(encoder, source, replace(HOW, precision="bf16-mixed")).vectors
    assert not torch.equal(exact, rough)
    centered = [vectors - vectors.mean(dim=0) for vectors in (exact, rough)]
    assert float(torch.nn.functional.cosine_similarity(*centered).min()) > 0.99
    with pytest.raises(UserError, match="precision=16 is not known"):
        Extraction(precision="16")


def test_a_place_for_features_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLEXPREDICT_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="FLEXPREDICT_CACHE"):
        cached(MeanColor(), folder(tmp_path))


def test_unusual_settings_are_named_and_usual_ones_are_not() -> None:
    encoder = MeanColor()
    assert Extraction().settings(encoder) == ""
    assert Extraction(pooling="mean", image_size=(32, 32)).settings(encoder) == ""
    assert (
        Extraction(layers=4, pooling="class", image_size=(64, 48)).settings(encoder)
        == "last 4 layers, class pooling, 64x48"
    )


def probe_in_small_parts(*words: str) -> None:
    parts_module._MOST_IMAGES = 64
    sys.exit(main(words))


@pytest.mark.slow
def test_two_ranks_give_the_numbers_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 images are four parts, two for each rank; the images to test on are one part more."""
    monkeypatch.setattr(parts_module, "_MOST_IMAGES", 64)
    given = ["--train", "scenes:200,size=16", "--test", "scenes:60,size=16,split=test", "--accelerator", "cpu"]
    given += ["--image_size", "32", "--labels", "1", "--l2", "0.1"]
    words = ["probe", "timm:test_vit,pretrained=no", *given, "--out"]
    assert main([*words, str(tmp_path / "one.json")]) == 0
    alone = json.loads((tmp_path / "one.json").read_text())
    cache = tmp_path / "cache of two"
    monkeypatch.setenv("FLEXPREDICT_CACHE", str(cache))
    done = call_on_two_ranks(probe_in_small_parts, *words, str(tmp_path / "two.json"), "--devices", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Written:") == 1, "only the first rank speaks"
    together = json.loads((tmp_path / "two.json").read_text())
    assert together["numbers"] == alone["numbers"] and together["details"] == alone["details"]
    assert len(list(cache.rglob("part-*"))) == 5
