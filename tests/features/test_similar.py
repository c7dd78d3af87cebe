"""The nearest images: found whatever the chunks, the query itself left out, shown in a table and a picture."""

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mean_color import MeanColor
from PIL import Image
from rich.console import Console
from tiny import write_pictures

from flexpredict.cli import main
from flexpredict.data.sources.image_source import ArraySource, Record
from flexpredict.data.sources.opening import open_images, open_source
from flexpredict.errors import UserError
from flexpredict.features.similar import similar
from flexpredict.features.similarity import nearest
from flexpredict.features.similarity_sheet import Neighbor, SheetRow, similarity_sheet
from flexpredict.randomness import normal, sample_keys
from flexpredict.showing import show


def ask(data: Any, *queries: str | int, encoder: MeanColor | None = None, **options: Any) -> tuple[Any, str]:
    """The neighbors, and what was printed."""
    shown = io.StringIO()
    console = Console(file=shown, width=200)
    options = {"out": None, "accelerator": "cpu", "batch_size": 8} | options
    result = similar(encoder or MeanColor(), data, list(queries), **options)
    show(result, console)
    return result.neighbors, shown.getvalue()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "pictures", 30, size=32)


@pytest.mark.parametrize("chunk", [1, 7, 50, 1000])
def test_chunks_find_what_comparing_all_at_once_finds(chunk: int) -> None:
    vectors = normal(sample_keys(3, torch.arange(50)), 12)
    wanted = normal(sample_keys(4, torch.arange(5)), 12)
    cosines, rows = nearest(vectors, wanted, 9, chunk)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (wanted.double().numpy(), vectors.double().numpy())]
    by_hand = unit[0] @ unit[1].T
    assert np.array_equal(rows.numpy(), np.argsort(-by_hand, axis=1)[:, :9])
    np.testing.assert_allclose(cosines.numpy(), -np.sort(-by_hand, axis=1)[:, :9], atol=1e-6)


def test_more_neighbors_than_there_are_images_are_all_of_them() -> None:
    vectors = normal(sample_keys(3, torch.arange(4)), 6)
    _, rows = nearest(vectors, vectors[:1], 9, chunk=3)
    assert sorted(rows[0].tolist()) == [0, 1, 2, 3] and rows[0, 0] == 0


def test_a_planted_copy_is_found_first_and_the_query_itself_is_left_out(pictures: Path) -> None:
    Image.open(pictures / "007.png").save(pictures / "copy.bmp")
    found, printed = ask(str(pictures), str(pictures / "007.png"), str(pictures / "008.png"), top=3)
    assert Path(found[0][0].name).name == "copy.bmp" and found[0][0].similarity == pytest.approx(1, abs=1e-6)
    assert all("008.png" not in neighbor.name for neighbor in found[1]) and len(found[1]) == 3
    assert printed.count("itself in the data, and left out") == 2 and "copy.bmp" in printed


def test_links_to_the_query_are_the_query(pictures: Path) -> None:
    (pictures / "again.png").symlink_to(pictures / "003.png")
    found, _ = ask(str(pictures), str(pictures / "003.png"), top=30)
    assert len(found[0]) == 29 and not any(re.search("003|again", neighbor.name) for neighbor in found[0])


def test_a_query_from_elsewhere_is_compared_with_all(pictures: Path, tmp_path: Path) -> None:
    Image.open(pictures / "012.png").save(tmp_path / "elsewhere.png")
    found, printed = ask(str(pictures), str(tmp_path / "elsewhere.png"), top=2)
    assert found[0][0].name.endswith("012.png") and "left out" not in printed


def test_a_number_is_an_image_of_the_data_unless_a_file_is_called_so(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_number, _ = ask(str(pictures), "5", top=4)
    by_path, _ = ask(str(pictures), str(pictures / "005.png"), top=4)
    assert [neighbor.index for neighbor in by_number[0]] == [neighbor.index for neighbor in by_path[0]]
    monkeypatch.chdir(tmp_path)
    Image.open(pictures / "012.png").save(tmp_path / "copy.png")
    (tmp_path / "copy.png").rename(tmp_path / "5")
    assert ask(str(pictures), "5", top=1)[0][0][0].index == 12
    assert ask(str(pictures), 5, top=4)[0] == by_number


def test_the_second_question_costs_no_more_than_its_query(pictures: Path) -> None:
    encoder = MeanColor()
    ask(str(pictures), 3, encoder=encoder)
    assert encoder.seen == 30 + 1
    ask(str(pictures), 4, encoder=encoder)
    assert encoder.seen == 30 + 2


def test_neighbors_keep_their_names_where_images_are_missing_between(pictures: Path) -> None:
    expected, _ = ask(str(pictures), 20, top=1)
    (pictures / "000.png").write_bytes(b"nothing")
    assert ask(str(pictures), 20, top=1)[0] == expected


def test_classes_stand_in_the_table(tmp_path: Path) -> None:
    pixels = torch.tensor([[200, 0, 0], [190, 10, 0], [0, 0, 200]], dtype=torch.uint8)[:, None, None]
    source = ArraySource(
        "[red]", pixels.expand(-1, 32, 32, 3).contiguous(), ("warm", "cold"), torch.tensor([0, 0, 1])
    )
    found, printed = ask(source, 0, top=2)
    assert [neighbor.class_name for neighbor in found[0]] == ["warm", "cold"]
    assert "warm" in printed and "[red], image 1" in printed


def test_bad_questions_are_refused_before_any_work(pictures: Path, tmp_path: Path) -> None:
    encoder = MeanColor()
    (tmp_path / "broken.png").write_bytes(b"nothing")
    for queries, options, said in (
        (["30"], {}, r"neither a file nor an image of .*pictures \(0 to 29\)"),
        ([str(tmp_path / "brokn.png")], {}, r"no image file .*brokn.png.* Did you mean 'broken.png'"),
        ([str(tmp_path / "broken.png")], {}, r"query .*broken.png: not an image"),
        (["1"], {"top": 0}, "top=0"),
        (["1"], {"out": tmp_path / "x.txt"}, "x.txt is not a picture.* .png"),
        ([], {}, "No query"),
    ):
        with pytest.raises(UserError, match=said):
            ask(str(pictures), *queries, encoder=encoder, **options)
    assert encoder.seen == 0
    with pytest.raises(UserError, match="is a stream"):
        ask("pipe:cat shard.tar", "1")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        ask(str(pictures), "1", out=tmp_path / "file" / "x.png")


def test_the_picture_shows_each_query_and_its_neighbors_in_their_places(pictures: Path) -> None:
    colors = torch.tensor([[200, 40, 40], [40, 200, 40], [40, 40, 200], [90, 90, 20]], dtype=torch.uint8)
    source = ArraySource("plain", colors[:, None, None].expand(-1, 64, 64, 3).contiguous())
    rows = [
        SheetRow(Record("first", source.encoded(0)), [Neighbor(1, 0.9, "green", "a"), Neighbor(2, 0.1, "blue", "b")]),
        SheetRow(Record("second", source.encoded(3)), [Neighbor(2, -0.3, "blue", "b")]),
    ]
    pixels = np.asarray(similarity_sheet(source, rows))

    def place(color: int) -> list[tuple[int, int]]:
        """Top left corners of the tiles of this color."""
        area = (pixels == colors[color].numpy()).all(axis=-1)
        corners = area & ~np.roll(area, 1, 0) & ~np.roll(area, 1, 1)
        return [(int(top), int(left)) for top, left in np.argwhere(corners)]

    (top, left), (second, below) = place(0)[0], place(3)[0]
    assert below == left and second > top
    assert place(1)[0][0] == top and left < place(1)[0][1] < place(2)[0][1]
    assert place(2)[0][0] == top and place(2)[1] == (second, place(1)[0][1])
    bars = [
        int((pixels[rows] == (47, 111, 222)).all(axis=-1).sum()) for rows in (slice(0, second), slice(second, None))
    ]
    assert bars[0] > 100 and bars[1] < 10, "there is no bar for what is unlike"


def test_many_neighbors_are_wrapped_and_cut_and_the_rest_is_told(pictures: Path) -> None:
    source = open_source(str(pictures))

    def sheet(count: int, similarity: float = 0.5) -> Image.Image:
        neighbors = [Neighbor(i % len(source), similarity, "n", "") for i in range(count)]
        return similarity_sheet(source, [SheetRow(Record("query", source.encoded(3)), neighbors)])

    eight, nine, thousand = sheet(8), sheet(9), sheet(1000)
    assert thousand.width == nine.width == eight.width < 1700
    assert eight.height < nine.height < thousand.height < 2000


def test_bars_of_nearly_equal_neighbors_differ(pictures: Path) -> None:
    source = open_source(str(pictures))

    def filled(similarity: float) -> int:
        """Pixels of the bar, beside a neighbor of similarity 0.998."""
        shown = [Neighbor(1, similarity, "a", ""), Neighbor(2, 0.998, "b", "")]
        pixels = np.asarray(similarity_sheet(source, [SheetRow(Record("query", source.encoded(3)), shown)]))
        return int((pixels == (47, 111, 222)).all(axis=-1).sum())

    assert filled(1.0) > 1.8 * filled(0.999)


def test_a_neighbor_that_was_taken_away_leaves_an_empty_tile(pictures: Path) -> None:
    source = open_source(str(pictures))
    ask(source, 3)
    (pictures / "009.png").unlink()
    shown = SheetRow(Record("query", source.encoded(3)), [Neighbor(9, 0.5, "gone", "")])
    assert similarity_sheet(source, [shown]).width > 300
    alone = similarity_sheet(source, [SheetRow(Record("query", source.encoded(3)), [])])
    assert alone.width > 200


def test_the_command_prints_a_table_a_query_and_draws_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--data", "scenes:30,size=32", "--query", "3", "17", "--image_size", "32", "--accelerator", "cpu"]
    assert main(["similar", "timm:test_vit,pretrained=no", *words, "--top", "4"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("similarity") == 2 and "Written: similar.png" in printed
    with Image.open("similar.png") as picture:
        assert picture.format == "PNG"
    assert open_images("scenes:30,size=32").describe(3) in printed
