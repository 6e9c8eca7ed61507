"""What the interview's two faces say themselves, in English and in Chinese.

The questions bring their own texts; these are the words around them, for the card in a notebook
and for the terminal.
"""

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
    "guessing": {"en": "guessing", "zh": "猜的"},
    "fairly sure": {"en": "fairly sure", "zh": "较有把握"},
    "certain": {"en": "certain", "zh": "肯定"},
    "card keys": {
        "en": "numbers choose, Enter answers, h hints",
        "zh": "数字选择，回车提交，h 提示",
    },
    "terminal keys": {
        "en": "Enter: answer. h: hint. ?: I do not know. q: stop.",
        "zh": "回车：提交。h：提示。?：不知道。q：结束。",
    },
    "mock keys": {
        "en": "?: I do not know. q: stop; it goes on where it was.",
        "zh": "?：不知道。q：结束，之后可从这里继续。",
    },
    "right of": {"en": "{right} of {all} right", "zh": "答对 {right} / {all}"},
    "minutes left": {"en": "minutes left", "zh": "分钟剩余"},
    "question": {"en": "question", "zh": "题"},
    "round": {"en": "round", "zh": "轮次"},
    "screen": {"en": "screen (levels 1 and 2)", "zh": "初面（1、2 级）"},
    "deep dive": {"en": "deep dive (level 3)", "zh": "深入追问（3 级）"},
    "level": {"en": "level", "zh": "级别"},
    "path": {"en": "The path", "zh": "提问路径"},
    "trend": {"en": "Your mocks", "zh": "历次模拟面试"},
    "mock ended": {"en": "ended", "zh": "结束时间"},
    "what next": {"en": "What to do next", "zh": "下一步"},
    "reached screen": {
        "en": "These are answers of a screen; a deep dive would not be passed with them.",
        "zh": "这些回答达到初面水平，还不能通过深入追问。",
    },
    "reached deep dive": {
        "en": "These are answers of a deep dive.",
        "zh": "这些回答达到深入追问的水平。",
    },
    "reached none": {
        "en": "These answers would not pass a screen yet.",
        "zh": "这些回答还不能通过初面。",
    },
    "editor": {
        "en": "e opens your editor; or type the code, closed by a line with a dot",
        "zh": "输入 e 打开编辑器；或直接输入代码，最后一行只写一个点",
    },
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
        "en": "Expected share right, with an interval of 80 %: screen, deep dive; seen; topic",
        "zh": "预计正确率与 80 % 区间：初面、深入追问；已答；主题",
    },
    "minutes": {"en": "min", "zh": "分钟"},
    "all done": {
        "en": "All done: nothing is left before the interview.",
        "zh": "全部完成：面试前没有剩下的事了。",
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


def words(language: str) -> dict[str, str]:
    """All words in one language, "en" or "zh"."""
    return {name: said[language] for name, said in WORDS.items()}


def sureness(language: str) -> tuple[str, str, str]:
    """The three confidences, from guessing (1) to certain (3)."""
    said = words(language)
    return said["guessing"], said["fairly sure"], said["certain"]


def stated(sure: int, language: str) -> str:
    """A stated confidence, 1 to 3, in words after a comma; nothing where none was said (0)."""
    return f", {sureness(language)[sure - 1]}" if sure else ""
