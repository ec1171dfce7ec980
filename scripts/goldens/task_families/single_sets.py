# SPDX-License-Identifier: Apache-2.0
"""Sets in the files of their own authors, asked as LongBench (hops, meetings) or ZeroSCROLLS (stories)
asks of them. Whoever made those suites' records did not release the code that turns the files into
prompts: how passages and speeches are joined is restated from the suites' released records."""

import json
import re
import sys

import task_goldens
from task_families import scrolls
from task_goldens import OUTPUTS, SHORT, TEXTS, load, one

REPOSITORY = "THUDM/LongBench"
COMMIT = "2e00731f8d0bff23dc4325161044d0ed8af94c1e"
HOW = (
    "hops, meetings, books and code: the texts of LongBench's dataset2prompt.json filled by str.format,"
    " and its qa_f1_score, rouge_score and code_sim_score; stories: ZeroSCROLLS' prompts restated from its paper's table 8; ROUGE by the"
    " rouge-score package, each kind the best of the answers, as SCROLLS' scorer; letters by Python's re"
)
PACKAGES = ("rouge-score", "rouge", "fuzzywuzzy", "jieba")

SUMMARIES = [
    "He met Ann, and then Bob left the stra\u00dfe.",
    "Ann met Bob.\nThen \u00c9mile left. ",
    "12 of \uff11\uff12 men",
    "the",
]


def passages(pairs):
    return "\n\n".join(f"Passage {i + 1}:\n{title}\n{text}" for i, (title, text) in enumerate(pairs))


def rouge_rows(samples, answers, outputs):
    rows = [
        one(s, output, lambda: scrolls.mean_of_kinds(scrolls.rouges(output, answers[s][q])), question=q)
        for s in range(samples)
        for q in range(len(answers[s]))
        for output in outputs
    ]
    kinds = [scrolls.rouges(r["output"], answers[r["sample"]][r["question"]]) for r in rows]
    means = [sum(k) / len(kinds) for k in zip(*kinds)]
    return rows, round(100 * scrolls.mean_of_kinds(means), 2)


def hops(prompts, f1, golden):
    outputs = OUTPUTS + ["Oslo", "in  oslo.", "the Stra\u00dfe", "STRASSE", "2.50", "250", "yes", "Yes, it is",
                         "\u00c9mile\u2019s", "an \u0663\u0664", "\nOslo\nmore", "no"]  # fmt: skip
    answers = ["Oslo", "yes", "The stra\u00dfe of \u00c9mile", "2.50", "\u0663\u0664", " Ann,\nBob "]
    for name in ("hotpotqa", "2wikimultihopqa", "musique"):
        records, samples = [], []
        for i, text in enumerate(TEXTS):
            # Sentences bring their own blanks; one passage has none.
            pairs = [(SHORT[i], [text, " " + SHORT[i + 1]]), (" Title ", []), ("\u00c9", ["", "two  blanks ", "."])]
            record = {"question": SHORT[i], "answer": answers[i]}
            if name == "musique":
                record |= {"id": f"2hop__{i}", "answerable": True, "answer_aliases": ["never counted"]}
                record["paragraphs"] = [
                    {"idx": k, "title": title, "paragraph_text": "".join(sentences), "is_supporting": k == 0}
                    for k, (title, sentences) in enumerate(pairs)
                ]
            else:
                record |= {"_id": f"5a-{i}", "type": "comparison", "supporting_facts": [[SHORT[i], 0]]}
                record["context"] = [[title, sentences] for title, sentences in pairs]
            records.append(record)
            held = passages([(title, "".join(sentences)) for title, sentences in pairs])
            # LongBench's two files share a text; MuSiQue's has its own.
            prompt = prompts[{"2wikimultihopqa": "2wikimqa"}.get(name, name)]
            samples.append([prompt.format(context=held, input=record["question"])])
        rows = [one(s, output, f1(output, answers[s])) for s in range(len(answers)) for output in outputs]
        files = records if name == "musique" else [json.dumps(records, ensure_ascii=False)]
        golden.add(f"multi_hop/{name}", files, samples, rows)


def meetings(prompt, golden):
    speakers = ["Ann", " Bob Lee ", "\u00c9mile: (chair)", ""]
    records = []
    for i in range(len(TEXTS)):
        query = lambda k: {"query": SHORT[(i + k) % len(SHORT)], "answer": SUMMARIES[(i + k) % 4]}  # noqa: B023, E731
        records.append(
            {"topic_list": [{"topic": "t", "relevant_text_span": [["0", "1"]]}],
             "general_query_list": [query(0)],
             "specific_query_list": [query(1) | {"relevant_text_span": [["0", "1"]]}, query(2) | {"relevant_text_span": []}],
             "meeting_transcripts": [{"speaker": speakers[(i + k) % 4], "content": TEXTS[(i + k) % len(TEXTS)]} for k in range(3)]}
        )  # fmt: skip
    for name in ("general", "specific"):
        samples, answers = [], []
        for record in records:
            held = "\n".join(f"{turn['speaker']}: {turn['content']}" for turn in record["meeting_transcripts"])
            asked = record[f"{name}_query_list"]
            samples.append([prompt.format(context=held, input=one["query"]) for one in asked])
            answers.append([[one["answer"]] for one in asked])
        rows, printed = rouge_rows(3, answers, scrolls.OUTPUTS_HERE)
        golden.add(f"qmsum/{name}", records, samples, rows, printed=printed)


def stories(golden):
    ask = (
        "You are given a story and a question. Answer the question in a paragraph.\n\nStory:\n{}\n\n"
        "Question:\n{}\n\nAnswer:\n"
    )
    records, samples, answers = [], [], []
    for i, text in enumerate(TEXTS):
        questions = [
            {"question_text": SHORT[(i + k) % len(SHORT)], "question_number": k + 1,
             "responses": [{"worker_id": "1", "uid": "u", "response_text": t} for t in SUMMARIES[k : k + 1 + i % 4] or SUMMARIES]}
            for k in range(2)
        ]  # fmt: skip
        records.append({"metadata": {"passage_id": str(i)}, "document": text, "questions": questions})
        samples.append([ask.format(text, q["question_text"]) for q in questions])
        answers.append([[r["response_text"] for r in q["responses"]] for q in questions])
    rows, printed = rouge_rows(4, answers, scrolls.OUTPUTS_HERE)
    golden.add("squality/test", records, samples, rows, printed=printed)

    ask = (
        "You are provided a story and a multiple-choice question with 4 possible answers (marked by A, B, C, D). Choose"
        " the best answer by writing its corresponding letter (either A, B, C, or D). Do not provide any explanation."
        "\n\nStory:\n{}\n\nQuestion and Possible Answers:\n{}\n (A) {}\n (B) {}\n (C) {}\n (D) {}\n\nAnswer:\n"
    )
    records, samples, rows = [], [], []
    outputs = OUTPUTS + ["B", "(B)", "B.", "b", "AB", "A or B", "\u00c9B", "B_", "\u4e2dB", "-B-", "1B", "A", "(D) x", "C"]
    for i, text in enumerate(TEXTS):
        questions = [
            {"question": SHORT[(i + k) % len(SHORT)], "question_unique_id": f"{i}_{k}", "difficult": k % 2,
             "options": [SHORT[(i + k + n) % len(SHORT)] for n in range(4)], "gold_label": (i + k) % 4 + 1,
             "writer_label": 1, "validation": []}
            for k in range(2)
        ]  # fmt: skip
        records.append({"article_id": str(i), "set_unique_id": f"{i}_A", "title": "t", "article": text, "questions": questions})
        samples.append([ask.format(text, q["question"], *q["options"]) for q in questions])
        for k, question in enumerate(questions):
            for output in outputs:
                found = re.search(r"\b[A-D]\b", output)
                want = "ABCD"[question["gold_label"] - 1]
                rows.append(one(i, output, float(found is not None and found.group(0) == want), question=k))
    golden.add("quality/dev", records, samples, rows)


def books(prompt, rouge, golden):
    """NarrativeQA: LongBench's prompt and its ROUGE-L, the best of an example's answers. Rows are lines
    here, where the set is Parquet."""
    records, samples, rows = [], [], []
    outputs = OUTPUTS + SUMMARIES + ["Ann met Bob", "EMILE left.", "12", "of men, 12. The end."]
    for i, text in enumerate(TEXTS):
        said = [SUMMARIES[i % 4], SHORT[i], SUMMARIES[(i + 1) % 4]][: 1 + i % 3]
        records.append(
            {"document": {"id": f"d{i}", "kind": "movie", "url": "", "text": text, "summary": {"text": "Never shown."}},
             "question": {"text": SHORT[i], "tokens": ["x"]}, "answers": [{"text": a, "tokens": []} for a in said]}
        )  # fmt: skip
        samples.append([prompt.format(context=text, input=SHORT[i])])
        rows += [one(i, output, max(rouge(output, a) for a in said)) for output in outputs]
    golden.add("narrativeqa", records, samples, rows, set={"container": "jsonl", "file": "narrativeqa/rows.jsonl"})


def code(prompt, similarity, golden):
    """LCC: LongBench's prompt and its edit similarity. Rows are lines here, where the set is Parquet."""
    nexts = ["    return x", "x", "if a == 1: # comment", "\u00c9mile = '\uff11\uff12'", "} // end", " two  blanks "]
    outputs = OUTPUTS + ["return x", "\n\n    return x\n# more", "# a comment\n`x`\nif a == 1:", "```python\nreturn x\n```",
                         "// no\n} // end", "\u00c9mile = '12'", "two blanks\r\n"]  # fmt: skip
    contexts = [*TEXTS[:5], "def f(x):\n\treturn {x}\n"]
    records = [{"id": i, "context": text, "gt": nexts[i]} for i, text in enumerate(contexts)]
    samples = [[prompt.format(context=text, input="")] for text in contexts]
    rows = [one(i, output, similarity(output, gt)) for i, gt in enumerate(nexts) for output in outputs]
    golden.add("lcc", records, samples, rows, set={"container": "jsonl", "file": "lcc/rows.jsonl"})


def make(root, golden):
    task_goldens.use_test_jieba()
    sys.modules["Levenshtein"] = None  # LongBench's requirements do not install it
    scorer = load(root / "LongBench/eval.py", "longbench_eval")
    prompts = json.loads((root / "LongBench/config/dataset2prompt.json").read_text(encoding="utf-8"))
    hops(prompts, scorer.dataset2metric["hotpotqa"], golden)
    meetings(prompts["qmsum"], golden)
    stories(golden)
    books(prompts["narrativeqa"], scorer.dataset2metric["gov_report"], golden)
    code(prompts["lcc"], scorer.dataset2metric["lcc"], golden)
