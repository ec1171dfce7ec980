"""Texts with questions, written in the closed English of `words`.

Every task builds a text that fits a number of tokens and ends in one or more questions. A question
always ends in the words that stand before its answer in the text. A text is a list of segments,
(string, counts): `counts` marks what the model must answer, with the sign that ends it.
"""
import random

from words import (ADJECTIVES, KINDS, LABELS, MOTIONS, NAMES, NOUNS, PLACES, TIMES, VERBS, WEATHER)

TRAIN, HELD_OUT = 0, 1


def stream(split, seed, *parts):
    """A random stream; the split is part of its name, so the two splits never share one."""
    return random.Random(f"{('train', 'held-out')[split]}/{seed}/" + "/".join(map(str, parts)))


class Page:
    """A text under construction that knows its length in tokens."""

    def __init__(self, codec, limit):
        self.codec, self.limit = codec, limit
        self.segments, self.ids, self.counts = [], [1], [False]

    def add(self, string, counts=False):
        # The tokenizer puts a space in front of a text.
        ids = self.codec.encode_piece(string if self.segments else " " + string)
        self.segments.append((string, counts))
        self.ids.extend(ids)
        self.counts.extend([counts] * len(ids))

    def room(self):
        return self.limit - len(self.ids)

    def size(self, string):
        return len(self.codec.encode_piece(string))


# ---------------------------------------------------------------------------------------- filler

def one(words):
    """The words with their article."""
    return ("an " if words[0] in "aeiou" else "a ") + words


def filler(rng):
    """One sentence about nothing in particular, with a leading space."""
    name, noun, place = rng.choice(NAMES), rng.choice(NOUNS), rng.choice(PLACES)
    adjective = rng.choice(ADJECTIVES)
    form = rng.randrange(9)
    if form == 0:
        return f" {name} {rng.choice(VERBS)} the {adjective} {noun} in the {place}."
    if form == 1:
        return f" {name} {rng.choice(VERBS)} {one(f'{adjective} {noun}')}."
    if form == 2:
        return f" {name} {rng.choice(MOTIONS)} to the {place} with {rng.choice(NAMES)}."
    if form == 3:
        return f" It was {rng.choice(WEATHER)} near the {adjective} {place}."
    if form == 4:
        return f" {rng.choice(TIMES)} {name} {rng.choice(MOTIONS)} to the {place}."
    if form == 5:
        return f" The {noun} and the {rng.choice(NOUNS)} were {adjective}."
    if form == 6:
        return f" {name} and {rng.choice(NAMES)} {rng.choice(VERBS)} {one(noun)}."
    if form == 7:
        return f" There was {one(noun)} in the {adjective} {place}."
    return f" {rng.choice(TIMES)} it was {rng.choice(WEATHER)} in the {place}."


def number(rng, longer=0.0):
    digits = 3 if rng.random() >= longer else rng.randrange(4, 8)
    return str(rng.randrange(10 ** (digits - 1), 10 ** digits))


def scribble(rng):
    """A word of no language, so that copying does not depend on the closed vocabulary."""
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(2, 6)))


def objects(rng, count):
    """`count` different 'adjective noun' names."""
    seen = {}
    while len(seen) < count:
        seen[f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"] = True
    return list(seen)


# ------------------------------------------------------------------------------------------ facts

FACTS = (
    ("The secret number of the {} is", lambda rng: number(rng, 0.3),
     ("what is the secret number of the {}?", "which secret number belongs to the {}?",
      "do you remember the secret number of the {}?")),
    ("The price of the {} is", number,
     ("what is the price of the {}?", "how much is the {}?", "what does the {} cost?")),
    ("The code of the {} is", lambda rng: number(rng, 0.3),
     ("what is the code of the {}?", "which code does the {} have?", "who knows the code of the {}?")),
    ("The owner of the {} is", lambda rng: rng.choice(NAMES),
     ("who is the owner of the {}?", "who owns the {}?", "to whom does the {} belong?")),
    ("The {} is kept in the", lambda rng: rng.choice(PLACES),
     ("where is the {} kept?", "where is the {}?", "where can I find the {}?")),
)


def fact(rng, thing):
    """(lead, answer, question) of one fact about a thing; lead + answer + '.' is its sentence."""
    lead, answer, questions = rng.choice(FACTS)
    return lead.format(thing), answer(rng), rng.choice(questions).format(thing)


def hide(page, rng, sentences, length):
    """Filler up to `length` tokens with the sentences hidden in it, in order, at random places."""
    page.add("Story:")
    need = sum(page.size(" " + s) for s in sentences)
    lines = []
    used = 0
    while used + need < length - 20:
        lines.append(filler(rng))
        used += page.size(lines[-1])
    spots = sorted(rng.randrange(len(lines) + 1) for _ in sentences)
    for spot, sentence in reversed(list(zip(spots, sentences))):
        lines.insert(spot, " " + sentence)
    for line in lines:
        page.add(line)


# ------------------------------------------------------------------------------------------ tasks
# Each takes (page, rng, limit): `limit` is the most questions to ask.

def share_for_text(rng, limit):
    return 0.97 if limit <= 2 else rng.uniform(0.45, 0.8)


def story(page, rng, sentences, pool, limit):
    """A story with the sentences hidden in it, then questions about the pool, each asked once: a
    second time the answer could be copied from the first."""
    full = rng.random() < 0.5
    asked, need = [], 0
    for lead, answer, question in rng.sample(pool, min(limit, len(pool))):
        head = f"\nQuestion: {question} Answer: {lead}" if full else f"\n{lead}"
        size = page.size(f"{head} {answer}.")
        if asked and need + size > page.limit * 0.6:
            break
        asked.append((head, answer))
        need += size
    hide(page, rng, sentences, page.limit - need)
    for head, answer in asked:
        page.add(head)
        page.add(f" {answer}.", True)


def needles(page, rng, limit, counts=(1, 4, 8, 16, 32)):
    count = max(1, min(rng.choice(counts), page.limit // 32))
    facts = [fact(rng, thing) for thing in objects(rng, count)]
    story(page, rng, [f"{lead} {answer}." for lead, answer, _ in facts], facts, limit)


def key_value(page, rng, limit):
    length = int(page.limit * share_for_text(rng, limit)) - (30 if limit <= 2 else 0)
    page.add("Table:")
    pairs = []
    for thing in objects(rng, max(2, length // 9)):
        line = (f"- {thing}:", number(rng), f"what is the number of {thing}?")
        if len(page.ids) + 11 > length and pairs:
            break
        page.add(f"\n{line[0]} {line[1]}.")
        pairs.append(line)
    full = rng.random() < 0.5
    for lead, answer, question in rng.sample(pairs, min(limit, len(pairs))):
        head = f"\nQuestion: {question} Answer: {lead}" if full else f"\n{lead}"
        if page.size(f"{head} {answer}.") > page.room():
            break
        page.add(head)
        page.add(f" {answer}.", True)


def labels(page, rng, limit, new=0.3):
    """Sentences with a made-up label for the kind of noun in them; `new` asks about unseen nouns."""
    length = int(page.limit * share_for_text(rng, limit)) - (20 if limit <= 2 else 0)
    kinds = rng.sample(sorted(KINDS), rng.randrange(2, 7))
    name_of = dict(zip(kinds, rng.sample(LABELS, len(kinds))))
    page.add("Labels:")
    shown = {kind: [] for kind in kinds}
    order = []

    def line(noun):
        return f"\nText: {rng.choice(NAMES)} {rng.choice(VERBS)} the {noun}. Label:"

    while len(page.ids) + 14 < length or not all(shown.values()):
        if not order:
            order = rng.sample(kinds, len(kinds))
        kind = order.pop()
        noun = rng.choice(KINDS[kind])
        shown[kind].append(noun)
        page.add(f"{line(noun)} {name_of[kind]}.")
        if page.room() < 16:
            break
    asked = 0
    while asked < limit and page.room() >= 14:
        kind = rng.choice([k for k in kinds if shown[k]])
        unseen = [noun for noun in KINDS[kind] if noun not in shown[kind]]
        noun = rng.choice(unseen) if unseen and rng.random() < new else rng.choice(shown[kind])
        page.add(line(noun))
        page.add(f" {name_of[kind]}.", True)
        asked += 1


COPY_WORDS = NAMES + ADJECTIVES + NOUNS + PLACES + VERBS + LABELS


def copying(page, rng, limit):
    """A random list of words, then pieces of it; a piece counts from its third word on."""
    length = int(page.limit * share_for_text(rng, limit)) - (20 if limit <= 2 else 0)
    page.add("List:")
    words = []
    while len(page.ids) < length:
        if rng.random() < 0.1:
            word = " " + number(rng, 0.5)
        elif rng.random() < 0.1:
            word = " " + scribble(rng)
        else:
            word = " " + rng.choice(COPY_WORDS)
        words.append(word)
        page.add(word)
    page.add(".")
    asked = 0
    while asked < limit and page.room() > 12:
        count = min(rng.randrange(5, 24), len(words))
        start = rng.randrange(len(words) - count + 1)
        page.add("\nRepeat:")
        for index, word in enumerate(words[start:start + count]):
            if page.size(word) + 1 > page.room():
                return
            page.add(word, index >= 2)
        page.add(".")
        asked += 1


def passages(page, rng, limit):
    """Passages numbered at their end; asked with their last words."""
    length = int(page.limit * share_for_text(rng, limit)) - (36 if limit <= 2 else 0)
    page.add("Pages:")
    numbers = rng.sample(range(10, 100), 89)
    ends = rng.sample([(a, p) for a in ADJECTIVES for p in PLACES], 89)
    pool = []
    for value, (adjective, place) in zip(numbers, ends):
        for _ in range(rng.randrange(3)):
            page.add(filler(rng))
        lead = (f"{rng.choice(NAMES)} {rng.choice(VERBS)} the {rng.choice(NOUNS)} in the "
                f"{adjective} {place} (page")
        page.add(f" {lead} {value}).")
        pool.append((lead, value))
        if len(page.ids) + 50 > length:
            break
    asked = 0
    order = []
    while asked < limit:
        if not order:
            order = rng.sample(pool, len(pool))
        lead, value = order.pop()
        if page.size(f"\nWhere: {lead} {value}).") > page.room():
            break
        page.add(f"\nWhere: {lead}")
        page.add(f" {value}).", True)
        asked += 1


def journeys(page, rng, limit):
    """Things that pass from hand to hand; asked for the whole way of one."""
    hops = 3
    count = max(1, min(rng.randrange(1, 10), page.limit // 90))
    names = rng.sample(NAMES, count * (hops + 1))
    sentences, pool = [], []
    for thing in objects(rng, count):
        way = [names.pop() for _ in range(hops + 1)]
        legs = [f"The {thing} went from {a} to {b}." for a, b in zip(way, way[1:])]
        # Merge into the story of the others, keeping the order of the legs.
        merged = []
        while legs or sentences:
            source = legs if rng.random() * (len(legs) + len(sentences)) < len(legs) else sentences
            merged.append(source.pop(0))
        sentences = merged
        pool.append((f"The {thing} went from {way[0]} to", " to ".join(way[1:]),
                     rng.choice((f"which way did the {thing} go?", f"who had the {thing}?"))))
    story(page, rng, sentences, pool, limit)


TASKS = {"copying": copying, "key_value": key_value, "labels": labels, "needles": needles,
         "passages": passages, "journeys": journeys}
FIRST = ("copying", "key_value", "labels")  # alone until key matching has formed


def make(codec, task, length, split, seed, index, limit=10**6, **options):
    """The page of one sample, fixed by its arguments."""
    rng = stream(split, seed, task, length, index)
    page = Page(codec, length)
    TASKS[task](page, rng, limit, **options)
    return page


def prompt_and_answer(page):
    """The text up to the first answer, and that answer."""
    prompt = ""
    for position, (string, counts) in enumerate(page.segments):
        if counts:
            answer = []
            for string, counts in page.segments[position:]:
                if not counts:
                    break
                answer.append(string)
            return prompt, "".join(answer).strip().rstrip(".)")
        prompt += string
    raise ValueError("a page without a question")
