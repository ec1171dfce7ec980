# SPDX-License-Identifier: Apache-2.0
"""Result stores as tables."""

import contextlib
import json
import os
import pathlib
import sqlite3

from . import _kvgauge

_CELLS = """SELECT cell.id, model.name AS model, task.name AS task, method.name AS method,
  method.variant, budget, budget_kind, budget_value, compress_at, seed, cell.key
  FROM cell JOIN model ON model.id = model_id JOIN method ON method.id = method_id
  JOIN task ON task.id = task_id"""

_SPECULATIONS = """SELECT model.name AS model, model.fingerprint, form, method.name AS method,
  method.variant, method.key AS method_key, s.budget, gamma, workload, prompt, prompt_tokens,
  answer_tokens, repetition, checks, drafted, accepted, acceptance, accepted_per_check,
  tokens_per_s, full_tokens_per_s, draft_bytes, judge_bytes, held_bytes, others_share
  FROM speculation s JOIN model ON model.id = model_id JOIN method ON method.id = method_id
  ORDER BY s.id"""

_PAIRS = """SELECT model, task, method, budget, sample, group_key, turn, question, prediction, answers,
  cell_key FROM result WHERE prediction IS NOT NULL ORDER BY cell_key, sample, turn"""

_MAIN = ("method", "variant", "budget", "score", "score_low", "score_high", "delta", "delta_low",
         "delta_high", "p_adjusted", "verdict", "logical_ratio", "resident_ratio", "ttft_ratio",
         "tpot_ratio", "samples", "failed", "task", "model")


def _table(rows, columns=None):
    """A pandas DataFrame where pandas is installed, else a list of dicts."""
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows, columns=columns if not rows else None)


def _query(path, sql, parameters):
    """Rows as dicts, and the names of the columns."""
    from ._program import BadInput

    try:
        _kvgauge.check_store(os.fspath(path))
    except ValueError as error:
        raise BadInput(str(error)) from None
    uri = f"{path.resolve().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        cursor = connection.execute(sql, parameters)
        columns = [column[0] for column in cursor.description]
        return [dict(zip(columns, row)) for row in cursor], columns


class Store:
    """One result database, or several that count as one.

    >>> Store("none.db")
    Traceback (most recent call last):
    FileNotFoundError: none.db: no such result database
    """

    def __init__(self, *paths):
        if not paths:
            raise ValueError("a store has at least one database")
        self.paths = [pathlib.Path(path) for path in paths]
        for path in self.paths:
            if not path.is_file():
                raise FileNotFoundError(f"{path}: no such result database")

    def __repr__(self):
        return f"Store({', '.join(repr(str(path)) for path in self.paths)})"

    def _command(self, *arguments):
        from ._program import captured

        return captured(arguments)

    def leaderboard(self, columns="main", **options):
        """Scores with intervals and verdicts, bytes and times; options as `kvgauge leaderboard`.

        columns: "main", "all", or a list of names; docs/read-results.md explains them.
        """
        flags = []
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            if value is True:
                flags.append(flag)
            elif value is not None and value is not False:
                for each in value if isinstance(value, (list, tuple)) else [value]:
                    flags += [flag, str(each)]
        text = self._command("leaderboard", *map(os.fspath, self.paths), "--format", "json", *flags)
        rows = _rows_of(json.loads(text))
        known = list(rows[0]) if rows else list(_MAIN)
        names = {"main": _MAIN, "all": known}.get(columns) if isinstance(columns, str) else columns
        unknown = [columns] if names is None else [name for name in names if name not in known]
        if unknown:
            raise ValueError(f"columns: no {unknown[0]!r}; the columns are {', '.join(known)}")
        return _table([{name: row[name] for name in names} for row in rows], list(names))

    def query(self, sql, parameters=()):
        """Rows of a read-only query (docs/formats/store.md) over one database after the other; with
        several, a column `store` says which."""
        return self._table(self.paths, sql, parameters)

    def _table(self, paths, sql, parameters=()):
        rows, columns = [], []
        for path in paths:
            more, columns = _query(path, sql, parameters)
            rows += [{"store": str(path), **row} for row in more] if len(self.paths) > 1 else more
        return _table(rows, columns)

    def cells(self):
        """One row for each model, task, method, budget, protocol and seed."""
        return self.query(_CELLS)

    def samples(self):
        """One row for each sample of each cell: its status, score, tokens and bytes."""
        return self.query(
            f"SELECT c.model, c.task, c.method, c.variant, c.budget, c.compress_at, c.seed, s.* "
            f"FROM sample s JOIN ({_CELLS}) c ON c.id = s.cell_id ORDER BY s.cell_id, s.position"
        )

    def answers(self):
        """One row for each answer, that is for each turn of each sample."""
        return self.query(
            f"SELECT c.model, c.task, c.method, c.variant, c.budget, c.compress_at, c.seed, "
            f"s.position, a.turn, a.prediction, a.answers, a.score "
            f"FROM answer a JOIN sample s ON s.id = a.sample_id JOIN ({_CELLS}) c "
            f"ON c.id = s.cell_id ORDER BY s.cell_id, s.position, a.turn"
        )

    def pairs(self, path, method, budget=None, task=None, against=None):
        """Writes a method's answers as the JSON lines that `kvgauge score --pairs` reads; returns how
        many. `against` names a method, say "full", whose answers stand in for the references."""
        def answers(**wanted):
            wanted = {key: value for key, value in wanted.items() if value is not None}
            rows = [row for each in self.paths for row in _query(each, _PAIRS, ())[0]
                    if all(row[key] == value for key, value in wanted.items())]
            cells = {(row["model"], row["task"]): row["cell_key"] for row in rows}
            if not rows or any(cells[row["model"], row["task"]] != row["cell_key"] for row in rows):
                what = ", ".join(f"{key} {value!r}" for key, value in wanted.items())
                raise ValueError(f"{what}: " + ("more than one row of a task; name more of method, "
                                                "budget and task" if rows else "no answers"))
            return {(row["model"], row["task"], row["sample"], row["turn"]): row for row in rows}

        own = answers(method=method, budget=budget, task=task)
        others = answers(method=against, task=task) if against is not None else {}
        if against is not None and not own.keys() <= others.keys():
            raise ValueError(f"against {against!r}: it has no answers to some of these samples")
        with open(path, "w", encoding="utf-8") as file:
            for key, row in own.items():
                wanted = [others[key]["prediction"]] if others else json.loads(row["answers"])
                file.write(json.dumps({
                    "id": f"{row['model']}/{row['sample']}", "task": row["task"],
                    "group": f"{row['model']}/{row['group_key']}",
                    "turn": row["turn"], "question": row["question"] or "",
                    "prediction": row["prediction"], "answers": wanted}) + "\n")
        return len(own)

    def speculations(self):
        """One row for each answer that `kvgauge bench speculate --db` recorded: how much of the
        draft was accepted, and tokens a second beside the full cache's alone."""
        # Stores of a schema below 11 have no such table.
        exists = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = 'speculation'"
        return self._table([p for p in self.paths if _query(p, exists, ())[0]], _SPECULATIONS)

    def report(self, path="report.html"):
        """Writes the HTML report; a notebook shows it inline."""
        self._command("report", *map(os.fspath, self.paths), "--out", os.fspath(path))
        return Report(pathlib.Path(path))

    def _repr_html_(self):
        rows = self.leaderboard()
        return rows.to_html() if hasattr(rows, "to_html") else f"<pre>{json.dumps(rows, indent=1)}</pre>"


class Report:
    """An HTML report on disk."""

    def __init__(self, path):
        self.path = path

    def __repr__(self):
        return f"Report({str(self.path)!r})"

    def _repr_html_(self):
        import html

        page = html.escape(self.path.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="800" sandbox="allow-scripts"></iframe>'


def _rows_of(board):
    """The tables of a leaderboard's JSON as one list of rows."""
    rows = []
    for table in board["tables"]:
        common = {k: v for k, v in table.items() if not isinstance(v, (list, dict))}
        rows += [{**common, **row} for row in table["rows"]]
    return rows
