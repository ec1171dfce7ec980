# SPDX-License-Identifier: Apache-2.0
"""Functions of reference code about pictures, taken out of their files so that none of the packages
around them is needed."""

import ast
import pathlib
import types


def functions(path, names, given):
    """The named functions and classes of a file, in a module of their own; "method@Class" is a method
    of that class alone."""
    tree = ast.parse(pathlib.Path(path).read_text())
    plain = {name for name in names if "@" not in name}
    wanted = [node for node in ast.walk(tree)
              if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in plain]
    for name in names - plain:
        method, owner = name.split("@")
        held = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == owner)
        wanted += [n for n in held.body if isinstance(n, ast.FunctionDef) and n.name == method]
    wanted += [node for node in tree.body if isinstance(node, ast.Assign)
               and any(getattr(t, "id", "") in plain for t in node.targets)]
    wanted.sort(key=lambda node: node.lineno)
    for node in wanted:
        if not isinstance(node, ast.Assign):
            node.decorator_list = []
    module = types.ModuleType("reference")
    module.__dict__.update(given)
    body = ast.Module(body=wanted, type_ignores=[])
    exec(compile(ast.fix_missing_locations(body), str(path), "exec"), module.__dict__)
    return module


def picture_names(messages):
    """A list of messages as kvgauge shows it: "[picture 1]" where the first picture stands."""
    out, pictures = "", 0
    for message in messages:
        if message["type"] == "image":
            pictures += 1
            out += f"[picture {pictures}]"
        else:
            out += message["value"]
    return out
