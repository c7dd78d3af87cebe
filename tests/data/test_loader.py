"""The training stream is the same however it is cut up, and survives unreadable files."""

import os
import signal
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from flexpredict.data import workers
from flexpredict.data.augmentation import Crops, draw_crops
from flexpredict.data.loader import Batch, evaluation_batches, sample_order, training_batches
from flexpredict.data.sources.opening import ArraySource, ImageSource, open_images
from flexpredict.data.workers import Computed, WorkerResults, set_current_image
from flexpredict.errors import UserError
from flexpredict.interruption import interrupt_on_sigterm
from flexpredict.randomness import sample_keys, shuffled, stream_key, uniform
from flexpredict.settings.augmentation import PRESETS

SIZE = (16, 16)


@pytest.fixture
def arrays() -> ArraySource:
    noise = uniform(torch.arange(37), 24 * 20 * 3).mul(256).to(torch.uint8)
    return ArraySource("noise", noise.view(37, 24, 20, 3))


@pytest.fixture
def folder(tmp_path: Path, arrays: ArraySource) -> ImageSource:
    for index, image in enumerate(arrays.images[:21].numpy()):
        Image.fromarray(image).save(tmp_path / f"{index:02}.png")
    return open_images(str(tmp_path))


def stream(source: ImageSource, **changes: Any) -> list[Batch]:
    options = {"seed": 1, "batch_size": 8, "first_step": 0, "last_step": 7} | changes
    return list(training_batches(source, PRESETS["stop"], [SIZE], **options))


def same(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a.images, b.images)
        and torch.equal(a.indices, b.indices)
        and [*map(str, a.skipped)] == [*map(str, b.skipped)]
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("kind", ["arrays", "folder"])
def test_workers_ranks_and_restarts_change_no_bit(kind: str, request: pytest.FixtureRequest) -> None:
    source: ImageSource = request.getfixturevalue(kind)
    expected = stream(source)
    assert same(stream(source, workers=2), expected)
    assert same(stream(source, first_step=4), expected[4:])
    ranks = [stream(source, rank=rank, world_size=2) for rank in range(2)]
    joined = [
        Batch(torch.cat((a.images, b.images)), torch.cat((a.indices, b.indices))) for a, b in zip(*ranks, strict=True)
    ]
    assert same(joined, expected)


def test_another_seed_gives_other_images_and_other_crops(arrays: ArraySource) -> None:
    one, other = stream(arrays, seed=1), stream(arrays, seed=2)
    assert not torch.equal(torch.cat([b.indices for b in one]), torch.cat([b.indices for b in other]))
    single = ArraySource("one", arrays.images[:1])
    assert not same(stream(single, seed=1), stream(single, seed=2))


def test_each_epoch_holds_every_image_once_and_nothing_is_dropped_between_epochs(arrays: ArraySource) -> None:
    seen = torch.cat([batch.indices for batch in stream(arrays, last_step=14)])
    first, second, third = seen[:37], seen[37:74], seen[74:111]
    for epoch in (first, second, third):
        assert epoch.sort().values.equal(torch.arange(37))
    assert not torch.equal(first, second) and not torch.equal(second, third)


def test_an_image_is_cropped_differently_in_each_epoch(arrays: ArraySource) -> None:
    single = ArraySource("one", arrays.images[:1])
    images = torch.cat([batch.images for batch in stream(single, batch_size=1)])
    assert len(images.flatten(1).unique(dim=0)) == len(images)


def test_the_order_is_the_documented_function_of_seed_and_position() -> None:
    epochs, indices = sample_order(9, 5, torch.arange(3, 14))
    orders = [shuffled(stream_key(9, "order", epoch), 5, torch.arange(5)) for epoch in range(3)]
    assert epochs.tolist() == [0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2]
    assert torch.equal(indices, torch.cat(orders)[3:14])


def test_crops_are_keyed_by_seed_epoch_and_image(arrays: ArraySource) -> None:
    batch = next(
        iter(training_batches(arrays, PRESETS["ijepa"], [SIZE], seed=4, batch_size=6, first_step=0, last_step=1))
    )
    keys = sample_keys(stream_key(4, "augmentation", 0), batch.indices)
    assert torch.equal(batch.images, arrays.read(batch.indices, draw_crops(PRESETS["ijepa"], keys), SIZE)[0])


def test_a_batch_may_be_larger_than_the_data_set(arrays: ArraySource) -> None:
    few = ArraySource("few", arrays.images[:3])
    (batch,) = stream(few, batch_size=10, last_step=1)
    assert torch.bincount(batch.indices, minlength=3).tolist() in ([4, 3, 3], [3, 4, 3], [3, 3, 4])


@pytest.mark.parametrize("workers", [0, 2])
def test_unreadable_images_are_replaced_alike_every_time_and_reported(
    tmp_path: Path, folder: ImageSource, workers: int
) -> None:
    for broken in ("03.png", "11.png"):
        (tmp_path / broken).write_bytes(b"broken")
    batches = stream(folder, last_step=8, workers=workers)
    assert same(stream(folder, last_step=8), batches)
    seen = torch.cat([batch.indices for batch in batches])
    assert 3 not in seen and 11 not in seen and len(seen) == 64
    reported = [skipped for batch in batches for skipped in batch.skipped]
    assert {Path(skipped.name).name for skipped in reported} == {"03.png", "11.png"}
    assert all("not an image" in skipped.reason for skipped in reported)
    assert len(reported) >= 6  # Each is due once an epoch.


def test_readable_images_are_the_same_whether_or_not_others_are_broken(tmp_path: Path, folder: ImageSource) -> None:
    before = stream(folder)
    (tmp_path / "03.png").write_bytes(b"broken")
    for old, new in zip(before, stream(folder), strict=True):
        sound = old.indices != 3
        assert torch.equal(old.images[sound], new.images[sound])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_set_that_broke_stops_the_run_with_the_file_and_the_reason(
    tmp_path: Path, folder: ImageSource, workers: int
) -> None:
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(UserError, match=r"^100 images in a row .*\.png: .*No such file"):
        stream(folder, workers=workers)


def test_a_batch_that_ranks_cannot_share_equally_is_refused(arrays: ArraySource) -> None:
    with pytest.raises(UserError, match=r"batch_size=9.*multiple of 2"):
        training_batches(
            arrays, PRESETS["ijepa"], [SIZE], seed=0, batch_size=9, first_step=0, last_step=1, world_size=2
        )


def test_the_stream_leaves_the_global_random_numbers_alone(arrays: ArraySource) -> None:
    before = torch.random.get_rng_state()
    stream(arrays)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_long_run_can_be_left_at_any_time(arrays: ArraySource) -> None:
    endless = training_batches(
        arrays, PRESETS["ijepa"], [SIZE], seed=0, batch_size=4, first_step=0, last_step=10**9, workers=1
    )
    assert len(list(islice(endless, 3))) == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_shows_every_image_once_in_order_uncut_but_for_its_longer_side(
    folder: ImageSource, arrays: ArraySource, workers: int
) -> None:
    batches = list(evaluation_batches(folder, (20, 20), 8, workers=workers))
    assert [len(batch.images) for batch in batches] == [8, 8, 5]
    assert torch.cat([batch.indices for batch in batches]).equal(torch.arange(21))
    center = arrays.images[:21, 2:22].permute(0, 3, 1, 2)
    assert torch.equal(torch.cat([batch.images for batch in batches]), center)
    part = list(evaluation_batches(folder, (20, 20), 8, first=5, last=15, workers=workers))
    assert torch.equal(torch.cat([batch.images for batch in part]), center[5:15])


def test_evaluation_does_not_replace_an_unreadable_image_but_names_it(tmp_path: Path, folder: ImageSource) -> None:
    (tmp_path / "05.png").write_bytes(b"broken")
    first, second, _ = evaluation_batches(folder, SIZE, 8)
    assert first.indices.tolist() == [0, 1, 2, 3, 4, 6, 7] and len(first.images) == 7
    assert [failure.name for failure in first.skipped] == [str(tmp_path / "05.png")]
    assert len(second.images) == 8 and not second.skipped


def test_each_step_has_one_of_the_sizes_on_every_rank(arrays: ArraySource) -> None:
    sizes = [(16, 16), (8, 24), (12, 8)]
    options: dict[str, Any] = {"seed": 1, "batch_size": 4, "first_step": 0, "last_step": 40, "world_size": 2}
    ranks = [list(training_batches(arrays, PRESETS["stop"], sizes, rank=rank, **options)) for rank in range(2)]
    shapes = [tuple(batch.images.shape[2:]) for batch in ranks[0]]
    assert shapes == [tuple(batch.images.shape[2:]) for batch in ranks[1]]
    assert {size: shapes.count(size) > 6 for size in sizes} == dict.fromkeys(sizes, True)


class Deadly(ArraySource):
    """Kills whoever reads image 5, as a crash in a decoder would."""

    def read(self, indices: Tensor, crops: Crops, image_size: tuple[int, int]) -> tuple[Tensor, dict[int, Any]]:
        for index in indices.tolist():
            set_current_image(f"image {index}")
            if index == 5:
                os.kill(os.getpid(), signal.SIGKILL)
        set_current_image("")
        return super().read(indices, crops, image_size)


def test_a_worker_that_dies_is_reported_with_the_image_it_was_reading(arrays: ArraySource) -> None:
    with pytest.raises(UserError, match=r"died .*while it was reading image 5\. .*resume the run"):
        stream(Deadly("deadly", arrays.images), workers=2)


def test_other_errors_of_workers_are_not_taken_for_a_death(arrays: ArraySource) -> None:
    batches = training_batches(
        arrays, PRESETS["ijepa"], [SIZE], seed=0, batch_size=4, first_step=0, last_step=2, workers=1
    )
    with pytest.raises(RuntimeError, match="something else"), batches.deaths_explained():
        raise RuntimeError("something else")


def test_a_worker_that_dies_while_it_hands_an_image_over_is_reported_too() -> None:
    results: WorkerResults[int] = WorkerResults(Computed(int), [], workers=1)
    with pytest.raises(UserError, match="died between two images"), results.deaths_explained():
        raise ConnectionResetError("Connection reset by peer")
    with pytest.raises(ConnectionError, match="Caught"), results.deaths_explained():
        raise ConnectionError("Caught ConnectionError in DataLoader worker process 0.")


def test_torchs_own_notice_of_that_death_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes as an exception from a signal handler, at any later moment."""
    results: WorkerResults[int] = WorkerResults(Computed(int), [], workers=1)
    assert list(results) == []  # its worker has ended in peace

    def signal_comes(seconds: float) -> None:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")

    monkeypatch.setattr("flexpredict.data.workers.time", SimpleNamespace(sleep=signal_comes))
    with pytest.raises(UserError, match=r"died \(Killed\)"), results.deaths_explained():
        raise ConnectionResetError("Connection reset by peer")


def test_a_lost_connection_without_workers_is_nobodys_death() -> None:
    results: WorkerResults[int] = WorkerResults(Computed(int), [], workers=0)
    with pytest.raises(ConnectionResetError), results.deaths_explained():
        raise ConnectionResetError("Connection reset by peer")


def test_a_signal_that_comes_before_a_worker_is_ready_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = workers._begin_worker

    def signaled(lines: Tensor, worker: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        ready(lines, worker)

    monkeypatch.setattr(workers, "_begin_worker", signaled)
    with interrupt_on_sigterm():
        results: WorkerResults[int] = WorkerResults(Computed(int), ["3", "4"], workers=1)
        assert list(results) == [3, 4]
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()), "this process hears signals as before"
