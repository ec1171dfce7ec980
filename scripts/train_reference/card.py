# SPDX-License-Identifier: Apache-2.0
"""Tables for a model card from databases of `kvgauge run`: mean scores with 95% intervals.

Intervals are Wilson's where every score is 0 or 1, else bootstrapped over samples.
"""
import argparse
import json
import pathlib
import random
import sqlite3

FINE = 300  # pages from which a digit behind the point says something


def interval(scores):
    n, mean = len(scores), sum(scores) / len(scores)
    if all(score in (0, 1) for score in scores):
        z = 1.96
        middle = (mean + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * (mean * (1 - mean) / n + z * z / (4 * n * n)) ** 0.5
        return max(0.0, middle - half), min(1.0, middle + half)
    rng = random.Random(1)
    means = sorted(sum(rng.choices(scores, k=n)) / n for _ in range(2000))
    return means[50], means[1949]


def shown(scores):
    if not scores:
        return ""
    low, high = interval(scores)
    digits = 1 if len(scores) >= FINE else 0
    return (f"{100 * sum(scores) / len(scores):.{digits}f} "
            f"({100 * low:.{digits}f}-{100 * high:.{digits}f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("databases", type=pathlib.Path, nargs="+")
    parser.add_argument("--by", help="a fact, such as depth: a row for each of its values")
    args = parser.parse_args()
    cells, columns = {}, []
    for path in args.databases:
        rows = sqlite3.connect(path).execute(
            "SELECT model, task, method, variant, budget, compress_at, facts, score FROM result "
            "WHERE status = 'ok' AND turn = 0 ORDER BY rowid")
        for model, task, method, variant, budget, at, facts, score in rows:
            facts = json.loads(facts)
            method += f"[{variant}]" if variant else ""
            column = (model, method, budget, at, int(facts["length"]))
            task += f" {args.by} {facts[args.by]}" if args.by else ""
            cells.setdefault(task, {}).setdefault(column, []).append(score)
            if column not in columns:
                columns.append(column)
    columns.sort(key=lambda column: column[-1])
    several = len({column[:4] for column in columns}) > 1
    heads = [f"{' '.join(column[:4])}, {column[4]}" if several else str(column[4])
             for column in columns]
    if len(cells) < len(columns):  # one row a column, then
        print("| | " + " | ".join(cells) + " |")
        print("|---" * (len(cells) + 1) + "|")
        for head, column in zip(heads, columns):
            print(f"| {head} | " + " | ".join(shown(row.get(column)) for row in cells.values())
                  + " |")
        return
    print("| task | " + " | ".join(heads) + " |")
    print("|---" * (len(heads) + 1) + "|")
    for task, row in cells.items():
        print(f"| {task.removeprefix('reference/')} | "
              + " | ".join(shown(row.get(column)) for column in columns) + " |")


if __name__ == "__main__":
    main()
