# SPDX-License-Identifier: Apache-2.0
"""What the families of make_tasks share: loading a reference's modules, texts in which faults hide,
and the fixture's shape.

A fixture holds `made_by` and `tasks`. A task: its names, of tasks that are alike but for their
file; `files`, the lines of each data file, of which "" is the task's own; `samples`, with the prompts of each question (the first with its context, of several requests each
with it, of a conversation later ones alone); `outputs`, each with its score. `raises` beside a score
of 0 names the error with which the reference ends on that output. `printed` is what the reference
prints for the set of all outputs.
"""

import contextlib
import importlib.util
import io
import json
import pathlib
import sys
import types

with contextlib.suppress(ImportError):  # before what they import is stubbed
    import nltk  # noqa: F401
    import rouge_score.rouge_scorer  # noqa: F401
    import sklearn.metrics  # noqa: F401


ROOT = pathlib.Path(__file__).resolve().parents[2]


class Anything:
    """Stands for what a module imports and no prompt or score needs."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args, **kwargs):
        return Anything()

    def __mro_entries__(self, bases):
        return (object,)


class StubModule(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


def stub(*names):
    """Empty modules under these names, where the real ones are not needed."""
    for name in names:
        module = StubModule(name)
        module.__path__ = []
        sys.modules[name] = module


def load(path, name=None, argv=(), stubs=()):
    """The module at `path`, run as it is."""
    stub(*stubs)
    path = pathlib.Path(path)
    spec = importlib.util.spec_from_file_location(name or f"reference_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    before, sys.argv = sys.argv, [str(path), *argv]
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            spec.loader.exec_module(module)
    finally:
        sys.argv = before
        sys.path.remove(folder)
    return module


def printed_by(function, *args):
    """What a function prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        function(*args)
    return out.getvalue()


# Long texts of records: ends that are blank, braces and placeholders, other scripts.
TEXTS = [
    "Plain words, one line.",
    " A blank in front and behind \n",
    "\n\nTwo line breaks before,\r\na carriage return,\ttabs\x0b and U+2028\u2028within.\n",
    "{context} {{input}} {0} %s $DOC$ ``` <s> [INST] \\n \"quoted\" 'single'",
    "Stra\u00dfe, \u0130stanbul, \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2, "
    "\u0660\u0661\u0662 and \uff11\uff12, e\u0301, \U0001f600.",
    "\u3000\u4e2d\u6587\u3002\u7b2c\u4e8c\u53e5\uff01\u00a0",
]
# Short values: names, questions, options.
SHORT = [
    "Who is Ann",
    " blank before",
    "blank behind ",
    "two\nlines",
    "ends with a break\n",
    "{braces} and {0}",
    "\u00c9mile\u2019s stra\u00dfe?",
    "\u0663\u0664 or 2.50",
    "\u4ec0\u4e48\uff1f",
]
# Outputs that no score should take for granted.
OUTPUTS = ["", " ", "\n", "\n\nA", "None", "\u0661\u0662", "2.5", "\u00a0x\u3000"]


class Golden:
    def __init__(self):
        self.tasks = []

    def add(self, tasks, files, samples, outputs=(), **more):
        """`files`: the records of the tasks' file, or lines, or a dictionary of such lists by file.
        `samples`: the prompts of each sample's questions. `outputs`: of one() below."""
        lines = {
            name: [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in all]
            for name, all in (files if isinstance(files, dict) else {"": files}).items()
        }
        tasks = [tasks] if isinstance(tasks, str) else list(tasks)
        made = {"tasks": tasks, "files": lines, "samples": [{"prompts": p} for p in samples]}
        self.tasks.append(made | more | {"outputs": list(outputs)})


def one(sample, output, score, question=0):
    """An output and its score; `score` is a number, or a function that gives it or fails."""
    row = {"sample": sample, "question": question, "output": output}
    try:
        row["score"] = float(score() if callable(score) else score)
    except Exception as error:  # noqa: BLE001 whatever stops the reference
        row |= {"score": 0.0, "raises": type(error).__name__}
    return row


def write(path, made_by, tasks):
    """One line for each record, sample and output, so that a diff can be read."""

    def rows(values, indent):
        if not values:
            return "[]"
        pad = " " * indent
        body = f",\n{pad}  ".join(json.dumps(v, ensure_ascii=True) for v in values)
        return f"[\n{pad}  {body}\n{pad}]"

    parts = []
    for task in tasks:
        keys = []
        for key, value in task.items():
            if key == "files":
                files = ",\n".join(
                    f"        {json.dumps(name)}: {rows(lines, 8)}" for name, lines in value.items()
                )
                text = "{\n" + files + "\n      }"
            elif key in ("samples", "outputs"):
                text = rows(value, 6)
            else:
                text = json.dumps(value, ensure_ascii=True)
            keys.append(f"      {json.dumps(key)}: {text}")
        parts.append("    {\n" + ",\n".join(keys) + "\n    }")
    head = json.dumps(made_by, ensure_ascii=False, indent=2).replace("\n", "\n  ")
    path.parent.mkdir(parents=True, exist_ok=True)
    body = '{\n  "made_by": ' + head + ',\n  "tasks": [\n' + ",\n".join(parts) + "\n  ]\n}\n"
    json.loads(body)
    path.write_text(body, encoding="utf-8")


def use_test_jieba():
    """jieba with the invented dictionary of tests/golden/metrics, as the tests have it."""
    import pathlib
    import tempfile

    import jieba

    folder = ROOT / "tests/golden/metrics/jieba"
    jieba.setLogLevel(60)
    with tempfile.TemporaryDirectory() as scratch:
        jieba.dt = jieba.Tokenizer(str(folder / "dict.txt"))
        jieba.dt.tmp_dir = scratch
        jieba.dt.initialize()
    jieba.cut = jieba.dt.cut
    emission = {}
    exec((folder / "finalseg/prob_emit.py").read_text(encoding="utf-8"), emission)
    jieba.finalseg.emit_P = emission["P"]
