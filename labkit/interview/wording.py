"""What the interview's two faces say themselves, in English and in Chinese.

The questions bring their own texts; these are the words around them, for the card in a notebook
and for the terminal.
"""

from collections.abc import Iterable
from datetime import date

from labkit.interview.question_parts import Text

WORDS = {
    "submit": {"en": "Answer", "zh": "提交"},
    "hint": {"en": "Hint", "zh": "提示"},
    "no more hints": {"en": "There is no hint left here.", "zh": "这里没有提示了。"},
    "unknown": {"en": "I do not know", "zh": "不知道"},
    "next": {"en": "Next", "zh": "下一题"},
    "right": {"en": "Right.", "zh": "正确。"},
    "wrong": {"en": "Not so.", "zh": "不对。"},
    "noted": {"en": "Noted; it comes again.", "zh": "记下了，还会再问。"},
    "answer": {"en": "Answer", "zh": "答案"},
    "given": {"en": "You", "zh": "你"},
    "chosen right": {"en": "your choice, right", "zh": "你的选择，正确"},
    "chosen wrong": {"en": "your choice, not right", "zh": "你的选择，不对"},
    "right option": {"en": "right", "zh": "正确"},
    "ticked": {"en": "ticked", "zh": "已勾选"},
    "not ticked": {"en": "not ticked", "zh": "未勾选"},
    "see": {"en": "See for yourself", "zh": "自己验证"},
    "model": {"en": "What we would say", "zh": "参考回答"},
    "speech": {
        "en": "Say it aloud, then sum it up in a line",
        "zh": "请说出来，再用一句话概括",
    },
    "code": {"en": "Your code", "zh": "你的代码"},
    "tick": {"en": "Tick the points that you made.", "zh": "勾选你说到的要点。"},
    "made": {
        "en": "Which points did you make? (numbers, 0 for none)",
        "zh": "你说到了哪些要点？（编号，没有则写 0）",
    },
    "sure": {"en": "How sure?", "zh": "有多大把握？"},
    "sure is 1 to 3": {
        "en": "Give 1, 2 or 3. Enter alone means 2.",
        "zh": "请输入 1、2 或 3；直接回车表示 2。",
    },
    "speech cut": {
        "en": "That is {length} characters. The first {limit} are kept; a line is enough.",
        "zh": "共 {length} 个字符，只保留前 {limit} 个；一句话就够了。",
    },
    "editor opens": {
        "en": "Enter opens {editor}; or type {how}",
        "zh": "回车打开 {editor}；或直接输入{how}",
    },
    "running": {
        "en": "Running your program. Ctrl-C stops the program, not the drill.",
        "zh": "正在运行你的程序。Ctrl-C 只停止程序，练习会继续。",
    },
    "run stopped": {
        "en": "Stopped. Nothing counts yet; change the program and give it again.",
        "zh": "已停止，这次不计。请修改程序后重新提交。",
    },
    "second try": {"en": "Second try: {how}", "zh": "第二次机会：{how}"},
    "leave": {"en": "leave it", "zh": "放弃"},
    "guessing": {"en": "guessing", "zh": "猜的"},
    "fairly sure": {"en": "fairly sure", "zh": "较有把握"},
    "certain": {"en": "certain", "zh": "肯定"},
    "to": {"en": "to", "zh": "到"},
    "comma": {"en": ", ", "zh": "，"},
    "choose keys": {"en": "choose", "zh": "选择"},
    "tick keys": {"en": "tick", "zh": "勾选"},
    "order keys": {"en": "choose the next item", "zh": "选择下一项"},
    "match keys": {"en": "choose for this line", "zh": "为当前行选择"},
    "tab key": {"en": "goes to the next field", "zh": "跳到下一栏"},
    "answer key": {"en": "answers", "zh": "提交"},
    "hint key": {"en": "shows a hint", "zh": "显示提示"},
    "next key": {"en": "goes on", "zh": "进入下一题"},
    "incomplete": {"en": "Your answer is not complete yet.", "zh": "你的答案还不完整。"},
    "drill keys": {"en": "q: stop.", "zh": "q：结束。"},
    "mock keys": {
        "en": "q: stop; it goes on where it was.",
        "zh": "q：结束，之后可从这里继续。",
    },
    "right of": {"en": "{right} of {all} right", "zh": "答对 {right} / {all}"},
    "minutes left": {"en": "minutes left", "zh": "分钟剩余"},
    "question": {"en": "question", "zh": "题"},
    "this mock": {"en": "this mock", "zh": "本次模拟"},
    "screen": {"en": "levels 1 and 2", "zh": "1、2 级"},
    "deep dive": {"en": "level 3", "zh": "3 级"},
    "level": {"en": "level", "zh": "级别"},
    "path": {"en": "The path", "zh": "提问路径"},
    "trend": {"en": "Your mocks", "zh": "历次模拟面试"},
    "mock ended": {"en": "ended", "zh": "结束时间"},
    "what next": {"en": "What to do next", "zh": "下一步"},
    "nothing due": {"en": "Nothing is due.", "zh": "没有到期的题目。"},
    "read again": {"en": "Read again", "zh": "建议重读"},
    "start with": {"en": "Start with", "zh": "建议从这里开始"},
    "all right": {
        "en": "Nothing missed. Go straight to the mock interview in lab 16.",
        "zh": "全部答对。可以直接去实验 16 做模拟面试。",
    },
    "lab": {"en": "lab", "zh": "实验"},
    "labs to revisit": {"en": "Labs to revisit", "zh": "建议重做的实验"},
    "topic": {"en": "topic", "zh": "主题"},
    "score": {"en": "score", "zh": "得分"},
    "seconds": {"en": "seconds", "zh": "秒"},
    "expected": {"en": "expected", "zh": "预计"},
    "confidence": {"en": "stated confidence", "zh": "把握"},
    "share right": {"en": "right", "zh": "正确率"},
    "answers": {"en": "answers", "zh": "题数"},
    "ready columns": {
        "en": "Expected share of new questions right with an interval of 80 %, in a screen and in "
        "a deep dive; first answers that were right, of all first answers; topic",
        "zh": "新题预计正确率与 80 % 区间：初面、深入追问；首次作答的答对数与题数；主题",
    },
    "minutes": {"en": "min", "zh": "分钟"},
    "resumed": {
        "en": "Resumed at question {place}; --new begins another.",
        "zh": "从第 {place} 题继续；加 --new 可重新开始一场。",
    },
    "other mock": {
        "en": "This is a new mock. Another one is unfinished; q, then "
        "`labkit mock --seed {seed}` goes on with it.",
        "zh": "这是新的一场。另有一场还没做完；要继续那一场，请输入 q，"
        "再运行 `labkit mock --seed {seed}`。",
    },
    "reviews written": {"en": "{file}: {count} reviews", "zh": "{file}：{count} 条答题记录"},
    "reviews read": {
        "en": "{file}: {added} added, {known} known before",
        "zh": "{file}：新增 {added} 条，已有 {known} 条",
    },
    "no date": {"en": "No interview is ahead.", "zh": "没有定下面试日期。"},
    "past date": {
        "en": "{day} is past. Give the day of the interview, such as 2027-01-15.",
        "zh": "{day} 已经过去。请给出面试的日期，例如 2027-01-15。",
    },
    "deck": {"en": "Mixed precision", "zh": "混合精度"},
    "one draw": {
        "en": "The numbers vary in a drill. This card keeps one draw.",
        "zh": "练习中数字会变化；这张卡片固定为其中一组。",
    },
    "points": {"en": "Points to make", "zh": "要点"},
    "wrong answers": {"en": "Wrong answers, and why", "zh": "常见错误及原因"},
    "sources": {"en": "Sources", "zh": "来源"},
    "exported": {
        "en": "{file}: {cards} cards.\n"
        "{programs} questions are not in the deck: you answer them with a program, in "
        "`labkit drill`.\n"
        "{on_paper} cards have the tag {tag}: write the order or the pairs down, then turn the "
        "card.\n"
        "Importing again updates these cards; the other language has cards of its own. Cards of "
        'the old note type "labkit question" are not updated: find them in Anki\'s browser with '
        'note:"labkit question" and delete them.',
        "zh": "{file}：{cards} 张卡片。\n"
        "有 {programs} 道题不在牌组里：它们要写程序作答，请用 `labkit drill`。\n"
        "{on_paper} 张卡片带有标签 {tag}：请先写下顺序或配对，再翻面。\n"
        "再次导入会更新这些卡片；另一种语言的卡片各自独立。旧笔记类型 “labkit question” "
        '的卡片不会更新：在 Anki 浏览器里搜索 note:"labkit question"，然后删除。',
    },
    "plan without a date": {
        "en": "No date is set, so this is the plan for the last days before an interview.",
        "zh": "没有定下面试日期；下面是面试前最后几天的计划。",
    },
    "all done": {
        "en": "Nothing is left of this plan. `python -m labkit interview ready`, in a notebook "
        "`preparing.ready()`, says how you answered new questions.",
        "zh": "这份计划已全部完成。`python -m labkit interview ready`（notebook 中用 "
        "`preparing.ready()`）会说明你回答新题的情况。",
    },
}
"""Each text by its name, then by its language."""


def closed_mocks(many: int) -> Text:
    """That mocks of an older version were closed."""
    one = "A mock of an older version was broken off. It cannot go on and is closed;"
    several = f"{many} mocks of an older version were broken off. They cannot go on and are closed;"
    return Text(
        en=f"{one if many == 1 else several} the answers count.",
        zh=f"旧版本中未完成的 {many} 次模拟面试无法继续，已关闭；其中的作答有效。",
    )


def lasting(questions: int, seconds: int) -> Text:
    """How many questions there are and what they take: seconds, from two minutes on minutes."""
    many = "1 question" if questions == 1 else f"{questions} questions"
    minutes = -(-seconds // 60)
    en, zh = (f"{seconds} seconds", f"{seconds} 秒")
    if seconds > 120:
        en, zh = (f"{minutes} minutes", f"{minutes} 分钟")
    return Text(en=f"{many}, about {en}.", zh=f"共 {questions} 题，约 {zh}。")


def ahead(day: date, today: date) -> Text:
    """The date of the interview and the days left until then."""
    days = (day - today).days
    if days == 0:
        return Text(en=f"The interview is today, {day}.", zh=f"面试就在今天（{day}）。")
    left = "1 day is" if days == 1 else f"{days} days are"
    return Text(
        en=f"The interview is on {day}: {left} left.", zh=f"面试日期是 {day}，还有 {days} 天。"
    )


def labelled(label: str, text: str, language: str) -> str:
    """A label, the language's colon, and what it is the label of."""
    return f"{label}：{text}" if language == "zh" else f"{label}: {text}"


def listed(texts: Iterable[str], language: str) -> str:
    """Texts one after another, with the language's comma between them."""
    return ("，" if language == "zh" else ", ").join(texts)


def in_brackets(text: str, language: str) -> str:
    """What follows a text in brackets."""
    return f"（{text}）" if language == "zh" else f" ({text})"


def words(language: str) -> dict[str, str]:
    """All words in one language, "en" or "zh"."""
    return {name: said[language] for name, said in WORDS.items()}


def sureness(language: str) -> tuple[str, str, str]:
    """The three confidences, from guessing (1) to certain (3)."""
    said = words(language)
    return said["guessing"], said["fairly sure"], said["certain"]


def stated(sure: int, language: str) -> tuple[str, ...]:
    """A stated confidence, 1 to 3, in words; nothing where none was said (0)."""
    return (sureness(language)[sure - 1],) if sure else ()
