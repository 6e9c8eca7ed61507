"""The detective in Chinese: every text has both languages, and the page holds no other English."""

import re

import pytest

from labkit.labs.detective import case_wording, causes, nan_detective, scale_causes
from labkit.labs.detective.nan_detective import FINDINGS, TIERS, Case
from labkit.labs.detective.scale_causes import SCALE_CAUSES
from labkit.labs.detective.widget_nan_detective import NanDetective
from labkit.labs.texts import Text

CHINESE = r"[\u3400-\u9fff]"
HALF_WIDTH = re.compile(rf"{CHINESE}[,:;.?!()]|[,:;.?!()]{CHINESE}")
# Three words in a row are a phrase; names such as "GPU" or "all-reduce", and code, are not.
ENGLISH = re.compile(r"(?<![\w.])[A-Za-z]+'?[a-z]* [a-z]+'?[a-z]* [a-z]+(?![\w(])")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]\d+)?")
CASES = [(tier.id, cause) for tier in TIERS.values() for cause in tier.causes]


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))


def troubles(text: str) -> list[str]:
    return [m[0] for m in (*HALF_WIDTH.finditer(text), *ENGLISH.finditer(text))]


def strings(data) -> list[str]:
    """Every string that a page would draw, but for ids."""
    if isinstance(data, dict):
        return [s for key, value in data.items() if key != "id" for s in strings(value)]
    if isinstance(data, list):
        return [s for value in data for s in strings(value)]
    return [data] if isinstance(data, str) else []


def views(monkeypatch, tier: str, cause: str, accused: str, language: str):
    """The case of a cause, closed, and what was shown of it: page and words, before and after."""
    case = Case(TIERS[tier].causes[cause], 0, tier=TIERS[tier])
    monkeypatch.setattr(nan_detective, "new_case", lambda seed, tier: case)
    page = NanDetective(0, tier=tier, language=language)
    for each in sorted(page.tier.instruments.values(), key=lambda each: each.price):
        if each.price <= case.minutes_left:
            page.ask(each.id)
    before = [*strings(page.numbers), *page.describe().splitlines()]
    page.accuse(accused)
    return case, [*before, *strings(page.numbers), *page.describe().splitlines()]


def test_the_two_expressions_find_what_they_should():
    assert troubles("损失:1") and troubles("a,损失") and troubles("是(是)")
    assert troubles("损失：it fails too") and troubles("The very first loss")
    assert not troubles("使用 eps=1e-4，或 torch.finfo(dtype).min / 2：NVIDIA GPU")


@pytest.mark.parametrize("tier", TIERS.values(), ids=TIERS)
def test_every_text_of_a_tier_is_in_both_languages(tier):
    named = [*tier.causes.values(), *tier.instruments.values()]
    texts = [tier.complaint, *(each.name for each in named)]
    texts += [cause.advice for cause in tier.causes.values()]
    texts += [each.tells for each in tier.instruments.values()]
    for text in texts:
        assert isinstance(text, Text) and not re.search(CHINESE, text.en)
        assert re.search(CHINESE, text.zh) or text.zh == "Scaler"
        assert troubles(text.zh) == []
    assert len({cause.name.zh for cause in tier.causes.values()}) == len(tier.causes)


def test_every_finding_is_in_chinese():
    allowed = {f for t in TIERS.values() for c in t.causes.values() for a in c.allows.values()
               for f in a}  # fmt: skip
    assert allowed <= FINDINGS.keys()
    assert not causes.IN_CHINESE.keys() & scale_causes.IN_CHINESE.keys()
    for finding, zh in FINDINGS.items():
        assert re.search(CHINESE, zh) and troubles(zh) == [], finding


def test_every_word_of_the_page_is_in_chinese():
    texts = [
        *case_wording.PAGE.values(),
        *(t for t in vars(case_wording).values() if isinstance(t, Text)),
    ]
    for text in (*texts, case_wording.minutes(3)):
        assert not re.search(CHINESE, text.en) and troubles(text.zh) == []
        words = re.search("[A-Za-z]", re.sub("{.*?}", "", text.en))
        assert bool(words) == bool(re.search(CHINESE, text.zh)), text
        assert sorted(re.findall("{.*?}", text.en)) == sorted(re.findall("{.*?}", text.zh))


@pytest.mark.parametrize(("tier", "cause"), CASES)
def test_a_case_in_chinese_holds_no_english_sentence(monkeypatch, tier, cause):
    accused = next(other for other in TIERS[tier].causes if other != cause)
    case, said = views(monkeypatch, tier, cause, accused, "zh")
    assert {text: found for text in said if (found := troubles(text))} == {}
    for reading in map(case._measure, case.tier.instruments):
        for text in filter(None, (reading.text, reading.detail)):
            assert re.search(CHINESE, text.zh) and not re.search(CHINESE, text.en)
            # The languages order a sentence differently, and give the same numbers.
            assert sorted(NUMBER.findall(text.en)) == sorted(NUMBER.findall(text.zh))


@pytest.mark.parametrize("tier", TIERS)
def test_a_right_accusation_is_told_in_chinese(monkeypatch, tier):
    cause, *_ = TIERS[tier].causes
    case, said = views(monkeypatch, tier, cause, cause, "zh")
    assert {text: found for text in said if (found := troubles(text))} == {}
    opening = "已证明：" if case.verdict.proved else "正确，但未证明："
    assert any(text.startswith(opening) for text in said)


@pytest.mark.parametrize("tier", TIERS)
def test_a_case_in_english_holds_no_chinese(monkeypatch, tier):
    cause, accused, *_ = TIERS[tier].causes
    _, said = views(monkeypatch, tier, cause, accused, "en")
    assert [text for text in said if re.search(CHINESE, text)] == []


def test_what_is_refused_is_said_in_chinese(monkeypatch):
    case = Case(SCALE_CAUSES["stale-amax"], 0, tier=TIERS["scale"])
    monkeypatch.setattr(nan_detective, "new_case", lambda seed, tier: case)
    page = NanDetective(0, tier="scale", language="zh")
    for name in ("twin", "replay", "state", "amax"):
        page.ask(name)
    with pytest.raises(ValueError, match="“各 rank”需要 6 GPU 分钟，只剩 2 GPU 分钟：可以改用 log"):
        page.ask("ranks")
    with pytest.raises(ValueError, match="没有诊断工具 'x-ray'"):
        page.ask("x-ray")
    page.request = {"seq": 1, "case": 0, "do": "accuse", "value": "nobody"}
    assert "没有原因 'nobody'" in page.numbers["trouble"]
    page.accuse("stale-amax")
    with pytest.raises(ValueError, match="案例 0 已结案"):
        page.accuse("stale-amax")


def test_a_seed_without_a_settled_run_is_said_in_chinese(monkeypatch):
    monkeypatch.setattr(Case, "is_fair", lambda case: False)
    with pytest.raises(RuntimeError, match="案例 3：在这台机器上"):
        NanDetective(3, tier="scale", language="zh")


def test_a_language_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="language 'fr': take one of en, zh"):
        NanDetective(0, language="fr")
