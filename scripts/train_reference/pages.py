# SPDX-License-Identifier: Apache-2.0
"""Pages with pictures from `kvgauge data generate`: what ref-vlm is trained on."""
import itertools
import json
import pathlib
import shutil
import subprocess
import tempfile
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from tokenizers import AddedToken, Tokenizer

import data
from vlm import GRID, IMAGE, ROWS

# Tasks of configs/tasks/visual, and what differs from them. A page of `needle` hides eight things,
# so that there is something to learn from it.
FORMS = {"pairs": {}, "needle": {"needles": 8}, "pairs_digit": {}, "needle_digit": {"needles": 8},
         "beside": {}, "frames": {}, "fact": {}}
FIRST = ("pairs", "needle")


class Signs(NamedTuple):
    """Ids of the prompt that text does not have."""
    image: int      # stands for each row of a picture
    before: list    # a picture's rows
    behind: list    # them
    others: list    # that no page has


def load_tokenizer(folder, around=((), (), ())):
    """A reference tokenizer with the sign for a picture and those around it; see `Signs`."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    names = dict.fromkeys((IMAGE, *itertools.chain(*around)))
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False)
                                  for name in names])
    ids = ([tokenizer.token_to_id(name) for name in names] for names in around)
    return tokenizer, Signs(tokenizer.token_to_id(IMAGE), *ids)


class Pages:
    """Pages of some forms with so many pictures, in turn; without end. The pictures pass through a
    folder that is gone afterwards. `as_shipped`: the tasks as they are, for scores."""

    def __init__(self, program, forms, pictures, seed, split="train", first=0, questions=0,
                 as_shipped=False):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pages-"))
        command = [program, "data", "generate", "--pictures", str(pictures), "--seed", str(seed),
                   "--split", split, "--first", str(first), "--questions", str(questions),
                   "--images", str(self.folder)]
        for form in forms:
            task = json.loads((data.ROOT / "configs/tasks/visual" / f"{form}.json").read_text())
            if not as_shipped:
                task["source"] |= FORMS.get(form, {})
                task["source"]["needles"] = min(task["source"].get("needles", 1), 2 * pictures)
                task["source"].pop("depths", None)
            path = self.folder / f"{form}.json"
            path.write_text(json.dumps(task))
            command += ["--task", str(path)]
        self.taken = first
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)

    def __iter__(self):
        return self

    def __next__(self):
        """The page, with "pixels": u8 [pictures, side, side, 3] and "form"."""
        line = self.process.stdout.readline()
        if not line:
            if self.process.wait() != 0:
                raise RuntimeError("kvgauge data generate failed")
            raise StopIteration
        self.taken += 1
        page = json.loads(line)
        page["form"] = page["task"].removeprefix("visual/")
        pixels = []
        for name in page["images"]:
            with Image.open(self.folder / name) as image:
                pixels.append(np.asarray(image.convert("RGB")))
            (self.folder / name).unlink()
        page["pixels"] = np.stack(pixels)
        return page

    def close(self):
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def encode(page, tokenizer, signs, bos=1, eos=2):
    """(ids, answer): a picture's sign once for each of its rows, an end sign after each answer; which
    ids belong to answers."""
    read = tokenizer.encode(page["text"], add_special_tokens=False)
    ids, answer, spans = [bos], [False], [tuple(span) for span in page["answers"]]
    for token, (begin, end) in zip(read.ids, read.offsets):
        while spans and begin >= spans[0][1]:
            ids.append(eos)
            answer.append(True)
            spans.pop(0)
        new = [token]
        if token == signs.image:
            new = signs.before + [token] * ROWS + signs.behind
        ids += new
        answer += [bool(spans) and begin >= spans[0][0] and end <= spans[0][1]] * len(new)
    if spans:
        ids.append(eos)
        answer.append(True)
    return ids, answer


def tensors(rows, length, image):
    """ids [rows, length], and for each the kind of the next: 1 answer, 0 other, -1 not predicted."""
    ids = torch.full((len(rows), length), 2)
    kind = torch.full((len(rows), length), -1, dtype=torch.int8)
    for i, (row, answer) in enumerate(rows):
        row, answer = row[:length], answer[:length]
        ids[i, :len(row)] = torch.tensor(row)
        kind[i, :len(row) - 1] = torch.tensor(answer[1:], dtype=torch.int8)
    kind[:, :-1][ids[:, 1:] == image] = -1
    return ids, kind


# --------------------------------------------------------------------------- what a patch shows

COLOURS = ("red", "blue", "green", "yellow", "brown", "black", "white", "purple", "silver", "golden")
NOUNS = ("ball box bed hat boat bus fork wolf plane bag book table van fox pear sock camera duck "
         "cheese flag coat horse harp desk knife stone bear apple drum doll axe ladder").split()
SHOWN = (*COLOURS, *NOUNS, *"0123456789")
INDEX = {word: i for i, word in enumerate(SHOWN)}
GROUND, UNNAMED = -1, -2    # instead of an index: background; drawn, but nothing is said of it


def patch_ids(tokenizer):
    """The token of each shown word, as a text would have it."""
    ids = [tokenizer.token_to_id(word if word.isdigit() else "▁" + word) for word in SHOWN]
    missing = [word for word, i in zip(SHOWN, ids) if i is None]
    if missing:
        raise SystemExit(f"not one piece of the tokenizer: {', '.join(missing)}")
    return ids


def labels_of(page):
    """i16 [pictures, GRID, GRID]: index in SHOWN, or GROUND."""
    flat = [INDEX[word] if word else GROUND for words in page["words"] for word in words]
    return np.array(flat, np.int16).reshape(-1, GRID, GRID)
