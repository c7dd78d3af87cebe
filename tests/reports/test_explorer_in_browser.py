"""The explorer in a browser: what it shows is what Python computes, whatever points at it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import OpenPage
from tiny import RECIPE, write_pictures
from torch import Tensor
from torch.nn import functional as F

from flexpredict import pretrain
from flexpredict.data.sources.opening import open_source
from flexpredict.masking import sample_masks
from flexpredict.methods.ijepa import IJEPA
from flexpredict.randomness import normal, sample_keys, stream_key
from flexpredict.reports.views.exploring import DRAWS, MASKS
from flexpredict.reports.views.shown_images import choose_images
from flexpredict.reports.writing import write_report
from flexpredict.studies.analyses.opening import open_model
from flexpredict.studies.analyses.predictions import MaskedImage, predicted_similarity

HOSTILE = "<img src=x onerror=document.title='run'>"
COLUMNS = 8


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Short runs on pictures whose names and classes would like to be markup."""
    folder = tmp_path_factory.mktemp("explored")
    for name in (HOSTILE, "other"):
        write_pictures(folder / "pictures" / name, 24)
    (folder / "pictures" / "other" / "000.png").rename(folder / "pictures" / "other" / f"{HOSTILE}.png")
    made = {}
    for kind in ("stochastic", "sincos"):
        positions = {"kind": kind, "noise_to_signal": 2.4} if kind == "stochastic" else {"kind": kind}
        made[kind] = folder / kind
        pretrain(str(folder / "pictures"), made[kind], **{**RECIPE, "epochs": 1}, positions=positions)
    return made


@pytest.fixture(scope="module")
def both(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(list(runs.values()), tmp_path_factory.mktemp("pages") / "both.html")


def maps(page: Any, label: str = "stochastic") -> dict[str, Any]:
    """All maps of the patch that is pointed at, with typed arrays as lists."""
    found: dict[str, Any] = page.evaluate(
        """label => Object.fromEntries(Object.entries(window.flexpredict.explorer.maps[label])
            .map(([name, map]) => [name, map instanceof Float32Array ? [...map] : map]))""",
        label,
    )
    return found


def point_at(page: Any, patch: int) -> None:
    scene = page.locator("#scene")
    scene.scroll_into_view_if_needed()
    box = scene.bounding_box()
    side = box["width"] / COLUMNS
    page.mouse.move(box["x"] + (patch % COLUMNS + 0.5) * side, box["y"] + (patch // COLUMNS + 0.5) * side)


def targets_of(run: Path, row: int) -> tuple[Tensor, Tensor]:
    """Context and target blocks of one of the page's masks."""
    opened = open_model(run)
    grid = opened.tokens.grid
    masks = sample_masks(opened.recipe.masking, grid, stream_key(0, "masks of the page"), MASKS)
    return masks.context[row, 0], masks.targets[row, 0]


def test_the_prediction_of_a_patch_is_like_what_python_says(
    runs: dict[str, Path], both: Path, open_page: OpenPage
) -> None:
    page = open_page(both)
    page.locator("#thumbnails button").nth(1).click()
    page.select_option("#mask", value="2")
    source = open_source(str(runs["stochastic"].parent / "pictures"))
    images = choose_images(source, (32, 32), 12)
    pixels = images.pixels(images.explored[1:2])[0]
    before = None
    for kind, run in runs.items():
        context, targets = targets_of(run, 2)
        model = open_model(run).model
        assert isinstance(model, IJEPA)
        for block, slot in ((0, 0), (0, 3)):
            patch = int(targets[block, slot])
            point_at(page, patch)
            expected = predicted_similarity(model, pixels, MaskedImage((8, 8), context, targets, block, slot))
            shown = maps(page, kind)
            assert shown["patch"] == patch
            torch.testing.assert_close(torch.tensor(shown["prediction"]), expected, rtol=0, atol=0.02)
            assert shown["prediction"] != before, "another patch, another map"
            before = shown["prediction"]


def noisy_places(run: Path, patch: int, level: float) -> tuple[Tensor, Tensor]:
    """ψ, and ψ_patch + level · A n for the draws of the page."""
    opened = open_model(run)
    keys = sample_keys(stream_key(0, "noise of the page"), torch.arange(DRAWS))
    noise = normal(keys, opened.matrix.shape[1]) @ opened.matrix.T
    return opened.positions, opened.positions[patch] + level * noise


@pytest.mark.parametrize("share", ["0.4", "1.5"])
def test_where_a_patch_seems_to_be_is_what_python_says_at_any_level(
    runs: dict[str, Path], both: Path, open_page: OpenPage, share: str
) -> None:
    page = open_page(both)
    point_at(page, 27)
    page.locator("#noise-level").fill(share)
    for kind, run in runs.items():
        page.select_option("#draws", "mean")
        page.select_option("#positions", "nearest")
        shown = maps(page, kind)
        places, moved = noisy_places(run, 27, shown["level"])
        # The slider is the length of the noise over that of a position.
        ratio = (moved - places[27]).square().sum(dim=1).mean().sqrt() / places.square().sum(dim=1).mean().sqrt()
        assert float(ratio) == pytest.approx(float(share), rel=0.1)
        shares = torch.bincount(torch.cdist(moved, places).argmin(dim=1), minlength=len(places)) / DRAWS
        torch.testing.assert_close(torch.tensor(shown["position"]), shares, rtol=0, atol=1.5 / DRAWS)
        page.select_option("#positions", "cosine")
        cosines = F.normalize(moved, dim=1) @ F.normalize(places, dim=1).T
        torch.testing.assert_close(torch.tensor(maps(page, kind)["position"]), cosines.mean(dim=0), rtol=0, atol=0.01)
        page.select_option("#draws", "one")
        one = maps(page, kind)["position"]
        draw = page.evaluate("window.flexpredict.explorer.draw")
        torch.testing.assert_close(torch.tensor(one), cosines[draw], rtol=0, atol=0.01)
        page.click("#next-draw")
        assert maps(page, kind)["position"] != one


def test_patches_are_chosen_with_keys_and_by_touch(both: Path, open_page: OpenPage) -> None:
    page = open_page(both, has_touch=True, viewport={"width": 390, "height": 800})
    scene = page.locator("#scene")
    scene.scroll_into_view_if_needed()
    box = scene.bounding_box()
    side = box["width"] / COLUMNS
    page.touchscreen.tap(box["x"] + 2.5 * side, box["y"] + 1.5 * side)
    assert maps(page)["patch"] == COLUMNS + 2
    scene.focus()
    for key, patch in (("ArrowRight", 11), ("ArrowDown", 19), ("ArrowLeft", 18), ("ArrowUp", 10)):
        scene.press(key)
        assert maps(page)["patch"] == patch
    assert "row 2, column 3" in page.locator("#pointed").inner_text()
    tops = [page.locator(part).bounding_box()["y"] for part in ("#thumbnails", "#scene", "#views", ".controls")]
    assert tops == sorted(tops), "the maps are next to the finger that changes them"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_image_layer_mask_and_run_can_be_switched(both: Path, open_page: OpenPage) -> None:
    page = open_page(both)
    seen = [maps(page)["own"]]
    page.locator("#thumbnails button").nth(2).click()
    seen.append(maps(page)["own"])
    page.select_option("#layer", value="2")
    seen.append(maps(page)["own"])
    assert len({tuple(map_) for map_ in seen}) == 3
    assert "prediction" in maps(page)
    page.select_option("#mask", value="-1")
    assert "prediction" not in maps(page), "nothing is masked"
    level = float(page.locator("#noise-level").input_value())
    assert level > 2 and page.locator("#noise-value").inner_text() == f"{level:.2f}, as trained"
    page.get_by_label("stochastic").uncheck()
    assert page.evaluate("Object.keys(window.flexpredict.explorer.maps)") == ["sincos"]


def test_one_color_is_one_cosine_in_all_models_that_are_shown(both: Path, open_page: OpenPage) -> None:
    page = open_page(both)
    for name in ("prediction", "own"):
        values = [*maps(page, "stochastic")[name], *maps(page, "sincos")[name]]
        for end, expected in (("low", min(values)), ("high", max(values))):
            told = page.locator(f'[data-map="{name}"] .{end}').all_inner_texts()
            assert [float(text.replace("−", "-")) for text in told] == pytest.approx([expected] * 2, abs=0.006)


def test_the_noise_goes_back_to_what_it_was_in_training(both: Path, open_page: OpenPage) -> None:
    page = open_page(both)
    trained = maps(page)["position"]
    page.locator("#noise-level").fill("0")
    assert maps(page)["position"] != trained
    page.click("#as-trained")
    assert maps(page)["position"] == trained and not page.locator("#as-trained").is_visible()


def test_every_control_has_a_name_and_can_be_reached_with_the_keyboard(both: Path, open_page: OpenPage) -> None:
    page = open_page(both)
    controls = page.locator("button:visible, select:visible, input:visible, [role=application], .plot").all()
    nameless = """element => !(element.ariaLabel || element.title || element.labels?.[0]?.innerText.trim()
        || (element.tagName === "BUTTON" && element.innerText.trim()))"""
    assert len(controls) > 30
    assert [
        control.evaluate("element => element.outerHTML") for control in controls if control.evaluate(nameless)
    ] == []
    assert all(control.evaluate("element => element.tabIndex") == 0 for control in controls)


def test_nearest_patches_are_of_other_images_and_in_order(both: Path, open_page: OpenPage) -> None:
    page = open_page(both)
    found = maps(page)["neighbors"]
    cosines = [neighbor["cosine"] for neighbor in found]
    assert len(found) == 6 and cosines == sorted(cosines, reverse=True)
    assert 0 not in {neighbor["image"] for neighbor in found}


def test_names_of_files_and_classes_run_nothing(both: Path, open_page: OpenPage) -> None:
    page = open_page(both)
    assert page.locator(".triples img").count() > 10
    assert page.title() != "run" and page.locator('img[src="x"]').count() == 0
    assert HOSTILE in page.evaluate("JSON.stringify(window.flexpredict.explorer.sets)")


def test_an_encoder_that_is_no_run_gets_the_page_without_curves(
    runs: dict[str, Path], tmp_path: Path, open_page: OpenPage
) -> None:
    weights = runs["sincos"] / "encoder.safetensors"
    out = write_report([weights], tmp_path / "page.html", images=str(runs["sincos"].parent / "pictures"))
    page = open_page(out)
    shown = maps(page, "encoder.safetensors")
    assert "own" in shown and "prediction" not in shown and "position" not in shown
    assert page.locator(".chart").count() == 0 and page.locator(".ranking").count() > 0


def test_models_with_other_patches_are_shown_at_the_same_place(
    runs: dict[str, Path], tmp_path: Path, open_page: OpenPage
) -> None:
    other = "timm:vit_tiny_patch16_224,pretrained=no"  # 14 x 14 patches beside 8 x 8
    images = str(runs["sincos"].parent / "pictures")
    page = open_page(
        write_report([runs["sincos"], other], tmp_path / "page.html", images=images),
        viewport={"width": 390, "height": 800},
    )
    point_at(page, 2 * COLUMNS + 7)
    assert maps(page, "sincos")["patch"] == 2 * COLUMNS + 7
    assert maps(page, other)["patch"] == 4 * 14 + 13
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
