"""Lines on which tokenizers disagree: code, eleven scripts, emoji, control tokens, white space, digits, odd Unicode.

The same arguments give the same lines on every machine.
"""

# ruff: noqa: RUF001, SIM905  (confusable characters are the point; words are short to read as one text)

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")

SENTENCES = (
    "The quick brown fox jumps over the lazy dog; it's 42 years old, isn't it?",
    "Größe, naïveté, œuvre, smörgåsbord, İstanbul, ŁÓDŹ and the straße's end",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Ёлка — №7",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία· Ἐν ἀρχῇ ἦν ὁ Λόγος",
    "صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت ١٢٣٤٥، هل تتكلم العربية؟",
    "דג סקרן שט בים מאוכזב ולפתע מצא לו חברה; שָׁלוֹם עֲלֵיכֶם",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश किया। १२३४",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๑๒๓",
    "視野無限廣，窗外有藍天。我能吞下玻璃而不伤身体。二〇二四年",
    "いろはにほへと ちりぬるを　ワカヨタレソ ツネナラム。ｶﾀｶﾅ１２３",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. ᄒᆞᆫ글",
    "நீர் அஜந்தா தமிழ் ௧௨௩; ქართული ენა; Հայերեն այբուբեն; አማርኛ ፩፪",
)
EMOJI = tuple("😀 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 1️⃣ ❤️‍🔥 🧑🏿‍🚀 👨‍💻 ☺️ ©️ 🤷‍♀️ ⌚ ✨ → ∑ √2 ½ ™ § ‽ … — “ ” « » ₿ €".split())
WHITE_SPACE = (" ", "  ", "    ", "\t", "\n", "\r\n", "\r", *"\v\f\u0085\u00a0\u2003\u2028\u3000")
NUMBERS = tuple("0 7 42 007 1234567890 3.14159 1e-9 0xFF ٣٤ १२ ²³ Ⅷ ½ ①② 𝟙𝟚 百".split())
APOSTROPHES = tuple("'s 'S 't 'T 're 'RE 'rE 've 'Ve 'm 'll 'lL 'LL 'd 'D ’s 'x 'ſ".split())
ODD = (
    *"e\u0301 a\u0308\u0323 \u0301 n\u0303o \u1100\u1161\u11a8 \u05d0\u05b8 क्\u200dष \u001b[0m 𝒜𝓑 𠜎𠜱 ﬁﬂ".split(),
    *("▁▁", "ĠĠ"),
    *"\u200b\u200c\u200d\u00ad\ufeff\ufffd\ue000\U000f0000\U0010fffd\u0000\u0001\u001f\u007f\u2060\u061c\u202e\ufe0f",
    *"\U000e0061ǅßſİ▁ĠĊ",
)
RUNS = (*"= - # * _ / a A ab 0 10 . ! é 中 م \\ { 😀".split(), " .", "\n", "\t", " ")
CODE = (
    "def {a}({b}, *, {c}=None) -> dict[str, int]:\n    return {{'{b}': {n}, **{c}}}\n",
    "for (int {a} = 0; {a} < {n}; ++{a}) {{ {b}[{a}] += {c}->{b}({a} << 2) ? 1 : -1; }}",
    "<div class=\"{a}\"><b>{b}</b><a href='/{c}?id={n}'>{a}</a></div>\n<table><tr><td>{n}</td></tr></table>",
    '{{"{a}": [{n}, null, true], "{b}": "{c}\\n\\u00e9"}}',
    "SELECT {a}.{b}, COUNT(*) FROM {c} WHERE {a}.id >= {n} AND name LIKE '%{b}%';",
    "#include <{a}.hpp>\ntemplate<typename {b}> auto {c}({b}&& x) {{ return std::forward<{b}>(x); }}\r\n",
    '\tif err := {a}.{b}(ctx, &{c}{{}}); err != nil {{\n\t\treturn fmt.Errorf("{b}: %w", err)\n\t}}\n',
    "const {a} = async ({b}) => {{ await {c}(`${{{b}}}/{n}`); }}; // it's {a}'s",
    "fn {a}<'a>({b}: &'a mut [u8; {n}]) -> Result<(), Box<dyn {c}>> {{ todo!() }}",
    "$ {a} --{b}={n} | grep -E '^[a-z]+\\s{{2,}}' > /dev/null 2>&1 && echo \"$?\"",
    "\\frac{{{a}_{{{n}}}}}{{\\sqrt{{{b}^2+1}}}} \\leq \\sum_{{i=0}}^{{\\infty}} {c}_i",
    "| {a} | {b} |\n|---|:-:|\n| `{c}` | **{n}** |\n\n- [ ] {b}\n",
)
SCRIPTS = (
    *((0x41, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x45F), (0x5D0, 0x5EA), (0x620, 0x64A), (0x904, 0x939)),
    *((0xE01, 0xE2E), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0x1F600, 0x1F64F)),
)


def corpus_lines(count: int, control_tokens: Sequence[str], *, seed: int = 0) -> list[str]:
    """Returns `count` texts of 1 to a few hundred characters, some with several lines; one in seven spells control
    tokens."""
    generator = _Generator(random.Random(seed), control_tokens)
    return [generator.line(number) for number in range(count)]


class _Generator:
    def __init__(self, chance: random.Random, control_tokens: Sequence[str]) -> None:
        self._chance = chance
        self._control_tokens = control_tokens
        self._kinds: tuple[Callable[[], str], ...] = (
            self._sentence,
            self._code,
            self._words,
            self._white_space,
            self._with_control_tokens,
            self._runs,
            self._mixture,
        )

    def line(self, number: int) -> str:
        return self._kinds[number % len(self._kinds)]() or "."

    def _sentence(self) -> str:
        """Returns a piece of a real sentence, cut anywhere and with changed letter case, beside another sentence."""
        sentence = self._pick(SENTENCES)
        start = self._chance.randrange(len(sentence) - 1)
        cut = sentence[start : start + self._chance.randrange(1, 60)]
        change = self._pick((str, str.upper, str.lower, str.title))
        return change(cut) + self._pick(("", " ", "\n", ", ")) + self._pick(SENTENCES)[:20]

    def _code(self) -> str:
        names = {name: self._identifier() for name in "abc"}
        code = self._pick(CODE).format(**names, n=self._pick(NUMBERS))
        indent = self._pick(("", "  ", "    ", "\t", " " * self._chance.randrange(1, 20)))
        return "".join(indent + line for line in code.splitlines(keepends=True))

    def _identifier(self) -> str:
        word = self._ascii_word(self._chance.randrange(1, 9))
        change = self._pick((str.lower, str.upper, str.title, lambda text: text + "_" + text.lower()))
        return change(word) + self._pick(("", "", "2", "_id", "Id"))

    def _ascii_word(self, length: int) -> str:
        return "".join(self._chance.choices("etaoinshrdlucmfwypvbgkjqxz", range(26, 0, -1), k=length))

    def _words(self) -> str:
        """Returns random words, each in one script."""
        words = []
        for _ in range(self._chance.randrange(1, 8)):
            first, last = self._pick(SCRIPTS)
            letters = (chr(self._chance.randint(first, last)) for _ in range(self._chance.randrange(1, 9)))
            words.append("".join(letters))
        return self._pick((" ", "", "-", "\u00a0", "'")).join(words)

    def _white_space(self) -> str:
        pieces = []
        for _ in range(self._chance.randrange(1, 5)):
            pieces.append(self._pick(WHITE_SPACE) * self._chance.choice((1, 1, 2, 3, self._chance.randrange(1, 70))))
            pieces.append(
                self._pick(("", "", self._identifier(), self._pick(NUMBERS), self._pick(APOSTROPHES), "}", "//"))
            )
        self._chance.shuffle(pieces)
        return "".join(pieces)

    def _with_control_tokens(self) -> str:
        pieces = []
        for _ in range(self._chance.randrange(1, 5)):
            pieces.append(self._pick(("", " ", "\n", "  ", self._identifier(), self._pick(SENTENCES)[:12])))
            token = self._pick(self._control_tokens)
            pieces.append(self._pick((token, token, token, token[:-1], token[1:], "<" + token, token.upper())))
        return "".join(pieces)

    def _runs(self) -> str:
        pieces = (self._pick(RUNS) * self._chance.randrange(1, 90) for _ in range(self._chance.randrange(1, 4)))
        return self._pick(("", " ", "\n")).join(pieces)

    def _mixture(self) -> str:
        """Returns pieces of all kinds, mostly without spaces between them."""
        kinds = (EMOJI, NUMBERS, APOSTROPHES, ODD, WHITE_SPACE, RUNS, (self._identifier(), self._ascii_word(5).upper()))
        pieces = [self._pick(self._pick(kinds)) for _ in range(self._chance.randrange(1, 25))]
        return "".join(piece * self._chance.choice((1, 1, 1, 2, 5)) for piece in pieces)

    def _pick(self, items: Sequence[Item]) -> Item:
        return self._chance.choice(items)
