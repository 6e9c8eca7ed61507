"""What the detective's page says itself, in English and in Chinese."""

from labkit.labs.texts import Text

PAGE = {
    "title": Text(en="NaN detective, case {case}", zh="NaN 侦探，案例 {case}"),
    "case": Text(en="Case {case}", zh="案例 {case}"),
    "instruments": Text(en="Instruments", zh="诊断工具"),
    "suspects": Text(en="Suspects", zh="嫌疑原因"),
    "accuse": Text(en="Accuse", zh="指认"),
    "another": Text(en="Another case", zh="下一个案例"),
    "choose first": Text(en="Choose a suspect first.", zh="请先选择一个嫌疑原因。"),
    "measuring": Text(en="Measuring.", zh="正在检查。"),
    "next runs": Text(
        en="The next case runs on this machine: seconds, up to half a minute if it is busy.",
        zh="下一个案例正在本机运行：一般几秒，机器繁忙时最多半分钟。",
    ),
    "price": Text(en="{price} min", zh="{price} 分钟"),
    "asked": Text(en="{name}: {tells} Asked.", zh="{name}（{tells}）：已查。"),
    "priced": Text(
        en="{name}: {tells} {price} GPU-minutes.", zh="{name}（{tells}）：{price} GPU 分钟。"
    ),
    "to": Text(en="to", zh="到"),
    "keys ask": Text(en=" ask, ", zh=" 检查，"),
    "keys choose": Text(en=" choose a suspect, ", zh=" 选择嫌疑原因，"),
    "keys accuse": Text(en="accuses.", zh="指认。"),
    "idea": Text(en="The idea behind it: ", zh="背后的想法："),
    "sign": Text(en="The sign of it: ", zh="关键证据："),
    "repair": Text(en="Repair: ", zh="修复："),
    "you asked": Text(en="you asked", zh="你查过"),
    "you did not ask": Text(en="you did not ask", zh="你没有查"),
    "others": Text(en="What clears each of the others", zh="其余原因为何被排除"),
    "readings": Text(en="Readings", zh="检查结果"),
    "besides": Text(en="What you asked besides", zh="你另外查过的"),
    "reading": Text(en="{name}: {text} ", zh="{name}：{text}"),
    "broken from": Text(en="; from the upright line on not finite", zh="；竖线之后不是有限值"),
    "skipped step": Text(en="skipped step", zh="跳过的步"),
    "size of an update": Text(en="size of an update", zh="更新的大小"),
}
"""Each text of the page by its name; ``{...}`` is filled by the page."""

OPENING = Text(
    en="Case {seed} runs on this machine: seconds, up to half a minute if it is busy",
    zh="案例 {seed} 正在本机运行：一般几秒，机器繁忙时最多半分钟",
)
CLOSED = Text(en="The case is closed.", zh="已结案。")
LEFT = Text(
    en="{left} of {budget} GPU-minutes left.", zh="共 {budget} GPU 分钟，还剩 {left} GPU 分钟。"
)

# The text twin
HEAD = Text(en="NaN detective, case {case}. {complaint}", zh="NaN 侦探，案例 {case}。{complaint}")
READINGS = Text(en="Readings:", zh="检查结果：")
INSTRUMENTS = Text(en="Instruments, .ask(...):", zh="诊断工具，.ask(...)：")
INSTRUMENT = Text(en="- {id!r}, {price}: {tells}", zh="- {id!r}，{price}：{tells}")
SUSPECTS = Text(en="Suspects, .accuse(...):", zh="嫌疑原因，.accuse(...)：")
SUSPECT = Text(en="- {id!r}: {name}", zh="- {id!r}：{name}")
IDEA = Text(en="The idea behind the accusation: {idea}", zh="这次指认背后的想法：{idea}")
OTHERS = Text(en="What clears the others:", zh="其余原因为何被排除：")


def minutes(price: int) -> Text:
    """A price in GPU-minutes."""
    return Text(en=f"{price} GPU-minute{'' if price == 1 else 's'}", zh=f"{price} GPU 分钟")
