# SPDX-License-Identifier: Apache-2.0
"""GSM8K's chain-of-thought task of lm-evaluation-harness."""

import sys
import types

import task_goldens
from task_goldens import OUTPUTS, SHORT, load, one

REPOSITORY = "EleutherAI/lm-evaluation-harness"
COMMIT = "4e7e0d47f33bc71070c1d38394bafbb52b117163"
HOW = (
    "prompts: the templates of lm_eval/tasks/gsm8k/gsm8k-cot.yaml filled by the harness's apply_template,"
    " examples joined by its delimiters, a blank and an empty line (restated); scores: its RegexFilter"
    " over the output up to the first of its stop texts, and exact_match_hf_evaluate with the settings of"
    " the yaml"
)
PACKAGES = ("jinja2", "pyyaml", "numpy")


def reference(root):
    import ast
    import re
    import string

    import jinja2
    import numpy

    stubs = ("lm_eval", "lm_eval.api", "lm_eval.api.filter", "lm_eval.api.registry")
    task_goldens.stub(*stubs)
    sys.modules["lm_eval.api.filter"].Filter = object
    sys.modules["lm_eval.api.registry"].register_filter = lambda name: lambda kind: kind
    extraction = load(root / "lm_eval/filters/extraction.py", "lm_eval_extraction")

    def held(path, names, given):
        """Some functions and values of a module whose imports are not needed."""
        tree = ast.parse((root / path).read_text(encoding="utf-8"))
        kept = [n for n in tree.body if getattr(n, "name", None) in names or (
            isinstance(n, ast.Assign) and getattr(n.targets[0], "id", None) in names)]  # fmt: skip
        exec(compile(ast.Module(kept, []), path, "exec"), given)
        return types.SimpleNamespace(**given)

    utils = held("lm_eval/utils.py", ("env", "apply_template"),
                 {"Environment": jinja2.Environment, "BaseLoader": jinja2.BaseLoader,
                  "StrictUndefined": jinja2.StrictUndefined})  # fmt: skip
    metrics = held("lm_eval/api/metrics.py", ("exact_match_hf_evaluate",), {"np": numpy, "re": re, "string": string})
    return extraction.RegexFilter, utils.apply_template, metrics.exact_match_hf_evaluate


def make(root, golden):
    import yaml

    RegexFilter, fill, exact_match = reference(root)
    task = yaml.safe_load((root / "lm_eval/tasks/gsm8k/gsm8k-cot.yaml").read_text(encoding="utf-8"))
    assert task["metric_list"][0]["metric"] == "exact_match"
    settings = {k: v for k, v in task["metric_list"][0].items() if k.startswith(("ignore", "regexes"))}
    shown = "".join(
        fill(task["doc_to_text"], example) + " " + fill(task["doc_to_target"], example) + "\n\n"
        for example in task["fewshot_config"]["samples"]
    )
    answers = ["so 9 * 2 = <<9*2=18>>18\n#### 18", "#### 1,250", "#### 3.50\n", "-7 #### -7 ",
               "#### 1,000.", "#### 12,5.0"]  # fmt: skip
    records = [{"question": SHORT[i % len(SHORT)], "answer": a} for i, a in enumerate(answers)]
    samples = [[shown + fill(task["doc_to_text"], record)] for record in records]
    outputs = OUTPUTS + [
        " So it is. The answer is 18.", "The answer is 18", "The answer is 18,", "The answer is $18.", "The answer is 1,250.",
        "The answer is 1250 eggs.", "The answer is -7.", "The answer is 3.50 dollars", "The answer is 3.5.", "the answer is 18.",
        "The answer is\n18.", "The answer is 4. The answer is 6.", "The answer is 9.\n\nQ: 2?\nA: The answer is 18.",
        "18", "#### 18", "$18.00", "It was 1,250.", "6, not 4", "so 5.", "no number", "x. , .", "- 7", "12-7", "1.2.3", "..",
        "\u066312", "The answer is \u0661.", "18</s> and 4", "18<|im_end|>4", "Q: 18", "1000", "10", "$5", "The answer is 18.\n",
        "The answer is 9\n",
    ]  # fmt: skip
    for name, chain in (("gsm8k_cot", task["filter_list"][0]), ("gsm8k_cot_flexible", task["filter_list"][1])):
        options = {k: v for k, v in chain["filter"][0].items() if k != "function"}
        rows = []
        for s, record in enumerate(records):
            target = fill(task["doc_to_target"], record)
            for output in outputs:
                cut = output
                for stop in task["generation_kwargs"]["until"]:
                    cut = cut.split(stop)[0]
                got = RegexFilter(**options).apply([[cut]], [record])[0][0]
                rows.append(one(s, output, exact_match([got], [target], **settings)["exact_match"]))
        golden.add(name, records, samples, rows)
