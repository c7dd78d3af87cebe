"""Exports uploaded to a stand-in for the Hugging Face Hub."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from small_encoders import small

import flexpredict
from flexpredict import UserError
from flexpredict.exports import pushing


class Hub(ThreadingHTTPServer):
    """Takes files as the Hub does, and keeps them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.created: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.tokens: set[str] = set()
        self.broken = False


class Requests(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        sent = self.body()
        self.server.tokens.add(self.headers["Authorization"])
        address = f"http://127.0.0.1:{self.server.server_port}/me/encoder"
        if self.server.broken:
            self.answer({"error": "out of order"}, 403)
        elif self.path == "/api/repos/create":
            self.server.created.append(json.loads(sent))
            self.answer({"url": address})
        elif self.path.endswith("/preupload/main"):
            files = json.loads(sent)["files"]
            regular = {"uploadMode": "regular", "shouldIgnore": False}
            self.answer({"files": [{"path": file["path"], **regular} for file in files]})
        elif self.path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        else:
            for line in map(json.loads, sent.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self.answer({"commitUrl": f"{address}/commit/1", "commitOid": "1", "success": True})

    def body(self) -> bytes:
        if "Content-Length" in self.headers:
            return self.rfile.read(int(self.headers["Content-Length"]))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def answer(self, content: dict[str, Any], status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *ignored: Any) -> None: ...


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(pushing, "HfApi", lambda: HfApi(endpoint=endpoint, token="secret"))
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("format", ["timm", "official"])
def test_an_export_is_uploaded_with_its_card(hub: Hub, tmp_path: Path, format: str) -> None:
    out = tmp_path / ("out" if format == "timm" else "encoder.pth.tar")
    result = flexpredict.export(small(), format, out, push="me/encoder", private=True)
    written = {file.name: file.read_bytes() for file in (out.iterdir() if out.is_dir() else [out])}
    written["README.md"] = result.card.read_bytes()
    assert hub.files == written and len(written) > 1
    (asked,) = hub.created
    assert (asked["organization"], asked["name"]) == ("me", "encoder")
    assert asked.get("private") or asked["visibility"] == "private"  # by the version of the hub's library
    assert hub.tokens == {"Bearer secret"}
    assert result.pushed and result.pushed.endswith("me/encoder") and result.to_dict()["pushed"] == result.pushed


def test_a_failed_upload_leaves_the_export_and_says_how_to_go_on(hub: Hub, tmp_path: Path) -> None:
    hub.broken = True
    with pytest.raises(UserError, match=r"push=me/encoder failed: .* whole, in .*hf upload me/encoder"):
        flexpredict.export(small(), "timm", tmp_path / "out", push="me/encoder")
    assert (tmp_path / "out" / "README.md").is_file()


@pytest.mark.parametrize("name", ["encoder", "me/en coder", "a/b/c", "../me"])
def test_names_that_the_hub_does_not_know_are_refused_first(hub: Hub, tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="use USER/NAME"):
        flexpredict.export("nothing.pth", "timm", tmp_path / "out", push=name)


def test_without_a_token_nothing_is_exported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pushing, "get_token", lambda: None)
    with pytest.raises(UserError, match="needs an access token"):
        flexpredict.export(small(), "timm", tmp_path / "out", push="me/encoder")
    assert not (tmp_path / "out").exists()
