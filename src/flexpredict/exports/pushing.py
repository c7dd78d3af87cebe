"""Uploads an export with its card to the Hugging Face Hub."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi, errors, get_token
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from flexpredict.errors import UserError, in_a_line


def check_push(name: str) -> None:
    """Refuse a name that cannot be uploaded to, before anything is exported."""
    try:
        validate_repo_id(name)
    except errors.HFValidationError as error:
        raise UserError(f"push={name} is not the name of a model on the Hub: use USER/NAME.") from error
    if name.count("/") != 1:
        raise UserError(f"push={name} does not say whose model it is: use USER/NAME.")
    if get_token() is None:
        raise UserError(
            f"push={name} needs an access token of the Hugging Face Hub. Run `hf auth login` once, or set HF_TOKEN."
        )


def push(name: str, out: Path, card: Path, *, private: bool = False) -> str:
    """Upload a folder, or a file and its card, as one commit. Returns the address of the model."""
    files = [file for file in sorted(out.rglob("*")) if file.is_file()] if out.is_dir() else [out]
    operations = [CommitOperationAdd(_place(file, out), file) for file in files if file != card]
    operations.append(CommitOperationAdd("README.md", card))
    with _failures_explained(name, out):
        api = HfApi()
        created = api.create_repo(name, private=private, exist_ok=True)
        api.create_commit(name, operations, commit_message=f"Upload {out.name}")
    return str(created)


def _place(file: Path, out: Path) -> str:
    return file.relative_to(out).as_posix() if out.is_dir() else file.name


@contextmanager
def _failures_explained(name: str, out: Path) -> Iterator[None]:
    try:
        yield
    # HTTPError comes from the HTTP library of huggingface_hub, which differs between its versions.
    except (OSError, errors.HTTPError) as error:  # type: ignore[attr-defined]
        raise UserError(
            f"push={name} failed: {in_a_line(error, 200)} The export itself is whole, in {out}: "
            f"repeat with overwrite=true, or upload it with `hf upload {name} {out}`."
        ) from error
