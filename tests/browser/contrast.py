"""How well text can be read: the contrast of each element on a page."""

# WCAG 2.1's contrast of each element with text of its own against what is painted behind it.
CONTRASTS = """(selector) => {
    const rgba = (text) => text.match(/[\\d.]+/g).map(Number);
    const over = ([r, g, b, a = 1], below) =>
        [r, g, b].map((c, i) => c * a + below[i] * (1 - a));
    const behind = (element) => {
        const layers = [];
        for (let at = element; at; at = at.parentElement)
            layers.unshift(rgba(getComputedStyle(at).backgroundColor));
        return layers.reduce((below, layer) => over(layer, below), [255, 255, 255]);
    };
    const light = (rgb) => rgb.map((c) => c / 255)
        .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    return [...document.querySelectorAll(`${selector} *`)]
        .filter((e) => e.checkVisibility() && e.tagName !== "OPTION")
        .filter((e) => (["INPUT", "SELECT"].includes(e.tagName)
            || [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())))
        .map((e) => {
            const below = behind(e);
            const [a, b] = [light(over(rgba(getComputedStyle(e).color), below)), light(below)];
            return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.className, e.textContent];
        });
}"""


def contrasts(page, selector: str) -> list[tuple[float, str, str]]:
    """Ratio, class and text of each element below the selector that has text of its own."""
    return page.evaluate(CONTRASTS, selector)
