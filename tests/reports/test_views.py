"""What is looked at of a model, and what is kept of it."""

import base64
import io
import shutil
from pathlib import Path

import torch
from PIL import Image

from flexpredict.data.sources.opening import open_source
from flexpredict.reports.views.attention import last_attention
from flexpredict.reports.views.films import small_films
from flexpredict.reports.views.pictures import component_colors
from flexpredict.reports.views.shown_images import choose_images
from flexpredict.reports.views.stored import stored_views
from flexpredict.reports.views.viewed_model import open_viewed
from flexpredict.reports.writing import refresh_report, write_report


def test_colors_follow_the_main_components_whatever_the_other_features_do() -> None:
    features = torch.zeros(1, 4, 24)
    features[0, :, 3] = torch.tensor([0.0, 1.0, 2.0, 9.0])
    features[..., 7] = 5.0  # the same everywhere: no component
    reds = component_colors(features, (2, 2))[0, ..., 0].flatten()
    assert reds.argsort().tolist() == [0, 1, 2, 3] and float(reds.min()) == 0 and float(reds.max()) == 1
    torch.testing.assert_close(component_colors(10 * features + 3, (2, 2))[0, ..., 0].flatten(), reds)


def test_attention_is_that_of_the_last_block(finished: Path, pictures: str) -> None:
    viewed = open_viewed(finished)
    images = choose_images(open_source(pictures), viewed.image_size, 3)
    pixels = images.pixels(images.explored)
    found = last_attention(viewed.encoder, pixels, 64)
    assert found is not None and found.shape == (3, 64)
    # With fused attention off, timm computes the same shares and drops them out.
    block = viewed.encoder.timm().blocks[-1].attn
    seen = []
    block.fused_attn = False
    block.attn_drop.register_forward_hook(lambda module, given, output: seen.append(output))
    viewed.encoder(pixels)
    torch.testing.assert_close(found, seen[-1].mean(dim=(1, 2)), rtol=1e-4, atol=1e-6)


def test_films_of_followed_objects_become_small(tmp_path: Path) -> None:
    folder = tmp_path / "davis" / "overlays"
    folder.mkdir(parents=True)
    frames = [Image.new("RGB", (640, 480), (5 * i, 0, 0)) for i in range(40)]
    frames[0].save(folder / "dog.gif", save_all=True, append_images=frames[1:])
    (folder / "torn.gif").write_bytes((folder / "dog.gif").read_bytes()[:20])
    (film,) = small_films(tmp_path)
    assert film["name"] == "dog" and film["uri"].startswith("data:image/webp;base64,")
    with Image.open(io.BytesIO(base64.b64decode(film["uri"].split(",")[1]))) as small:
        assert small.size == (240, 180) and small.n_frames == 12


def test_a_refreshed_page_keeps_the_views_and_has_the_new_curves(finished: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    for name in ("config.yaml", "metrics.jsonl"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    write_report([finished], page)
    views = stored_views(page)
    assert len(views.models) == 1 and views.models[0] is not None
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99, "loss": 0.5}\n')
    refresh_report(tmp_path)
    assert stored_views(page).sets == views.sets and ",99]" in page.read_text()


def test_images_that_cannot_be_shown_leave_the_curves_and_a_note(finished: Path, tmp_path: Path) -> None:
    for name in ("config.yaml", "metrics.jsonl"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    config = (tmp_path / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(config.replace("data:", "data: /gone\nold_data:"))
    text = write_report([tmp_path]).read_text()
    assert "There is nothing to explore" in text and "curve-data" in text and stored_views(tmp_path).models == []


def test_a_run_that_was_copied_without_its_links_is_looked_at_as_before(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "copy")
    assert not (tmp_path / "copy" / "checkpoints" / "last").is_symlink()
    seen = open_viewed(tmp_path / "copy").opened
    assert seen is not None and seen.step == 18
