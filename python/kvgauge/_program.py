# SPDX-License-Identifier: Apache-2.0
"""The program's commands, called from Python."""

import contextlib
import dataclasses
import json
import os
import pathlib
import sys
import tempfile
import threading
import typing

from . import _kvgauge
from ._results import Store


class Failed(Exception):
    """A command ended with exit code 1; the message is what it wrote to standard error."""


class BadInput(ValueError):
    """A command ended with exit code 2: a file, an argument or a value is wrong."""


def say_error(message):
    """Writes a message as the program does; returns the exit code of bad input."""
    print(f"kvgauge: {message}", file=sys.stderr)
    return 2


def command(arguments):
    """Runs one command line in this process, output to the process's own; returns the exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    return _kvgauge.run_command([os.fspath(argument) for argument in arguments])


@contextlib.contextmanager
def _piped(descriptor, take):
    """Sends what the process writes to a descriptor to `take`, as it comes."""
    saved = os.dup(descriptor)
    ours, theirs = os.pipe()
    os.dup2(theirs, descriptor)
    os.close(theirs)

    def pump():
        with os.fdopen(ours, "rb", buffering=0) as source:
            while chunk := source.read(65536):
                take(chunk.decode(errors="replace"))

    thread = threading.Thread(target=pump)
    thread.start()
    try:
        yield
    finally:
        os.dup2(saved, descriptor)
        os.close(saved)
        thread.join()


def _has_no_terminal():
    """Whether Python's output goes elsewhere than the process's, as in a notebook."""
    try:
        return sys.stdout.fileno() != 1
    except (OSError, ValueError, AttributeError):
        return True


def captured(arguments, show=False):
    """Runs a command; returns its standard output. Its errors become exceptions."""
    output, errors = [], []

    def take_error(text):
        errors.append(text)
        if show:
            sys.stderr.write(text)

    sys.stdout.flush()
    sys.stderr.flush()
    with _piped(1, output.append), _piped(2, take_error):
        code = _kvgauge.run_command([os.fspath(argument) for argument in arguments])
    if code != 0:
        said = "".join(errors).strip() or "".join(output).strip()
        raise (BadInput if code == 2 else Failed)(said)
    return "".join(output)


@dataclasses.dataclass(frozen=True)
class Method:
    """A method composed of stages, as a method file says it."""

    id: str
    content: dict

    def write(self, directory):
        path = pathlib.Path(directory) / f"{self.id}.json"
        path.write_text(json.dumps(self.content, indent=2))
        return str(path)


def _stage(value):
    return {"id": value} if isinstance(value, str) else dict(value)


def method(id, *, title=None, family="composition", paper=None, protect=None, **stages):
    """Composes a method: `method("mine", score="short_keys", allocate="pyramid")`.

    A stage is an id, or a dict with `id` and parameters. With a score, the default of `reduce` is
    `top_k`. See docs/formats/methods.md.
    """
    kinds = ("prepare", "score", "allocate", "reduce", "store", "read", "trigger")
    unknown = sorted(set(stages) - set(kinds))
    if unknown:
        raise BadInput(f"method {id!r}: no stage kind {unknown[0]!r}; the kinds are {', '.join(kinds)}")
    content = {"id": id, "title": title or id, "family": family, "experimental": True}
    if paper:
        content["paper"] = paper
    if protect:
        content["protect"] = dict(protect)
    chosen = {kind: _stage(stages[kind]) for kind in kinds if kind in stages}
    if "score" in chosen:
        chosen.setdefault("reduce", {"id": "top_k"})
    content["stages"] = chosen
    return Method(id, content)


def _as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _method_names(value, directory):
    names = []
    for each in _as_list(value):
        if isinstance(each, Method):
            names.append(each.write(directory))
        elif isinstance(each, dict) and isinstance(each.get("method"), Method):
            names.append({**each, "method": each["method"].write(directory)})
        else:
            names.append(each)
    return names


@contextlib.contextmanager
def _arguments(config, model, task, method, budget, db, flags):
    """The arguments of `kvgauge run`; files that it needs live as long as the block."""
    with tempfile.TemporaryDirectory(prefix="kvgauge-") as directory:
        arguments = []
        if isinstance(config, dict):
            content = dict(config)
            if "methods" in content:
                content["methods"] = _method_names(content["methods"], directory)
            path = pathlib.Path(directory) / f"{content.get('name', 'run')}.json"
            path.write_text(json.dumps(content, indent=2))
            arguments.append(str(path))
        elif config is not None:
            arguments.append(os.fspath(config))
        given = {"model": model, "task": task, "budget": budget}
        for name, value in given.items():
            if value is not None:
                arguments += [f"--{name}", ",".join(os.fspath(v) for v in _as_list(value))]
        if method is not None:
            arguments += ["--method", ",".join(_method_names(method, directory))]
        if db is not None:
            arguments += ["--db", os.fspath(db)]
        for name, value in flags.items():
            flag = "--" + name.replace("_", "-")
            if value is True:
                arguments.append(flag)
            elif value is not None and value is not False:
                for each in _as_list(value):
                    arguments += [flag, str(each)]
        yield arguments


Config = typing.Union[None, str, os.PathLike, dict]


def run(config: Config = None, *, model=None, task=None, method=None, budget=None, db=None,
        progress=True, **flags):
    """Runs methods on tasks, as `kvgauge run` does; returns the Store of the results.

    config: a run file, the name of a shipped one, or its content as a dict; without it model, task,
    method and budget say what to run. Other flags of the command go by name: `limit=10`. A repeated
    call goes on where the last one stopped.
    """
    with contextlib.ExitStack() as stack:
        if db is None:
            name = config.get("name", "run") if isinstance(config, dict) else config
            stem = pathlib.Path(os.fspath(name)).stem if name is not None else "python"
            db = pathlib.Path("results") / f"{stem}.db"
            db.parent.mkdir(exist_ok=True)
        arguments = stack.enter_context(
            _arguments(config, model, task, method, budget, db, flags)
        )
        captured(["run", *arguments], show=progress)
    return Store(db)


def check(config: Config = None, *, model=None, task=None, method=None, budget=None, **flags):
    """The plan of a run, which is not run: what it costs, or a BadInput that says what is wrong."""
    with _arguments(config, model, task, method, budget, None, flags) as arguments:
        return json.loads(captured(["run", *arguments, "--dry-run", "--json"]))
