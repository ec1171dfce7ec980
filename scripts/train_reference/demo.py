# SPDX-License-Identifier: Apache-2.0
"""Writes the demonstration prompts: a held-out page of the closed English with a few facts in it."""
import argparse
import json
import pathlib
import subprocess
import tempfile

import data

PAGES = {"short.txt": (300, 3), "long.txt": (1900, 6)}  # file -> tokens, facts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path, help="gets a folder demo/")
    parser.add_argument("--kvgauge", help="the program; default: from the build folders")
    parser.add_argument("--seed", type=int, default=2026)
    args = parser.parse_args()
    program = data.find_program(args.kvgauge)
    (args.model / "demo").mkdir(exist_ok=True)
    for file, (tokens, facts) in PAGES.items():
        task = json.loads((data.ROOT / "configs/tasks/reference/needles_16.json").read_text())
        task["source"].update(lengths=str(tokens), facts=facts)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as changed:
            json.dump(task, changed)
            changed.flush()
            lines = subprocess.run(
                [program, "sample", changed.name, "--n", "20", "--seed", str(args.seed), "--json",
                 "--model", str(args.model)], check=True, capture_output=True, text=True).stdout
        for sample in map(json.loads, lines.splitlines()):
            question = sample["questions"][0]
            # The first that asks in a full question, about something in the middle of the page.
            if "Question:" in question["text"] and sample["facts"]["depth"] in ("40", "50", "60"):
                prompt = sample["context"] + question["text"] + question["answer_prefix"]
                (args.model / "demo" / file).write_text(prompt)
                print(file, sample["length"], "tokens, answer:", question["answers"][0])
                break


if __name__ == "__main__":
    main()
