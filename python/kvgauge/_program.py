# SPDX-License-Identifier: Apache-2.0
"""The program's commands, called from Python."""

import codecs
import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import re
import sys
import tempfile
import termios
import threading
import tty
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


def _terminal_like(descriptor):
    """A pair of descriptors like a pipe, whose second is a terminal of the size of another one."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    size = fcntl.ioctl(descriptor, termios.TIOCGWINSZ, bytes(8))
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
    return ours, theirs


@contextlib.contextmanager
def _piped(descriptor, take, terminal=False):
    """Sends what the process writes to a descriptor to `take`, as it comes."""
    saved = os.dup(descriptor)
    ours, theirs = _terminal_like(saved) if terminal else os.pipe()
    os.dup2(theirs, descriptor)
    os.close(theirs)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def pump():
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # a terminal whose other end is closed
                chunk = b""
            take(decoder.decode(chunk, not chunk))
            if not chunk:
                break
        os.close(ours)

    thread = threading.Thread(target=pump)
    thread.start()
    try:
        yield saved
    finally:
        os.dup2(saved, descriptor)
        thread.join()
        os.close(saved)


def _is_own(stream, descriptor):
    """Whether a stream of Python is that of the process, which a notebook's is not."""
    try:
        return stream.fileno() == descriptor
    except (OSError, ValueError, AttributeError):
        return False


def _message_of(text):
    """What is left on a terminal: no line that another one overwrote, no colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[^\n]*\r(?!\n)", "", text).strip()


def captured(arguments, show=False):
    """Runs a command; returns its standard output. Its errors become exceptions.

    show: what it writes to standard error goes there as it comes. In a terminal, progress stays one
    line; in a notebook it appears below the cell.
    """
    output, errors = [], []
    own = _is_own(sys.stderr, 2)

    def take_error(text):
        errors.append(text)
        if not show:
            return
        if own:
            os.write(shown, text.encode())
        else:
            sys.stderr.write(text)

    sys.stdout.flush()
    sys.stderr.flush()
    terminal = show and own and os.isatty(2)
    with _piped(1, output.append), _piped(2, take_error, terminal) as shown:
        code = _kvgauge.run_command([os.fspath(argument) for argument in arguments])
    if code != 0:
        said = _message_of("".join(errors)) or "".join(output).strip()
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


def method(id, *, title=None, family="composition", paper=None, protect=None, place=None,
           **stages):
    """Composes a method: `method("mine", score="short_keys", allocate="pyramid")`.

    A stage is an id, or a dict with `id` and parameters. With a score, the default of `reduce` is
    `top_k`. `protect` and `place` are dicts of their keys. See docs/formats/methods.md.

    >>> method("mine", score={"id": "knorm"}).content["stages"]
    {'score': {'id': 'knorm'}, 'reduce': {'id': 'top_k'}}
    >>> method("mine", scores="knorm")
    Traceback (most recent call last):
    kvgauge._program.BadInput: method 'mine': no stage kind 'scores'; the kinds are prepare, score, \
allocate, reduce, store, read, narrow, trigger
    """
    kinds = ("prepare", "score", "allocate", "reduce", "store", "read", "narrow", "trigger")
    unknown = sorted(set(stages) - set(kinds))
    if unknown:
        raise BadInput(f"method {id!r}: no stage kind {unknown[0]!r}; the kinds are {', '.join(kinds)}")
    content = {"id": id, "title": title or id, "family": family, "experimental": True}
    if paper:
        content["paper"] = paper
    if protect:
        content["protect"] = dict(protect)
    if place:
        content["place"] = dict(place)
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
    """The plan of a run, which is not run: what it costs, or a BadInput that says what is wrong.

    >>> plan = check(model="models/ref-gqa", task="reference/needle", method="snapkv",
    ...              budget="10%,20%", limit=2)
    >>> plan["cells"], plan["refused"]  # the full cache and two budgets, two samples each
    (6, [])
    """
    with _arguments(config, model, task, method, budget, None, flags) as arguments:
        return json.loads(captured(["run", *arguments, "--dry-run", "--json"]))
