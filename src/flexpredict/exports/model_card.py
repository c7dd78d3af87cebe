"""The README.md of an exported encoder: what it is, how to use it, where it came from, what was measured."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import yaml

from flexpredict import __version__
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.exports.format import Format, quoted
from flexpredict.exports.verification import Difference
from flexpredict.model.encoder import heads_of, norm_eps_of
from flexpredict.runs.result_files import read_result, unusual_settings
from flexpredict.runs.run_folder import RunFolder
from flexpredict.runs.run_record import Run, read_run


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
    """The card as Markdown with YAML front matter, limited to known facts.

    name: of the exported file or folder; notes: about the export, a sentence each.
    """
    record = None if run is None else read_run(run.path)
    vit, (height, width) = encoder.encoder.vit, encoder.image_size
    return (
        _templates()
        .get_template("model_card.md.j2")
        .render(
            version=__version__,
            name=name,
            quoted_name=quoted(name),
            front_matter=_front_matter(kind, record, license),
            encoder=encoder,
            vit=vit,
            height=height,
            width=width,
            size=f"{height}x{width}",
            grid="{}x{}".format(*encoder.encoder.grid),
            heads=heads_of(vit),
            parameters=sum(tensor.numel() for tensor in vit.state_dict().values()),
            eps=f"{norm_eps_of(vit):g}",
            load=kind.load(encoder, name),
            usage=kind.usage,
            pooling="patch_features.mean(dim=1)" if encoder.pooling == "mean" else "tokens[:, 0]",
            notes=notes,
            recipe={} if record is None or run is None else _recipe(record, run),
            settings="" if record is None else yaml.safe_dump(record.config, sort_keys=False, allow_unicode=True),
            results=[row for result in (measured or Measured()).results for row in _rows(result)],
            license=license,
            difference=difference,
            fingerprint=fingerprint,
            **kind.usage_facts(encoder),
        )
    )


@cache
def _templates() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("flexpredict.exports"),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters |= {"cell": _cell, "repr": repr, "thousands": "{:,}".format}
    return templates


def _cell(value: Any) -> str:
    """The value as a cell of a Markdown table."""
    return " ".join(str(value).replace("|", "\\|").split())


def _front_matter(kind: Format, record: Run | None, license: str | None) -> str:
    tags = ["vision-transformer", "feature-extraction"]
    if record is not None:
        tags += ["self-supervised-learning", str(record.config["method"])]
        if record.config["positions"]["kind"] == "stochastic":
            tags.append("stochastic-positions")
    facts: dict[str, Any] = {"library_name": kind.library, "pipeline_tag": "image-feature-extraction", "tags": tags}
    if license:
        facts["license"] = license.lower()
    return yaml.safe_dump(facts, sort_keys=False)


def _recipe(record: Run, run: RunFolder) -> dict[str, str]:
    """Known facts about the training besides its settings."""
    environment = record.environment
    return {
        "data": _words(record.config.get("data")),
        "images": _images(run),
        **{name: _words(environment.get(name)) for name in ("device", "precision", "date")},
        "versions": ", ".join(f"{name} {version}" for name, version in environment.get("versions", {}).items()),
    }


def _images(run: RunFolder) -> str:
    try:
        content = json.loads(run.data.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    count = content.get("images") if isinstance(content, dict) else None
    return f"{count:,}" if isinstance(count, int) else ""


def _words(value: Any) -> str:
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def collect_results(name: str, fingerprint: str, place: Path | None) -> Measured:
    """Results in JSON files that evaluations wrote: one file, or all in a folder and below it.

    name: the name the encoder was opened by; fingerprint: of its weights.
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
        # A name is not enough: training may have continued since, and the context encoder has the same name.
        measured_on = result["protocol"].get("fingerprint")
        same_name = result["protocol"].get("encoder") == name
        if measured_on == fingerprint or (same_name and measured_on is None):
            found.append(result)
        elif same_name:
            others += 1
    return Measured(tuple(found), others)


def _rows(result: dict[str, Any]) -> list[list[str]]:
    """A table row for each number."""
    settings = ", ".join(unusual_settings(result["protocol"])) or "as usual"
    before = [result["task"], result.get("data", ""), settings]
    return [[*before, name, f"{value:.2f}"] for name, value in result["numbers"].items()]
