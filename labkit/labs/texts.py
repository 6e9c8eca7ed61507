"""Texts in English and in Chinese, and errors that say their sentence in both."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

LANGUAGES = ("en", "zh")


class Frozen(BaseModel):
    """A frozen record; a field that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Text(Frozen):
    """One text in English and in Chinese."""

    en: str = Field(min_length=1)
    zh: str = Field(min_length=1)

    def __getitem__(self, language: str) -> str:
        return getattr(self, language)

    def filled(self, **values: Any) -> "Text":
        """The text with its {fields} filled; a value that is a ``Text`` in its language."""
        return Text(en=_filled(self, "en", values), zh=_filled(self, "zh", values))


def _filled(text: Text, language: str, values: dict[str, Any]) -> str:
    said = {name: v[language] if isinstance(v, Text) else v for name, v in values.items()}
    return text[language].format(**said)


class BilingualError(Exception):
    """An error that says what is wrong in both languages: ``said``; ``str`` is the English."""

    def __init__(self, en: str, zh: str) -> None:
        super().__init__(en)
        self.said = Text(en=en, zh=zh)
