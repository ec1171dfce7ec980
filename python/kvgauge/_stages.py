# SPDX-License-Identifier: Apache-2.0
"""Stages written in Python: the decorators, and what the extension module calls back."""

import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import inspect
import linecache
import os
import sys
import threading
import time
import traceback
import typing

from . import _kvgauge

_registered = {}


@dataclasses.dataclass(frozen=True)
class Range:
    """Bounds and help of a parameter: `window: Annotated[int, Range(1, 4096, "rows")] = 32`.

    >>> Range(1, 4096, "rows").most
    4096
    """

    least: typing.Optional[float] = None
    most: typing.Optional[float] = None
    help: str = ""


@dataclasses.dataclass
class AllocationRequest:
    """What an allocator is asked: how many entries each head may hold."""

    layers: int
    kv_heads: int
    length: int  # entries that every head holds now
    per_head: int  # what the budget gives a head on average, protected ones included
    protected: int  # entries of a head that stay in any case
    window: int  # prompt rows from which the scorer looks back; 0: none
    views: list  # one View a layer
    scores: list  # one array [kv_heads, length] a layer, protected entries infinite; or none


class StageTimeout(Exception):
    """A call of a stage took longer than its time limit."""


class _Watchdog:
    """Raises StageTimeout in a thread whose call takes too long.

    The exception arrives between two steps of the interpreter, so a call that never comes back from
    a library is not ended.
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.calls = {}  # thread -> its deadline
        self.thread = None

    @contextlib.contextmanager
    def limit(self, seconds):
        mine = threading.get_ident()
        with self.lock:
            self.calls[mine] = time.monotonic() + seconds
            if self.thread is None:
                self.thread = threading.Thread(target=self.watch, name="kvgauge", daemon=True)
                self.thread.start()
        try:
            yield
        finally:
            with self.lock:
                if self.calls.pop(mine, None) is None:
                    # Sent, but not here yet: the call has ended, and what follows is not to blame.
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(mine), None)

    def watch(self):
        while True:
            time.sleep(0.25)
            with self.lock:
                now = time.monotonic()
                for thread in [t for t, deadline in self.calls.items() if deadline < now]:
                    del self.calls[thread]
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(thread), ctypes.py_object(StageTimeout)
                    )


_watchdog = _Watchdog()


def _limited(function, seconds):
    """The function within its time, given those of the stage's parameters that it names."""
    parameters = inspect.signature(function).parameters
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())

    @functools.wraps(function)
    def call(*args, **kwargs):
        if not takes_all:
            kwargs = {name: value for name, value in kwargs.items() if name in parameters}
        try:
            with _watchdog.limit(seconds):
                return function(*args, **kwargs)
        except StageTimeout:
            raise StageTimeout(f"the call took longer than {seconds:g} s (time_limit)") from None

    return call


def describe_error(error, trace):
    """One line: the exception, and where in code outside of this package it came from."""
    here = os.path.dirname(os.path.abspath(__file__))
    frames = [
        f"{os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}"
        for frame in reversed(traceback.extract_tb(trace))
        if os.path.dirname(os.path.abspath(frame.filename)) != here
    ]
    text = " ".join("".join(traceback.format_exception_only(type(error), error)).split())
    return f"{text} ({', '.join(frames)})" if frames else text


def nbytes_of(state, _seen=None):
    """The bytes of all arrays that a reader's state holds."""
    seen = set() if _seen is None else _seen
    if id(state) in seen:
        return 0
    seen.add(id(state))
    size = getattr(state, "nbytes", None)
    if isinstance(size, int):
        return size
    if isinstance(state, dict):
        return sum(nbytes_of(value, seen) for value in state.values())
    if isinstance(state, (list, tuple, set)):
        return sum(nbytes_of(value, seen) for value in state)
    return nbytes_of(vars(state), seen) if hasattr(state, "__dict__") else 0


def _source_of(thing):
    """What makes another stage when it changes: the file that a thing comes from, or a notebook's
    cell; of a path the file itself."""
    if isinstance(thing, (str, os.PathLike)):
        with open(thing, "rb") as file:
            return file.read()
    path = inspect.getsourcefile(thing)
    if path is not None and os.path.exists(path):
        with open(path, "rb") as file:
            return file.read()
    if path is not None and path in linecache.cache:
        return "".join(linecache.getlines(path)).encode()
    try:
        return inspect.getsource(thing).encode()
    except OSError as error:
        raise ValueError(
            f"{thing.__qualname__}: its source is not known, so its results could not be told from "
            "those of another version; write it into a file or a notebook"
        ) from error


def _digest(things):
    digest = hashlib.sha256()
    for thing in things:
        source = _source_of(thing)
        digest.update(f"{len(source)} ".encode() + source)
    digest.update(f"python {sys.version_info[0]}.{sys.version_info[1]}".encode())
    return digest.hexdigest()


def _params_of(function, skip):
    """Parameters with defaults behind the first `skip`: those of the stage."""
    params, hints = [], typing.get_type_hints(function, include_extras=True)
    for name, parameter in list(inspect.signature(function).parameters.items())[skip:]:
        if parameter.default is inspect.Parameter.empty:
            raise TypeError(
                f"{function.__qualname__}: parameter {name!r} has no default; a stage's parameters "
                "have defaults, which method files change"
            )
        extras = getattr(hints.get(name), "__metadata__", ())
        bounds = next((extra for extra in extras if isinstance(extra, Range)), Range())
        help_text = bounds.help or next((e for e in extras if isinstance(e, str)), "")
        base = typing.get_args(hints[name])[0] if extras else hints.get(name)
        choices = [c for c in typing.get_args(base) if isinstance(c, str)]
        default = float(parameter.default) if base is float else parameter.default
        params.append(
            {
                "name": name,
                "default": default,
                "least": bounds.least,
                "most": bounds.most,
                "choices": choices,
                "help": help_text,
            }
        )
    return params


def _needs_of(needs):
    """needs=None, a dict whose values may name parameters, or a function of the parameters."""
    if needs is None or callable(needs):
        return None if needs is None else lambda params: needs(**params)

    def resolve(params):
        return {k: params[v] if isinstance(v, str) else v for k, v in needs.items()}

    return resolve


def _register(kind, functions, signature, skip, *, id, needs, version, paper, departures, bytes,
              depends, time_limit, any_time=False, needs_scores=False, merges_keys=False,
              protects=0, about=None):
    if time_limit <= 0:
        raise ValueError(f"{kind} {id!r}: time_limit is {time_limit}; expected seconds above 0")
    text = (inspect.getdoc(about) or "").strip()
    description = {
        "version": version,
        "paper": paper,
        "summary": text.splitlines()[0].rstrip(".") if text else f"written in Python: {id}",
        "departures": list(departures),
        "bytes": bytes,
        "digest": _digest([about, *depends]),
        "params": _params_of(signature, skip),
        "functions": {name: _limited(f, time_limit) for name, f in functions.items()},
        "needs": _needs_of(needs),
        "any_time": any_time,
        "needs_scores": needs_scores,
        "merges_keys": merges_keys,
        "protects": protects,
    }
    key = f"{kind}.{id}"
    if key in _registered:
        if _registered[key] == description["digest"]:
            return  # the same cell of a notebook, or the same file, once more
        raise ValueError(
            f"{key} was registered before from other source; give it another id, or start anew: "
            "results of two versions must not mix"
        )
    _kvgauge.register_stage(kind, id, description)
    _registered[key] = description["digest"]


def _decorator(register, function):
    """Lets a decorator stand with and without arguments."""
    if function is None:
        return register
    return register(function)


def score(function=None, *, id=None, needs=None, any_time=False, age=None, protects=0, version=1,
          paper="", departures=(), depends=(), time_limit=300.0):
    """A scorer: `f(view, **parameters)` returns the importance of each entry.

    The result is one array per KV head, `[length]`, or one array `[kv_heads, width]`; entries with
    higher scores are kept. Scores must be finite.

    needs: signals to capture, by name: `{"window": 32}`, or `{"window": "window"}` for the value of
        a parameter, or a function of the parameters.
    any_time: the function also works while decoding (`view.decoding`).
    age: `f(view, scores, **parameters)` returns the scores after a decode step; they are then kept
        with the entries, and counted as bytes.
    depends: other modules or functions whose source belongs to the stage, and paths of files whose
        content does, such as weights.
    time_limit: seconds that a call may take.
    """

    def register(f):
        functions = {"score": f}
        if age is not None:
            functions["age"] = age
        _register("score", functions, f, 1, id=id or f.__name__, needs=needs, version=version,
                  paper=paper, departures=departures, bytes="",
                  depends=[*depends, *([age] if age is not None else [])], time_limit=time_limit,
                  any_time=any_time, protects=protects, about=f)
        return f

    return _decorator(register, function)


def allocate(function=None, *, id=None, needs=None, scores=False, version=1, paper="",
             departures=(), depends=(), time_limit=300.0):
    """An allocator: `f(request, **parameters)` returns how many entries each head may hold.

    `request` is an AllocationRequest; the result has one row per layer: an int, or one per KV head.
    scores: the request holds the scores of all layers.
    """

    def register(f):
        _register("allocate", {"allocate": f}, f, 1, id=id or f.__name__, needs=needs,
                  version=version, paper=paper, departures=departures, bytes="", depends=depends,
                  time_limit=time_limit, needs_scores=scores, about=f)
        return f

    return _decorator(register, function)


def reduce(function=None, *, id=None, needs=None, merges_keys=False, version=1, paper="",
           departures=(), bytes="", depends=(), time_limit=300.0):
    """A reducer: `f(view, scores, allotted, **parameters)` returns a plan per KV head.

    A plan is an array of the entries to keep, or a dict: `keep`, `merge_keys` and `merge_values` as
    `(from, to, weight)` or `(from, to, weight, self)`, `log_weight`.
    """

    def register(f):
        _register("reduce", {"reduce": f}, f, 3, id=id or f.__name__, needs=needs, version=version,
                  paper=paper, departures=departures, bytes=bytes, depends=depends,
                  time_limit=time_limit, merges_keys=merges_keys, about=f)
        return f

    return _decorator(register, function)


def read(stage=None, *, id=None, needs=None, version=1, paper="", departures=(), bytes="",
         depends=(), time_limit=60.0):
    """A reader: a class that chooses at each decode step what attention reads.

    Its static methods; `select` declares the stage's parameters, and each gets those that it names:
    `begin(view)` returns the index, any object; its arrays are counted as bytes.
    `append(view, index, first)`: entries of each head from `first[head]` on are new; returns
    another index, or None.
    `select(view, index, queries)` returns the entries to read, an array per query head or per KV
    head, or None to read everything.
    """

    def register(cls):
        functions = {}
        for name in ("begin", "append", "select"):
            if not callable(getattr(cls, name, None)):
                raise TypeError(f"reader {cls.__name__}: it has no {name}()")
            functions[name] = getattr(cls, name)
        _register("read", functions, cls.select, 3, id=id or cls.__name__, needs=needs,
                  version=version, paper=paper, departures=departures, bytes=bytes,
                  depends=depends, time_limit=time_limit, about=cls)
        return cls

    return _decorator(register, stage)


def stages():
    """The stages of this process that are written in Python: name -> SHA-256 of their source."""
    return dict(_registered)
