"""Embedding that is interrupted goes on and ends in the same bytes; what others wrote is never mixed in."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mean_color import MeanColor
from small_embedding import HOW, PART, PROBE, embedded, folder

from flexpredict.data.sources.opening import open_source
from flexpredict.errors import UserError
from flexpredict.features import embedding_files as files_module
from flexpredict.features.extraction import extract_features
from flexpredict.features.parts import PartsFolder

pytestmark = pytest.mark.usefixtures("small_parts")


@pytest.mark.parametrize("name", ["f.parquet", "f.npy", "f.safetensors"])
def test_an_interrupted_embedding_goes_on_and_ends_in_the_same_bytes(name: str, tmp_path: Path) -> None:
    source, encoder = folder(tmp_path), MeanColor()
    embedded(source, tmp_path / "whole" / name, patches="float16")
    out = tmp_path / "cut" / name
    encoder.fails_after = 30 + PROBE  # in the second of three parts
    with pytest.raises(KeyboardInterrupt):
        embedded(source, out, encoder, patches="float16")
    assert not out.exists()
    parts = out.with_name(f"{name}.parts")
    (parts / ".part-000000001.safetensors.99999.tmp").write_bytes(b"half of a p")  # as a killed process leaves it
    encoder.fails_after, encoder.seen = 10**9, 0
    embedded(source, out, encoder, patches="float16")
    assert encoder.seen == 40 - PART + PROBE, "the first part is not made again"
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    assert {path.name: path.read_bytes() for path in out.parent.iterdir()} == whole


def test_a_process_killed_while_it_joins_has_only_to_join_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, encoder, out = folder(tmp_path), MeanColor(), tmp_path / "cut" / "f.npy"
    embedded(source, tmp_path / "whole" / "f.npy")

    def killed(path: Path, collection: Any) -> None:
        path.with_name(path.name + ".names.txt").write_text("half of the nam")
        path.with_name(f".{path.name}.99999.tmp").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setitem(files_module.FORMATS, ".npy", (killed, files_module.FORMATS[".npy"][1]))
        with pytest.raises(KeyboardInterrupt):
            embedded(source, out, encoder)
    assert not out.exists()
    encoder.seen = 0
    embedded(source, out, encoder)
    assert encoder.seen == PROBE
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    assert {path.name: path.read_bytes() for path in out.parent.iterdir()} == whole


def test_a_part_that_was_cut_short_on_disk_is_made_again(tmp_path: Path) -> None:
    source, encoder, out = folder(tmp_path), MeanColor(), tmp_path / "f.npy"
    encoder.fails_after = 39 + PROBE
    with pytest.raises(KeyboardInterrupt):
        embedded(source, out, encoder)
    part = tmp_path / "f.npy.parts" / "part-000000000.safetensors"
    part.write_bytes(part.read_bytes()[:-8])
    encoder.fails_after, encoder.seen = 10**9, 0
    embedded(source, out, encoder)
    assert encoder.seen == 40 - PART + PROBE
    assert np.array_equal(np.load(out), extract_features(MeanColor(), source, replace(HOW, batch_size=40)).vectors)


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), OSError(30, "Read-only file system")])
def test_where_writing_fails_the_finished_parts_are_kept(
    failure: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, encoder, out = folder(tmp_path), MeanColor(), tmp_path / "f.npy"
    with monkeypatch.context() as patched:

        def fail(*given: Any) -> None:
            raise failure

        patched.setattr(np.lib.format, "write_array_header_1_0", fail)
        with pytest.raises(UserError, match=r"(No room left|Read-only).* parts are kept in .*f.npy.parts"):
            embedded(source, out, encoder)
    assert PartsFolder(tmp_path / "f.npy.parts").finished() == {0, 1, 2} and not out.exists()
    encoder.seen = 0
    embedded(source, out, encoder)
    assert encoder.seen == PROBE and len(np.load(out)) == 40


def test_parts_of_another_encoder_settings_or_data_are_refused_unless_overwritten(tmp_path: Path) -> None:
    source, out = folder(tmp_path), tmp_path / "f.npy"
    encoder = MeanColor()
    encoder.fails_after = 30
    with pytest.raises(KeyboardInterrupt):
        embedded(source, out, encoder)
    with pytest.raises(UserError, match=r"f.npy.parts was started with fingerprint=.* overwrite=true"):
        embedded(source, out, MeanColor(2.0))
    with pytest.raises(UserError, match=r"started with image_size=32x32 \(now 16x24\)"):
        embedded(source, out, how=replace(HOW, image_size=(16, 24)))
    with pytest.raises(UserError, match=r"started with patches=none \(now float16\)"):
        embedded(source, out, patches="float16")
    (tmp_path / "pictures" / "first" / "003.png").write_bytes((tmp_path / "pictures/first/004.png").read_bytes())
    with pytest.raises(UserError, match="started with content="):
        embedded(open_source(str(tmp_path / "pictures")), out)
    embedded(open_source(str(tmp_path / "pictures")), out, MeanColor(2.0), overwrite=True)
    features = np.load(out)
    assert np.array_equal(features[3], features[4])
    np.testing.assert_allclose(
        features[5], 2 * extract_features(MeanColor(), source, HOW).vectors[5].numpy(), rtol=1e-5
    )


def test_what_exists_is_replaced_only_when_that_is_asked_for(tmp_path: Path) -> None:
    source, out = folder(tmp_path), tmp_path / "f.npy"
    embedded(source, out, patches="float16")
    before = out.read_bytes()
    with pytest.raises(UserError, match=r"f.npy exists already. Replace it with overwrite=true"):
        embedded(source, out, MeanColor(2.0))
    out.unlink()
    with pytest.raises(UserError, match=r"f\.npy\.names\.txt exists already"):  # nobody's, as far as can be told
        embedded(source, out)
    embedded(source, out, MeanColor(2.0), overwrite=True)
    assert out.read_bytes() != before
    assert not (tmp_path / "f.npy.patches.npy").exists(), "what no longer belongs to it is gone"
