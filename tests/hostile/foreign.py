"""What is named like a picture, and is none."""

import base64
import bz2
import gzip
import io
import lzma
import pickle
import struct
import zipfile

from hostile.pieces import BROKEN, FOREIGN, FORMATS, TOO_LARGE, Files, Kinds, random_bytes, saved
from hostile.shards import tar_of


def empty_file() -> Files:
    return {f"nothing{suffix}": b"" for suffix in (*FORMATS, ".jpeg", ".tiff", ".jp2")}


def one_byte() -> Files:
    return {f"byte {byte:02X}.jpg": bytes([byte]) for byte in (0x00, 0x0A, 0x42, 0x47, 0x49, 0x50, 0x89, 0xFF)}


def text() -> Files:
    words = "You have reached your download limit. Please try again later.\n"
    return {
        "words.jpg": words.encode(),
        "words.png": ("\ufeff" + words).encode(),
        "words.webp": words.encode("utf-16"),
        "table.jpg": b"id,url,caption\n1,http://example.org/1.jpg,a cat\n" * 99,
        "pointer.png": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n",
        "json.jpg": b'{"error": {"code": 403, "message": "Forbidden"}}',
        "base64.png": base64.b64encode(saved("PNG")),
        "zeros.jpg": bytes(10_000),
    }


def web_page() -> Files:
    page = b"<!DOCTYPE html><html><head><title>404 Not Found</title></head><body>nginx</body></html>"
    xml = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'
    return {"404.png": page, "404.jpg": b"\n\n" + page, "404.gif": gzip.compress(page, mtime=0), "s3.webp": xml}


def svg() -> Files:
    drawing = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><image href="file:///etc/passwd"/></svg>'
    laughs = b'<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>' + drawing
    return {"drawing.png": drawing, "entities.png": laughs, "xml.jpg": b'<?xml version="1.0"?>' + drawing}


def postscript() -> Files:
    """Programs, which must not be run: PIL hands them to Ghostscript, if it is let."""
    box = b"%%BoundingBox: 0 0 9 9\n%%EndComments\n"
    program = b"(/tmp/hostile-was-here) (w) file closefile showpage\n"
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n" + box + program
    binary = b"\xc5\xd0\xd3\xc6" + struct.pack("<IIIIIIH", 30, len(eps), 0, 0, 0, 0, 0xFFFF) + eps
    return {"program.jpg": eps, "plain.png": b"%!PS\n" + box + program, "binary.jpg": binary, "page.tif": eps}


def archive_or_program() -> Files:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr(zipfile.ZipInfo("inside.jpg"), saved("JPEG"))
    return {
        "zip.jpg": archive.getvalue(),
        "tar.jpg": tar_of("inside.jpg", saved("JPEG")),
        "gzip.jpg": gzip.compress(saved("JPEG"), mtime=0),
        "bzip2.jpg": bz2.compress(saved("JPEG")),
        "xz.jpg": lzma.compress(saved("JPEG")),
        "program.jpg": b"\x7fELF\x02\x01\x01" + bytes(9) + random_bytes("program", 4000),
        "program.png": b"MZ\x90\0" + random_bytes("other program", 4000),
        "script.png": b"#!/bin/sh\ntouch /tmp/hostile-was-here\n",
        "pickle.jpg": pickle.dumps({"a": 1}),
        "document.jpg": b"%PDF-1.4\n1 0 obj <<>> endobj\ntrailer <<>>\n%%EOF",
        "film.jpg": b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + random_bytes("film", 2000),
        "sound.webp": b"RIFF\x24\x08\0\0WAVEfmt " + random_bytes("sound", 2000),
        "database.jpg": b"SQLite format 3\0" + bytes(84),
        "array.jpg": b"\x93NUMPY\x01\x00v\0{'descr': '|u1', 'fortran_order': False, 'shape': (4,)}\n1234",
    }


def picture_of_a_rare_kind() -> Files:
    """Formats that PIL knows, but that no folder of photographs is likely to mean."""
    psd = b"8BPS" + struct.pack(">H6xHIIHH", 1, 3, 4, 4, 8, 3) + bytes(14) + bytes(48)
    files = {"Photoshop.jpg": psd, "icon.png": saved("ICO"), "cursor.jpg": b"\0\0\2\0" + saved("ICO")[4:]}
    return files | {f"{rare}.jpg": saved(rare) for rare in ("TGA", "PCX", "SGI", "DDS")}


def noise() -> Files:
    counts = (2, 3, 10, 100, 1000, 10_000, 100_000)
    return {f"{count} bytes.jpg": random_bytes(f"noise {count}", count) for count in counts}


def signature_then_noise() -> Files:
    signatures = {
        ".jpg": b"\xff\xd8\xff",
        ".png": b"\x89PNG\r\n\x1a\n",
        ".gif": b"GIF89a",
        ".bmp": b"BM",
        ".tif": b"II*\0",
        " big.tif": b"MM\0*",
        ".webp": b"RIFF\xff\0\0\0WEBPVP8 ",
        ".avif": b"\0\0\0\x20ftypavif",
        ".jp2": b"\0\0\0\x0cjP  \r\n\x87\n",
        ".ppm": b"P6",
        " BigTIFF.tif": b"II+\0\x08\0\0\0",
    }
    return {f"noise{suffix}": start + random_bytes(f"behind {suffix}", 3000) for suffix, start in signatures.items()}


def junk_before_the_picture() -> Files:
    return {
        "newline.jpg": b"\n" + saved("JPEG"),
        "mail.png": b"Content-Type: image/png\r\n\r\n" + saved("PNG"),
        "byte order mark.gif": b"\xef\xbb\xbf" + saved("GIF"),
        "text mode.png": saved("PNG").replace(b"\r\n", b"\n"),
        "as unicode.jpg": saved("JPEG").decode("latin-1").encode(),
    }


KINDS: Kinds = {
    empty_file: "empty",
    one_byte: FOREIGN,
    text: FOREIGN,
    web_page: FOREIGN,
    svg: FOREIGN,
    postscript: FOREIGN,
    archive_or_program: FOREIGN,
    picture_of_a_rare_kind: FOREIGN,
    noise: FOREIGN,
    signature_then_noise: rf"{BROKEN}|{TOO_LARGE}",
    junk_before_the_picture: FOREIGN,
}
