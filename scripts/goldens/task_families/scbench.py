# SPDX-License-Identifier: Apache-2.0
"""SCBench's prompts (scbench/eval_utils.py) and scorer (scbench/compute_scores.py)."""

import re

import task_goldens
from task_goldens import OUTPUTS, SHORT, TEXTS, load, one

REPOSITORY = "microsoft/MInference"
COMMIT = "fb56c917f618e8645f1cfc37535afd7424d78f0d"
HOW = (
    "prompts: create_scdq_prompt without a template, create_multiturn_prompt with one that marks its"
    " messages and with the model's own answers; scores: get_score_one of compute_scores.py over"
    " get_ground_truth's labels. scbench_mf's later prompts are made without a template: with one the"
    " reference repeats the last turn's prefix. ROUGE is rouge-score as the package `evaluate` calls"
    " it. repoqa: needle_evaluator of repo_qa_utils.py, at compute_scores.py's threshold of 0.8, over"
    " outputs whose blocks hold nothing but a function, for ours does not search a block for one."
    " many_shot's and qa_chn's answers are lists: of a text the reference takes each character for an"
    " answer"
)
PACKAGES = ("rouge-score", "nltk", "tree-sitter", "tree-sitter-languages")


class Template:
    """Marks who says what, so that a message can be found again."""

    def apply_chat_template(self, messages, add_generation_prompt, tokenize):
        text = "".join(f"<{m['role']}>{m['content']}</{m['role']}>" for m in messages)
        return text + ("<answer>" if add_generation_prompt else "")


def read(text):
    """The one user message, and what stands behind the place of the answer."""
    user, prefix = re.fullmatch(r"<user>(.*)</user><answer>(.*)", text, re.DOTALL).groups()
    return user, prefix


class Rouge:
    def compute(self, predictions, references, use_aggregator):
        from rouge_score import rouge_scorer

        scorer = rouge_scorer.RougeScorer(["rougeLsum"], use_stemmer=False)
        return {"rougeLsum": [scorer.score(r, p)["rougeLsum"].fmeasure for p, r in zip(predictions, references)]}


# Functions of one repository, alike enough to be mistaken for each other; in the first, names of
# other scripts.
FUNCTIONS = [
    "def total(rows):\n    found = 0\n    for row in rows:\n        found += row.stra\u00dfe\n    return found",
    "def total_of(rows):\n    found = 0\n    for row in rows:\n        found += row.width\n    return found",
    "def one():\n    return 1",
]


def found_again(score_of):
    """Outputs that repeat a function wholly, nearly, in a block, in two, or with words around it."""
    first, second, third = FUNCTIONS
    blocks = ["```python\n{}\n```", "```\n{}\n```", "Here it is:\n\n```python  \n\n{}\n```\nThat is all.",
              "```python\n{}\n", "{}", "  {}\n\n", "``` {}```", "x ```\n{}\n```"]  # fmt: skip
    texts = [block.format(function) for block in blocks for function in FUNCTIONS]
    nearly = [first.replace("found", "sum", 1), first.replace("for row in rows", "for r in rows"),
              first.replace("    ", "\t"), first.replace("\n", "\r\n"), first[:-12],
              third.replace("1", "2"), third + "\n\n", first.replace("+=", "-="), second.replace("total_of", "total")]  # fmt: skip
    texts += [f"```python\n{function}\n```" for function in nearly]
    texts += [f"```python\n{third}\n```\n\n```python\n{first}\n```", "```\n```", "```python\n\n```", "def", "total"]
    return [one(0, text, (lambda t=text, q=q: score_of(t, q)), question=q) for q in range(3) for text in OUTPUTS + texts]


def record(turns, **more):
    return {"id": 0, "context": TEXTS[len(turns) % len(TEXTS)], "multi_turns": turns} | more


def make(root, golden):
    for name in ("torch", "torch.profiler", "transformers", "jieba", "rouge", "evaluate", "args", "tempdir",
                 "rich", "rich.console", "rich.progress", "rich.table"):  # fmt: skip
        task_goldens.stub(name)
    import sys

    sys.modules["evaluate"].load = lambda _: Rouge()
    prompts = load(root / "scbench/eval_utils.py", "scbench_prompts")
    scorer = load(root / "scbench/compute_scores.py", "scbench_scores")
    options = ["Ann", " Bob ", "\u00c9mile", "four\n4"]
    kinds = {"a": "scbench_summary", "b": "scbench_passkey", "c": "scbench_repoqa", "d": "scbench_kv"}
    turns = {
        "scbench_kv": [("u-1-Z", "Key: \"a\""), ("Stra\u00dfe", SHORT[3]), ("\u0661", SHORT[1])],
        "scbench_prefix_suffix": [("prefix ... End", SHORT[0]), (" blank ", SHORT[2])],
        "scbench_vt": [(["ABCDE", "XYZ"], SHORT[0]), (["I\u0307X", "Q", "stra\u00dfe"], SHORT[5])],
        "scbench_repoqa": [(f, SHORT[6 - k]) for k, f in enumerate(FUNCTIONS)],
        "scbench_qa_eng": [("stra\u00dfe", SHORT[0]), ("\u00e9mile", SHORT[3]), ("\u0131", SHORT[6])],
        "scbench_qa_chn": [(["\u4e2d\u6587\u3002", "b"], SHORT[8]), (["\uff11\uff12\u4e2a"], SHORT[7])],
        "scbench_choice_eng": [("Ann", SHORT[0]), (" Bob ", SHORT[3]), ("\u00c9mile", SHORT[6])],
        "scbench_many_shot": [(["Stra\u00dfe"], SHORT[0]), (["no"], SHORT[5])],
        "scbench_summary": [("One sentence.\nAnother one.", SHORT[0]), ("\u00c9mile wins", SHORT[2]), ("x y", SHORT[1])],
        "scbench_mf": [(2, "The largest number is: "), (2.5, "The 2nd Smallest number is\nThe last is x"), (-3, "x The median is")],
        "scbench_summary_with_needles": [("One sentence.", SHORT[0], "a"), ("0123", SHORT[3], "b"), ("x", SHORT[1], "a")],
        "scbench_repoqa_and_kv": [("def f(): pass", SHORT[0], "c"), ("Stra\u00dfe", SHORT[3], "d")],
    }  # fmt: skip
    own = {
        "scbench_kv": ["U-1-Z", "it is u-1-Z.", "STRASSE", "Stra\u00dfe", "\u0661", "1"],
        "scbench_prefix_suffix": ["prefix ... End", "Prefix ... end", "x blank y"],
        "scbench_vt": ["ABCDE, XYZ", "abcde", "xyz i\u0307x q", "\u0130X STRASSE"],
        "scbench_qa_eng": ["STRASSE", "die Stra\u00dfe", "\u00c9MILE", "e\u0301mile", "I", "i", "\u0131"],
        "scbench_qa_chn": ["\u4e2d\u6587", "\u4e2d \u6587!", "\uff11\uff12 \u4e2a", "B", "b\u3002"],
        "scbench_choice_eng": ["A", "Ann", " Bob ", "B. Bob", "the answer is: C", "answer is\u00c9mile", "BC", "it is AB", "D."],
        "scbench_many_shot": ["STRASSE", "strasse", "No.", "n o"],
        "scbench_summary": ["One sentence.\nAnother.", "\u00c9mile", "x\ny"],
        "scbench_mf": ["2", "2.0", "2.9", "2.5", "it is 2.50.", "-3", "3", "\u0662", "\u0662.\u0665", "2.", ".5", "1e3", "00002"],
        "scbench_summary_with_needles": ["one sentence", "0123", "It is 0123.", "123", "\u0660\u0661\u0662\u0663"],
        "scbench_repoqa_and_kv": ["Stra\u00dfe", "STRASSE"],
    }  # fmt: skip
    for name, rows in turns.items():
        made_turns = []
        for answer, question, *kind in rows:
            turn = {"input": question, "answer": answer}
            if name == "scbench_choice_eng":
                turn["options"] = options
            if kind:
                turn["task"] = kinds[kind[0]]
            if turn.get("task") == "scbench_repoqa" or name == "scbench_repoqa":
                turn["name"] = f"f{len(made_turns)}"
            made_turns.append(turn)
        made = record(made_turns, repo="r", lang="python")
        labels = prompts.get_ground_truth(made, name)
        scored = []
        for q, turn in enumerate(made_turns):
            task = turn.get("task", name)
            if task == "scbench_repoqa":
                continue
            task = scorer.Multiturnbench_to_Infinitebench.get(task, task)
            for text in OUTPUTS + own.get(name, []):
                score = lambda: scorer.get_score_one(text, labels[q], task, "m")  # noqa: B023, E731
                scored.append(one(0, text, score, question=q))
        if name == "scbench_repoqa":
            needles = [{"name": f"f{k}", "needle": f} for k, f in enumerate(FUNCTIONS)]

            def score_of(text, q):
                truth = {"func_name": f"f{q}", "ground_truth": FUNCTIONS[q]}
                evaluator = scorer.compute_repoqa_score.__globals__["needle_evaluator"]
                verdict, _, likeness = evaluator(text, truth, needles, "python", False)  # noqa: B023
                return float(verdict.value == "best_match" and likeness >= 0.8)

            scored = found_again(score_of)
        stem = name.removeprefix("scbench_")
        context, *queries = prompts.create_scdq_prompt(made, name, None, False)["prompts"]
        golden.add(f"scbench/{stem}_multi_request", [made], [[context + q for q in queries]], scored)
        template = name != "scbench_mf"
        texts = prompts.create_multiturn_prompt(
            made, name, Template(), template, disable_golden_context=True
        )["prompts"]
        read_texts = [read(t) if template else (t, "") for t in texts]
        golden.add(f"scbench/{stem}_multi_turn", [made], [[user for user, _ in read_texts]], scored)
        golden.tasks[-1]["samples"][0]["prefixes"] = [prefix for _, prefix in read_texts]
