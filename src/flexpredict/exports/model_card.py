"""The README.md of an exported encoder: what it is, how to use it, where it came from, what was measured."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from flexpredict import __version__
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.exports.format import Format
from flexpredict.exports.verification import Difference
from flexpredict.model.encoder import heads_of, norm_eps_of
from flexpredict.runs.result_files import read_result, unusual_settings
from flexpredict.runs.run_folder import RunFolder
from flexpredict.runs.run_record import Run, read_run

_CITATION = """\
@inproceedings{bar2024stochastic,
  title     = {Stochastic positional embeddings improve masked image modeling},
  author    = {Bar, Amir and Bordes, Florian and Shocher, Assaf and Assran, Mahmoud and Vincent, Pascal and
               Ballas, Nicolas and Darrell, Trevor and Globerson, Amir and LeCun, Yann},
  booktitle = {International Conference on Machine Learning},
  year      = {2024},
  url       = {https://arxiv.org/abs/2308.00566}
}"""


@dataclass(frozen=True)
class Measured:
    """Results of this encoder, and the number of those that had its name but other weights."""

    results: tuple[dict[str, Any], ...] = ()
    of_other_weights: int = 0


def model_card(
    encoder: ViTEncoder,
    kind: Format,
    name: str,
    *,
    fingerprint: str,
    difference: Difference,
    notes: tuple[str, ...] = (),
    run: RunFolder | None = None,
    measured: Measured | None = None,
    license: str | None = None,
) -> str:
    """The card as Markdown with YAML front matter. It says what is known and no more.

    Args:
        name: of the exported file or folder.
        fingerprint: of what was exported.
        difference: between original and exported features.
        notes: about the export, a sentence each.
        run: that trained it.
        measured: results of this encoder.
        license: of the weights.
    """
    record = None if run is None else read_run(run.path)
    sections = {
        "What it is": _table(("", ""), _facts(encoder).items()),
        "How to use it": _usage(encoder, kind, name, notes),
        "Data and recipe": _recipe(record, run),
        "Results": _results(measured or Measured()),
        "License": license or "Not stated.",
        "Where it came from": _source(encoder, fingerprint, difference),
    }
    if not encoder.name.startswith(("timm:", "hf:")):
        sections["Citation"] = "flexpredict implements the method of\n\n" + _code("bibtex", _CITATION)
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())
    return f"{_front_matter(kind, record, license)}\n# {name}\n\n{_summary(encoder)}\n\n{body}\n"


def _front_matter(kind: Format, record: Run | None, license: str | None) -> str:
    tags = ["vision-transformer", "feature-extraction"]
    if record is not None:
        tags += ["self-supervised-learning", str(record.config["method"])]
        if record.config["positions"]["kind"] == "stochastic":
            tags.append("stochastic-positions")
    facts: dict[str, Any] = {"library_name": kind.library, "pipeline_tag": "image-feature-extraction", "tags": tags}
    if license:
        facts["license"] = license.lower()
    return f"---\n{yaml.safe_dump(facts, sort_keys=False)}---\n"


def _summary(encoder: ViTEncoder) -> str:
    height, width = encoder.image_size
    return (
        f"A vision transformer that makes features of images: {encoder.dim} numbers for each of the "
        f"{encoder.encoder.grid[0]}x{encoder.encoder.grid[1]} patches of a {height}x{width} image, and one vector "
        "for the whole."
    )


def _facts(encoder: ViTEncoder) -> dict[str, str]:
    vit, spec = encoder.encoder.vit, encoder.spec
    parameters = sum(tensor.numel() for tensor in vit.state_dict().values())
    prefix = [] if vit.cls_token is None else ["a class token"]
    prefix += [] if vit.reg_token is None else [f"{vit.reg_token.shape[1]} registers"]
    height, width = encoder.image_size
    built = {} if spec is None else {"built as": f"timm's {spec.model}, {spec.options or 'as it is'}"}
    return {
        "encoder": encoder.what,
        **built,
        "size": f"{encoder.depth} blocks, {encoder.dim} features, {heads_of(encoder.encoder.vit)} heads",
        "parameters": f"{parameters:,} (positions included)",
        "images": f"{height}x{width} pixels, mean {list(encoder.mean)}, standard deviation {list(encoder.std)}",
        "patches": f"{encoder.patch_size[0]}x{encoder.patch_size[1]} pixels, {encoder.encoder.grid[0]}x"
        f"{encoder.encoder.grid[1]} of them",
        "positions": _positions(encoder),
        "other tokens": " and ".join(prefix) or "none",
        "ε of layer norms": f"{norm_eps_of(vit):g}",
        "one vector an image": {"mean": "mean of the patches", "class": "the class token"}[encoder.pooling],
    }


def _positions(encoder: ViTEncoder) -> str:
    words = {"sincos": "sines and cosines, fixed", "learned": "learned", "relative": "relative, learned"}
    # A BEiT may have learned ones besides.
    both = encoder.encoder.positions == "relative" and encoder.encoder.vit.pos_embed is not None
    return words[encoder.encoder.positions] + (", and learned ones of the patches" if both else "")


def _usage(encoder: ViTEncoder, kind: Format, name: str, notes: tuple[str, ...]) -> str:
    return "\n\n".join([_code("python", kind.usage(encoder, name)), *notes])


def _recipe(record: Run | None, run: RunFolder | None) -> str:
    if record is None or run is None:
        return "Not known: the encoder was exported without the run that trained it."
    environment, config = record.environment, record.config
    facts = {
        "data": _words(config.get("data")),
        "images": _images(run),
        "device": _words(environment.get("device")),
        "precision": _words(environment.get("precision")),
        "date": _words(environment.get("date")),
        "versions": ", ".join(f"{name} {version}" for name, version in environment.get("versions", {}).items()),
    }
    known = _table(("", ""), [(name, value) for name, value in facts.items() if value])
    settings = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    return f"{known}\n\nAll settings:\n\n{_code('yaml', settings)}"


def _images(run: RunFolder) -> str:
    try:
        content = json.loads(run.data.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    count = content.get("images") if isinstance(content, dict) else None
    return f"{count:,}" if isinstance(count, int) else ""


def _source(encoder: ViTEncoder, fingerprint: str, difference: Difference) -> str:
    lines = [
        f"Exported by flexpredict {__version__} from `{encoder.name}`. On the same images, the largest difference "
        f"between the features of the original and of this export was {difference}.",
        f"Fingerprint of what it was made from: `{fingerprint}`.",
    ]
    return "\n\n".join([*lines, *encoder.details])


def _words(value: Any) -> str:
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def collect_results(name: str, fingerprint: str, place: Path | None) -> Measured:
    """Results in JSON files that evaluations wrote: one file, or all in a folder and below it.

    name: by which the encoder was opened; fingerprint: of its weights.
    """
    if place is None:
        return Measured()
    if not place.exists():
        raise UserError(
            f"results={place} does not exist. Name the folder that the evaluations wrote to, or leave it out."
        )
    found: list[dict[str, Any]] = []
    others = 0
    for file in sorted(place.rglob("*.json")) if place.is_dir() else [place]:
        result = read_result(file)
        if result is None:
            if file == place:
                raise UserError(f"results={file} is not a result of an evaluation. Name one, or a folder of them.")
            continue
        # A name is not enough: training may have gone on since, and the context encoder has the same one.
        measured_on = result["protocol"].get("fingerprint")
        same_name = result["protocol"].get("encoder") == name
        if measured_on == fingerprint or (same_name and measured_on is None):
            found.append(result)
        elif same_name:
            others += 1
    return Measured(tuple(found), others)


def _results(measured: Measured) -> str:
    """The results as a Markdown table."""
    if not measured.results:
        return "No results were given."
    rows = [
        (result["task"], str(result.get("data", "")), _settings(result), name, f"{value:.2f}")
        for result in measured.results
        for name, value in result["numbers"].items()
    ]
    return _table(("task", "data", "settings", "measure", "value"), rows)


def _settings(result: dict[str, Any]) -> str:
    return ", ".join(unusual_settings(result["protocol"])) or "as usual"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns named "value" are aligned to the right."""
    rules = ["---:" if name == "value" else "---" for name in header]
    return "\n".join([_row(header), f"|{'|'.join(rules)}|", *map(_row, rows)])


def _code(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _row(cells: Sequence[str]) -> str:
    escaped = [" ".join(cell.replace("|", "\\|").split()) for cell in cells]
    return f"| {' | '.join(escaped)} |"
