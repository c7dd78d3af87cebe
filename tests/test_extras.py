"""A library that only some commands need is named when it is missing, by the extra that installs it."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flexpredict import UserError, export, load, serve
from flexpredict.data.sources.opening import open_source

ROOT = Path(__file__).parents[1]


def test_every_extra_that_is_named_exists() -> None:
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.findall(r"^(\w+) = \[", settings.split("[project.optional-dependencies]\n")[1], flags=re.MULTILINE)
    files = [*(ROOT / "src").rglob("*.py"), ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for file in files for name in re.findall(r"flexpredict\[(\w+)\]", file.read_text(encoding="utf-8"))}
    assert named == {"hf", "onnx", "serve"} <= set(extras)


@pytest.mark.parametrize(
    ("library", "extra", "use"),
    [
        ("transformers", "hf", lambda run, out: load("hf:some/model")),
        ("transformers", "hf", lambda run, out: export(run, format="hf", out=out)),
        ("datasets", "hf", lambda run, out: open_source("hf://some/data")),
        ("onnxscript", "onnx", lambda run, out: export(run, format="onnx", out=out.with_suffix(".onnx"))),
        ("uvicorn", "serve", lambda run, out: serve(out.parent)),
    ],
)
def test_a_missing_library_is_named_with_its_extra(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    library: str,
    extra: str,
    use: Callable[[Path, Path], object],
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    with pytest.raises(UserError, match=rf"pip install 'flexpredict\[{extra}\]'"):
        use(finished, tmp_path / "out")
    assert not any(tmp_path.iterdir()), "nothing is left"
