"""The notebook under examples/ runs from top to bottom, and is stored without results."""

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "folder_to_encoder.ipynb"
TINY = {"IMAGES": 48, "TEST_IMAGES": 12, "SIZE": 32, "PATCH": 4, "WIDTH": 16, "DEPTH": 2, "EPOCHS": 1}


def code_cells() -> list[dict[str, Any]]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_runs_at_the_sizes_that_its_first_cell_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells()):
        exec(compile("".join(cell["source"]), f"code cell {number}", "exec"), names)
        if number == 0:
            assert names.keys() - {"__name__", "__builtins__"} == TINY.keys()
            names |= TINY
    assert (tmp_path / "runs" / "shapes" / "encoder.safetensors").is_file()
    assert names["vectors"].shape == (1, TINY["WIDTH"])
    assert set(names["result"].numbers) >= {"linear, 100 % labels", "20-NN"}
    assert (tmp_path / "similar.png").stat().st_size > 1000


def test_the_notebook_is_stored_without_results() -> None:
    for cell in code_cells():
        assert cell["outputs"] == [] and cell["execution_count"] is None, "".join(cell["source"])
