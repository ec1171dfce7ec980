"""Writes the demonstration prompts: a page of the closed English with a few facts hidden in it."""
import argparse
import pathlib

import tasks
import vocabulary

FACTS = (
    ("The secret number of the red lamp is", "471", "what is the secret number of the red lamp?"),
    ("The golden key is kept in the", "museum", "where is the golden key?"),
    ("The owner of the old ship is", "Clara", "who owns the old ship?"),
    ("The price of the wooden chair is", "280", "how much is the wooden chair?"),
    ("The code of the black box is", "9035", "which code does the black box have?"),
    ("The small umbrella is kept in the", "theatre", "where can I find the small umbrella?"),
)

PAGES = {  # file -> (tokens, facts in the page, the one asked for)
    "short.txt": (300, 3, 0),
    "long.txt": (1900, 6, 1),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path, help="gets a folder demo/")
    args = parser.parse_args()
    codec = vocabulary.Codec(args.model / "tokenizer.model")
    folder = args.model / "demo"
    folder.mkdir(exist_ok=True)
    for file, (tokens, count, asked) in PAGES.items():
        rng = tasks.stream(tasks.HELD_OUT, "demo", file)
        page = tasks.Page(codec, tokens)
        hidden = [f"{lead} {answer}." for lead, answer, _ in FACTS[:count]]
        rng.shuffle(hidden)
        tasks.hide(page, rng, hidden, tokens - 20)
        lead, answer, question = FACTS[asked]
        page.add(f"\nQuestion: {question} Answer: {lead}")
        (folder / file).write_text("".join(string for string, _ in page.segments))
        print(file, len(page.ids), "tokens, answer:", answer)


if __name__ == "__main__":
    main()
