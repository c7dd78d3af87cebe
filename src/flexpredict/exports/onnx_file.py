"""An `.onnx` file: the traced program and its weights, for runtimes without torch."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.exports.card_code import code_with_pixels, quoted
from flexpredict.exports.format import Format, Outputs, Reader, weights_of
from flexpredict.exports.traced import OUTPUTS, metadata, pixel_values, shapes_comment, trace
from flexpredict.runs.run_folder import RunFolder

_LARGEST = 2**31 - 2**20  # bytes of a protobuf message, with some room for the graph


def _check(encoder: ViTEncoder) -> None:
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


def _write(encoder: ViTEncoder, path: Path, run: RunFolder | None) -> tuple[str, ...]:
    # The exporter takes attention apart into products and a softmax. What follows must have the memory layout of
    # those, and not of the kernel that torch would run: with a bias they differ.
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
        warnings.simplefilter("ignore")  # they are about the exporter's own code
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


def _read(encoder: ViTEncoder, path: Path) -> Reader:
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


def _load(encoder: ViTEncoder, name: str) -> str:
    return f"session = onnxruntime.InferenceSession({quoted(name)})"


def _usage(encoder: ViTEncoder, name: str) -> str:
    features = 'patch_features, pooled = session.run(None, {"pixel_values": pixel_values})'
    return code_with_pixels(
        encoder, "import onnxruntime", _load(encoder, name), f"{features}  {shapes_comment(encoder)}"
    )


FORMAT = Format("onnx", (".onnx",), (), _check, _write, _read, _load, _usage)
