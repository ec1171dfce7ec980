# SPDX-License-Identifier: Apache-2.0
"""Text to train tiny tokenizers on, and texts to test any tokenizer with. All written here."""

import random

WORDS = {
    "en": """the of and to in a is that it was for on are with as his they be at one have this from or had by hot but
    some what there we can out other were all your when up use word how said an each she which do their time if will
    way about many then them would write like so these her long make thing see him two has look more day could go come
    did my sound no most number who over know water than call first people may down side been now find head stand own
    page should country found answer school grow study still learn plant cover food sun four thought let keep eye never
    last door between city tree cross since hard start might story saw far sea draw left late run while press close
    night real life few stop open seem together next white children begin got walk example ease paper often always music
    those both mark book letter until mile river car feet care second group carry took rain eat room friend began idea
    cache key value memory budget attention head layer token prompt window entry compress quantise evict retrieve needle
    haystack question context answer passage number remember magic special secret city""",
    "de": """der die das und ist nicht ein eine für über führer größe straße schön müde fließen mädchen öffnen ähnlich
    jünger wörter grüße können würde möchte zwölf fünf schließen heißt weiß später tür häuser""",
    "fr": """le la les des où déjà être été français garçon élève très naïve cœur sœur forêt fenêtre âge aujourd'hui
    l'eau qu'il c'est n'est d'accord château hôtel noël""",
    "el": """και το να είναι δεν που για από θάλασσα ήλιος καλημέρα κόσμος γλώσσα άνθρωπος ημέρα ψυχή ώρα""",
    "ru": """и в не на что быть он как весь это она год человек время рука дело жизнь день голова ещё ёлка съезд""",
    "zh": """我们 你好 世界 中文 时间 问题 答案 记忆 注意 模型 语言 今天 天气 很好 学习 大学 图书馆""",
    "ja": """こんにちは 世界 カタカナ ひらがな 日本語 東京 です ます ありがとう プログラム""",
    "ko": """안녕하세요 세계 한국어 사람 시간 오늘 날씨 학교""",
    "ar": """مرحبا بالعالم اللغة العربية كتاب مدرسة""",
    "he": """שלום עולם ספר בית""",
    "th": """สวัสดี โลก ภาษาไทย""",
    "hi": """नमस्ते दुनिया हिन्दी भाषा""",
    "emoji": """😀 😂 🎉 👍 👍🏽 👨‍👩‍👧 🇩🇪 ❤️ 🚀""",
}
CODE = [
    "for (int i = 0; i < n; ++i) {\n    sum += a[i] * b[i];\n}\n",
    "def forward(self, x):\n    return self.norm(x) + self.mlp(x)\n",
    "    if (x == nullptr) return -1;  // nothing here\n",
    "\tstd::vector<float> v(n, 0.0f);\r\n",
    "## Heading\n\n* item one\n* item two\n\n### More ###\n",
    "SELECT name, count(*) FROM t WHERE id >= 100 GROUP BY name;\n",
    '{"key": "value", "list": [1, 2, 3], "ok": true}\n',
    "https://example.org/path?a=1&b=2#top\n",
    "x = 3.14159; y = 1e-6; z = 0xFF; // 2024-01-31 12:34:56\n",
]
SHORT = ["I'm", "you're", "it's", "don't", "we'll", "they've", "he'd", "can't", "DON'T", "WE'LL", "It'S"]


def training_text(seed=7, lines=420):
    rng = random.Random(seed)
    out = []
    keys = list(WORDS)
    for i in range(lines):
        kind = i % 7
        if kind < 3:
            words = [rng.choice(WORDS["en"].split()) for _ in range(rng.randint(5, 14))]
            if rng.random() < 0.4:
                words.insert(rng.randint(0, len(words)), rng.choice(SHORT))
            line = " ".join(words)
            line = line[0].upper() + line[1:] + rng.choice([".", ".", "!", "?", ", and so on."])
        elif kind == 3:
            lang = rng.choice(keys[1:])
            words = [rng.choice(WORDS[lang].split()) for _ in range(rng.randint(4, 9))]
            line = ("" if lang in ("zh", "ja") and rng.random() < 0.6 else " ").join(words)
        elif kind == 4:
            line = "The number of " + rng.choice(WORDS["en"].split()) + " is " + str(rng.randint(0, 10**rng.randint(1, 7))) + "."
        elif kind == 5:
            line = rng.choice(CODE)
        else:
            line = rng.choice(["  ", "    ", "\t", "\n\n", " "]) + " ".join(
                rng.choice(WORDS[rng.choice(["en", "en", "de", "fr", "ru"])].split()) for _ in range(5))
        out.append(line)
    return out


def test_texts():
    """At least 150 texts; a dict {"repeat": [s, n]} stands for s repeated n times."""
    t = [
        "", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\r", "a", "A", "0", ".", "\u00e9", "\u4e16", "\U0001f600",
        "hello", " hello", "  hello", "hello ", "hello  ", "Hello world", "hello world", " Hello World ", "Hello    World",
        "I'm DON'T we'LL '\u017fx", "I'm you're it's don't we'll they've he'd", "IT'S WE'VE HE'D I'M", "'S's", "'s", " 's",
        "''s", "'", "'t've", "can\u2019t", "d'accord l'eau qu'il aujourd'hui", "o'clock 'tis rock'n'roll", "'sx 'stuff 'rent",
        "In 2024 there are 12345 days", "1", "12", "123", "1234", "12345", "1234567890", "0000000", "3.14159", "1,234,567.89",
        "1e-6 0xFF 1_000", "x1y22z333", "\u0661\u0662\u0663 \u0967\u0968 \u2160\u2161 \u00bd \u00b2\u00b3 \u2460\u2461 \U0001d7ce\U0001d7cf",
        "100% of $5.00 = \u20ac4,60", "2024-01-31T12:34:56Z", "v1.2.3-rc4+build.5",
        "a\n\n  b\t\tc  \n", "a\nb", "a \n b", "a\n \nb", "a\n\n\nb", "a\r\nb\r\n\r\nc", "a\rb\r\rc", "a\n\r\nb", "  \n  ", "\n ", " \n",
        "\n  x", "\t\tx", "x\t", "x\t y", "x \ty", "a\x0bb\x0cc", "tab\tsep\tvals\n1\t2\t3\n", "    indented\n        more\n",
        "trailing   \n   leading", "a  b   c    d     e", "line one \n\n\n line two",
        "x\u00a0\u00a0y", "x \u00a0y", "a\u2003b\u2009c\u200ad", "a\u3000b", "a\u180eb", " \u180e ", "a\u2028b\u2029c", "a\u0085b", "a\u200bb\u200cc\u200dd",
        "a\ufeffb", "\ufeffstart", "soft\u00adhyphen", "a\u2060b", "word\u202eRTL\u202c",
        "e\u0301 combining", "\u00e9 composed", "e\u0301\u0323 order", "\u1e69 s\u0323\u0307 s\u0307\u0323", "\u212b \u212a \u2126", "\ufb01 \ufb03 ligatures",
        "\uac00 \u1100\u1161 \u1100\u1161\u11a8", "\u0958 \u0915\u093c", "\u0344 \u0308\u0301", "Z\u0361\u0359\u035c\u0321a\u0318\u0320l\u0316g\u0321o\u0338", "\u0301x", " \u0301x",
        "\U0001f600\U0001f602", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 family", "\U0001f44d\U0001f3fd ok \U0001f44d", "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", "\u2764\ufe0f \u2764", "1\ufe0f\u20e3",
        "\U0001f3f4\U000e0067\U000e0062\U000e007f", "text\U0001f680text", "\U0001f680\U0001f680\U0001f680 !!!",
        "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u0643\u0650\u062a\u064e\u0627\u0628\u064c", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd", "abc \u0645\u0631\u062d\u0628\u0627 def",
        "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48 2567", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "\u0939\u093f\u0928\u094d\u0926\u0940 \u0967\u0968\u0969\u0964", "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd", "\u1000\u103c\u1014\u103a\u1019\u102c",
        "\u4f60\u597d\u4e16\u754c", "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002", "\u4e2d\u6587English\u6df7\u5408123", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3067\u3059\u3002", "\u30ab\u30bf\u30ab\u30ca \u3072\u3089\u304c\u306a", "\u30fb\u30fc\u3005\u3006\u300c\u300d", "\uff21\uff22\uff23\uff11\uff12\uff13",
        "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\u9f98\u9750\u4dae", "\U00020000\U0002a6d6 ext", "\u3007\u5341",
        "Gr\u00f6\u00dfe F\u00fchrer \u00fcber Stra\u00dfe", "\u00d8re \u00fe\u00fd\u00c0\u00f7 \u00f9\u00f5\u00ff", "na\u00efve c\u0153ur d\u00e9j\u00e0 o\u00f9", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0401\u043b\u043a\u0430", "\u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 \u03ba\u03cc\u03c3\u03bc\u03b5", "\u0391\u0392\u0393 \u03b1\u03b2\u03b3\u03c2",
        "\u0130stanbul \u0131\u015f\u0131k", "\u01c5 \u01c8 titlecase", "\u02b0\u02b2 modifier", "\u1d2c\u1d47", "\u10d2\u10d0\u10db\u10d0 \u1c90\u1c91",
        "foo(bar)->baz[3]; // x\r\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}", "def f(x):\n    return x**2 + 1\n", "if(a&&b||!c){d<<=2;}", "#include <vector>\n#define X 1",
        "## Heading ###\n\n* item", "snake_case camelCase PascalCase kebab-case", "{\"k\": [1, 2.5, null], \"s\": \"a\\nb\"}", "https://example.org/p?a=1&b=%20#t", "user@example.org", "C:\\path\\file.txt",
        "<html><body>text</body></html>", "$x^2 + \\frac{a}{b}$", "a/b/c //comment /* block */", "!!!???...", "---===+++", "?!\n!?\r\n...\n\n", "\"quoted\" 'single' `tick` \u201ccurly\u201d \u2018s\u2019",
        "(a) [b] {c} <d>", "a,b;c:d.e!f?g", "...and... then...", " . , ! ?", "a \u2014 b \u2013 c \u2026 d", "\u00a9\u00ae\u2122 \u00a7\u00b6 \u2020\u2021", "\u2192\u21d2\u2200\u2203\u2208 \u2211\u222b", "\u2500\u2502\u250c\u2510", "\u20ac\u00a3\u00a5\u20bf", "^_`{|}~@",
        "\x00", "a\x00b", "\x01\x02\x1f\x7f", "a\x1bb[0m", "\u0080\u009f", "\ufffd bad", "\ue000\uf8ff private", "\U000f0000", "\ufdd0\uffff\U0010ffff",
        "\u2581", "\u2581hello", "a\u2581b", " \u2581 x", "\u2581\u2581\u2581", "hello\u2581world and more", "\u0120hello \u010a",
        "The quick brown fox jumps over the lazy dog.", "The special magic number for the city is 48213. Remember it.", "unbelievable compression cache attention unbelievably",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ababababababababababab", "AAAA BBBB cccc", "thethethethe andandand", "Thequickbrownfoxwithoutspaces", "ThE qUiCk BrOwN",
        "Question: who is it?\nAnswer:", "\nUser: hi\n\nAssistant: yes\n", "a.b.c.d 1.2.3.4", "he said: \u00abnon\u00bb", "10k-space next",
        "\U00031350\U0002ebf0\U000323af", "\U0001e4d0\U00010d40\U00011f04", "\ua7cb\ua7da\u1c89", "\U0001faef\U0001fae9 new emoji", "\u0897\u0870\u088f", "\U0001d2c0\U0001d2d3 \U00011de0", "\u20c0\u2427\u1dfa",
        {"repeat": [" ", 10000]}, {"repeat": ["a", 20000]}, {"repeat": ["abcdefghij", 2000]}, {"repeat": ["\n", 3000]}, {"repeat": ["0", 1001]},
        {"repeat": ["\u00e9", 2000]}, {"repeat": ["the cat ", 1500]}, {"repeat": ["! ", 1000]}, {"repeat": [" \n", 1000]},
    ]
    return t


def expand(text):
    return text if isinstance(text, str) else text["repeat"][0] * text["repeat"][1]


def special_texts(tokens):
    """Texts that hold special strings; `tokens` are contents of added tokens."""
    out = []
    for k in tokens:
        out += [k, f"a{k}b", f" {k} ", f"hi {k}\nthere", f"{k}Hi", f"x{k}"]
    if len(tokens) > 1:
        a, b = tokens[0], tokens[1]
        out += [a + b, b + a + b, f"{a} {b}\n\n{a}", f"{a[:-1]}", f"{a[1:]}", f"{a}{a[:3]}", a.upper(), f"Say {a} and {b}, then stop."]
    out += ["<s>", "</s>Hi", "a</s> b", "<unk>", "<0x41>", "<|im_start|>user\nhi<|im_end|>\n", "[INST] hi [/INST]"]
    return out
