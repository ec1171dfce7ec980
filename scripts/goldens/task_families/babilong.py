# SPDX-License-Identifier: Apache-2.0
"""BABILong's prompts and its rule."""

import json

from task_goldens import OUTPUTS, SHORT, TEXTS, load, one

REPOSITORY = "booydar/babilong"
COMMIT = "7a6efee29f5cac03c3c410e6799c80fd2ffe3610"
HOW = "prompts: get_formatted_input with DEFAULT_PROMPTS; scores: compare_answers with TASK_LABELS"


def make(root, golden):
    prompts = load(root / "babilong/prompts.py")
    scorer = load(root / "babilong/metrics.py")
    for number in range(1, 21):
        name = f"qa{number}"
        labels = scorer.TASK_LABELS[name]
        questions = [SHORT[number % len(SHORT)], " Where is it? ", "\nis it " + labels[0] + "\u00a0"]
        targets = [labels[-1], labels[0], labels[-1].upper()]
        records, texts, rows = [], [], []
        for i, question in enumerate(questions):
            target = targets[i] + ("," + labels[1] if name == "qa8" and i == 1 else "")
            record = {"input": TEXTS[(number + i) % len(TEXTS)], "question": question, "target": target}
            records.append(record)
            texts.append(
                [prompts.get_formatted_input(record["input"], question, **prompts.DEFAULT_PROMPTS[name])]
            )
            outputs = OUTPUTS + [labels[-1], f" It is {labels[0].upper()}. Or {labels[1]}.", ", ".join(labels),
                                 f"{labels[0]},{labels[1]}", f"x<example>{labels[0]}", f"{labels[1]}\n{labels[-1]}",
                                 f"{labels[0]}Question {labels[-1]}", f"{labels[0]}question {labels[-1]}",
                                 labels[-1].title() + "\u3002" + labels[0]]  # fmt: skip
            for text in outputs:
                right = scorer.compare_answers(target, text, question, labels)
                rows.append(one(i, text, float(right)))
        golden.add(f"babilong/{name}", [json.dumps(records)], texts, rows)
