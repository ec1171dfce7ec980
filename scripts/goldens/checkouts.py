# SPDX-License-Identifier: Apache-2.0
"""Repositories of authors, OWNER+NAME in a folder, and what runs of their modules without the rest."""

import ast
import subprocess
import sys
import types


class Checkout:
    def __init__(self, root, name, commit):
        self.path, self.name = root / name.replace("/", "+"), f"{name} {commit}"
        command = ["git", "-C", str(self.path), "rev-parse", "HEAD"]
        at = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        if not at.startswith(commit):
            sys.exit(f"{self.path} is at {at or 'nothing'}, not at {commit}")


def definitions(path, names, given):
    """Some functions and classes of a module whose imports are not needed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kept = [node for node in tree.body if getattr(node, "name", None) in names]
    module = types.ModuleType(path.stem)
    sys.modules[path.stem] = module  # dataclasses look their module up
    module.__dict__.update(given)
    exec(compile(ast.Module(kept, []), str(path), "exec"), module.__dict__)
    return module


class Substituted:
    """torch, but for a few functions: what the authors' code writes out for one model."""

    def __init__(self, **functions):
        self.__dict__.update(functions)

    def __getattr__(self, name):
        import torch

        return getattr(torch, name)
