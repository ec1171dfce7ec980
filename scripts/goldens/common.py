# SPDX-License-Identifier: Apache-2.0
"""Helpers shared by the golden makers: paths, JSON, seeds, version records."""

import hashlib
import json
import os
import pathlib
import platform

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"


def versions(*packages):
    """Installed versions of the packages that made a fixture."""
    import importlib.metadata as metadata

    out = {"python": platform.python_version()}
    for name in packages:
        out[name] = metadata.version(name)
    return out


def write_json(path, value, compact=False):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (
        json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if compact
        else json.dumps(value, ensure_ascii=False, indent=2)
    )
    path.write_text(text + "\n", encoding="utf-8")


def _header_and_rest(content):
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def save_file(tensors, path, metadata=None):
    """As safetensors.numpy's, which orders metadata by chance: a file that says the same already stays as it is."""
    from safetensors.numpy import save

    path, content = pathlib.Path(path), save(tensors, metadata)
    if not path.exists() or _header_and_rest(path.read_bytes()) != _header_and_rest(content):
        path.write_bytes(content)


def _rows(rows):
    body = ",\n".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in rows)
    return "[\n" + body + "\n]"


def write_json_rows(path, rows):
    """A list with one compact row a line: small files whose diffs can be read."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_rows(rows) + "\n", encoding="utf-8")


def write_json_cases(path, head, rows):
    """The object `head` with a last key `cases`, one compact row a line."""
    top = json.dumps(head, ensure_ascii=False, indent=2)[:-2]
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(top + ',\n  "cases": ' + _rows(rows) + "\n}\n", encoding="utf-8")


def write_json_keys(path, value):
    """An object with one compact key a line."""
    lines = (f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items())
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def directory_bytes(path):
    return sum(os.path.getsize(p) for p in pathlib.Path(path).rglob("*") if p.is_file())


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
