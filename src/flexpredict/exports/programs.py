"""Traced programs with their weights, for runtimes that need no model code: `.pt2` for torch, `.onnx` for others.

They map pixel_values B 3 H W to patch_features B N D and pooled B D.
"""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.exports.format import (
    Format,
    Outputs,
    Reader,
    normalized,
    outputs_of_tokens,
    quoted,
    weights_of,
)
from flexpredict.exports.verification import TRACED_IMAGES
from flexpredict.runs.run_folder import RunFolder

OUTPUTS = ("patch_features", "pooled")
_LARGEST = 2**31 - 2**20  # bytes of a protobuf message, with some room for the graph


def trace(encoder: ViTEncoder) -> torch.export.ExportedProgram:
    """A program for any number of images of the encoder's size."""
    example = torch.zeros(TRACED_IMAGES, 3, *encoder.image_size)
    shapes = {"pixel_values": {0: torch.export.Dim("batch")}}
    with torch.no_grad():
        return torch.export.export(_Features(encoder).eval(), (example,), dynamic_shapes=shapes)


def metadata(encoder: ViTEncoder) -> dict[str, str]:
    """Facts that callers of the program need, as JSON strings, which such files can hold."""
    values = {
        "mean": encoder.mean,
        "std": encoder.std,
        "image_size": encoder.image_size,
        "patch_size": encoder.patch_size,
        "pooling": encoder.pooling,
    }
    return {name: json.dumps(value) for name, value in values.items()}


def pixel_values(images: Tensor, metadata: dict[str, str]) -> Tensor:
    """images: B 3 H W uint8, normalized as the metadata of a file says."""
    return normalized(images, json.loads(metadata["mean"]), json.loads(metadata["std"]))


class _Features(nn.Module):
    def __init__(self, encoder: ViTEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        (tokens,) = self.encoder.encoder.last_tokens(pixel_values)
        patches, pooled = outputs_of_tokens(self.encoder, tokens)
        return patches, pooled


def _write_program(encoder: ViTEncoder, path: Path, run: RunFolder | None) -> tuple[str, ...]:
    # Opened here: torch wants a name that ends in .pt2, and this one is temporary.
    with path.open("wb") as file:
        torch.export.save(trace(encoder), file, extra_files=metadata(encoder))
    return ("Mean, standard deviation and image size are in it as extra files (mean, std, image_size …), as JSON.",)


def _read_program(encoder: ViTEncoder, path: Path) -> Reader:
    facts = dict.fromkeys(metadata(encoder), "")
    with path.open("rb") as file:
        program = torch.export.load(file, extra_files=facts).module()
    return lambda images: Outputs(*program(pixel_values(images, facts)))


def _load_program(encoder: ViTEncoder, name: str) -> str:
    return f"model = torch.export.load({quoted(name)}).module()"


def _check_onnx(encoder: ViTEncoder) -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(
            "format=onnx needs the onnx and onnxscript libraries: pip install 'flexpredict[onnx]'."
        ) from error
    size = sum(tensor.nbytes for tensor in weights_of(encoder).values())
    if size > _LARGEST:
        raise UserError(
            f"The weights of {encoder.what} take {size / 2**30:.1f} GiB, and one ONNX file holds no more than 2 GiB. "
            "Use format=torch-export."
        )


def _write_onnx(encoder: ViTEncoder, path: Path, run: RunFolder | None) -> tuple[str, ...]:
    # The exporter decomposes attention into products and a softmax. Later operations must expect their memory layout,
    # not that of the kernel that torch would run: with a bias they differ.
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
        warnings.simplefilter("ignore")  # about the exporter's own code
        program = torch.onnx.export(
            trace(encoder), dynamo=True, input_names=["pixel_values"], output_names=list(OUTPUTS), verbose=False
        )
    assert program is not None
    program.model.metadata_props.update(metadata(encoder))
    program.save(str(path), external_data=False)
    opset = program.model.opset_imports[""]
    runtime = "onnxruntime" if _has_runtime() else "onnx's reference evaluator (onnxruntime is not installed)"
    return (
        f"Opset {opset}; any number of images at a time, of {encoder.image_size[0]}x{encoder.image_size[1]} pixels.",
        "Mean, standard deviation and image size are in its metadata (mean, std, image_size …), as JSON.",
        f"Checked by {runtime}.",
    )


def _read_onnx(encoder: ViTEncoder, path: Path) -> Reader:
    run, facts = _opened(path)

    def outputs(images: Tensor) -> Outputs:
        found = run(None, {"pixel_values": pixel_values(images, facts).numpy()})
        return Outputs(*(torch.as_tensor(array) for array in found))

    return outputs


def _opened(path: Path) -> tuple[Callable[..., list[Any]], dict[str, str]]:
    """A function that runs the file, and its metadata."""
    if _has_runtime():
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return session.run, session.get_modelmeta().custom_metadata_map
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(str(path))
    return ReferenceEvaluator(model).run, {entry.key: entry.value for entry in model.metadata_props}


def _has_runtime() -> bool:
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return False
    return True


def _load_onnx(encoder: ViTEncoder, name: str) -> str:
    return f"session = onnxruntime.InferenceSession({quoted(name)})"


TORCH_EXPORT = Format(
    library="pytorch",
    suffixes=(".pt2",),
    write=_write_program,
    read=_read_program,
    load=_load_program,
    usage="use_torch_export.py.j2",
)
ONNX = Format(
    library="onnx",
    suffixes=(".onnx",),
    check=_check_onnx,
    write=_write_onnx,
    read=_read_onnx,
    load=_load_onnx,
    usage="use_onnx.py.j2",
)
