// Bundled by `python -m labkit build` from ../engine/elements.css ../engine/elements.js widget_clip_dial.css widget_clip_dial.js, sha256 00c4c121eb893deba367b8e9de9f4eed89ae771c31cbe0c8a0d61e601ed2cd9f

// labs/engine/elements.js
function node(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}
function shape(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
function control(tag, attributes = {}, ...children) {
  return node(tag, { ...attributes, "data-lm-suppress-shortcuts": "true" }, ...children);
}
function button(label, attributes, onClick) {
  const element = control("button", { type: "button", ...attributes }, label);
  element.addEventListener("click", onClick);
  return element;
}
function labelled(title, element) {
  return node("label", {}, node("span", {}, title), element);
}
function columns(...titles) {
  return node("thead", {}, node("tr", {}, ...titles.map((title) => node("th", { scope: "col" }, title))));
}
function announcer() {
  const element = node("div", { class: "lk-spoken", role: "status", "aria-live": "polite" });
  let waiting = null;
  return {
    element,
    say(text) {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        element.textContent = text;
      }, 300);
    },
    stop() {
      clearTimeout(waiting);
    }
  };
}
function wire(model, { join = null } = {}) {
  const waiting = [];
  const asked = () => model.get("request").seq ?? 0;
  const numbers = () => model.get("numbers");
  function ask(wish) {
    if (join && asked() > numbers().seq) {
      const joined = waiting.length ? join(waiting.at(-1), wish) : null;
      if (joined) waiting[waiting.length - 1] = joined;
      else waiting.push(wish);
      return;
    }
    model.set("request", { seq: Math.max(asked(), numbers().seq) + 1, ...wish });
    model.save_changes();
  }
  return {
    ask,
    numbers,
    waits: () => waiting.length > 0,
    // Calls accept(numbers) now and with every answer to the newest request, until the function
    // that it returns is called.
    follow(accept) {
      function hear() {
        if (numbers().seq < asked()) return;
        accept(numbers());
        if (waiting.length) ask(waiting.shift());
      }
      model.on("change:numbers", hear);
      hear();
      return () => model.off("change:numbers", hear);
    }
  };
}

// labs/quantization/widget_clip_dial.js
var WIDTH = 640;
var EDGE = 24;
var TOP = 8;
var FLOOR = 150;
var ERROR = 212;
var THICK = 18;
var HEIGHT = 250;
var INNER = WIDTH - 2 * EDGE;
var BITS = ["8", "6", "4", "3"];
var COLUMNS = ["range", "step", "rounding", "clipping", "total"];
function render({ model, el }) {
  const line = wire(model, {
    join: (last2, wish) => ["low", "high"].some((end2) => end2 in last2 && end2 in wish) ? wish : null
  });
  const { last } = line.numbers();
  const voice = announcer();
  const end = (name, min, max) => {
    const slider = control("input", { type: "range", class: "cd-slider", min: String(min), max: String(max), step: "1" });
    slider.addEventListener("input", () => line.ask({ [name]: Number(slider.value) }));
    return slider;
  };
  const sliders = { low: end("low", -last, 0), high: end("high", 1, last) };
  const nudge = (name, by, sign) => button(
    sign,
    { class: "lk-button", "aria-label": `${name} end one step ${by < 0 ? "down" : "up"}` },
    () => {
      const slider = sliders[name];
      slider.value = Number(slider.value) + by;
      line.ask({ [name]: Number(slider.value) });
    }
  );
  const nudges = (name) => node("div", { class: "lk-buttons" }, nudge(name, -1, "‹"), nudge(name, 1, "›"));
  const bits = control("select", {}, ...BITS.map((value) => node("option", { value }, value)));
  bits.addEventListener("change", () => line.ask({ bits: Number(bits.value) }));
  const symmetric = button("symmetric", { class: "lk-button", "aria-pressed": "false" }, () => mirror());
  function mirror() {
    line.ask({ symmetric: !line.numbers().symmetric });
  }
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "cd-drawing", role: "img" });
  let grip = null;
  const across = (event) => {
    const box = drawing.getBoundingClientRect();
    return ((event.clientX - box.left) / box.width * WIDTH - EDGE) / INNER;
  };
  const follow = (event) => {
    const place = Math.round((2 * across(event) - 1) * last);
    const [min, max] = grip === "low" ? [-last, 0] : [1, last];
    const within = Math.min(Math.max(place, min), max);
    if (within !== Number(sliders[grip].value)) {
      sliders[grip].value = within;
      line.ask({ [grip]: within });
    }
  };
  drawing.addEventListener("pointerdown", (event) => {
    const [low, high] = line.numbers().ends, at = across(event);
    grip = Math.abs(at - low) < Math.abs(at - high) ? "low" : "high";
    drawing.setPointerCapture(event.pointerId);
    follow(event);
  });
  drawing.addEventListener("pointermove", (event) => {
    if (grip) follow(event);
  });
  for (const over of ["pointerup", "pointercancel"]) drawing.addEventListener(over, () => {
    grip = null;
  });
  const setting = node("p", { class: "cd-setting" });
  const verdict = node("p", { class: "cd-verdict" });
  const rows = node("tbody");
  const targets = node("ul", { class: "cd-targets" });
  const key = (name) => node("kbd", {}, name);
  const root = node(
    "div",
    { class: "lk cd", role: "group", "aria-label": "ClipDial" },
    node(
      "div",
      { class: "lk-controls" },
      labelled("Low end", sliders.low),
      nudges("low"),
      labelled("High end", sliders.high),
      nudges("high"),
      labelled("Bits", bits),
      node("div", { class: "lk-buttons" }, symmetric)
    ),
    node(
      "p",
      { class: "lk-keys" },
      "Drag an end of the range. With the focus on a slider: ",
      key("←"),
      key("→"),
      " about one code of 8 bits, ",
      key("PgUp"),
      key("PgDn"),
      " a tenth of the slider, ",
      key("b"),
      " bits, ",
      key("s"),
      " symmetric."
    ),
    setting,
    drawing,
    verdict,
    node("table", { class: "cd-table" }, columns("squared error", ...COLUMNS), rows),
    node("p", { class: "cd-caption" }, `${line.numbers().source} Heights are logarithms of counts. The marks below the axis are the grid; the tall one is 0.0, which always has a code. Striped values are clipped. In the bar below, the plain part is rounding, the striped part is clipping, and the mark is the best total: watch the two parts trade as an end moves in, and how the best end depends on the bits.`),
    targets,
    voice.element
  );
  root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.tagName === "SELECT") return;
    if (event.key === "s") mirror();
    else if (event.key === "b") {
      bits.selectedIndex = (bits.selectedIndex + 1) % BITS.length;
      line.ask({ bits: Number(bits.value) });
    } else return;
    event.preventDefault();
  });
  const x = (part) => EDGE + part * INNER;
  function picture(numbers) {
    const parts = [shape("rect", {
      class: "cd-range",
      x: x(numbers.ends[0]),
      y: TOP,
      height: FLOOR - TOP,
      width: x(numbers.ends[1]) - x(numbers.ends[0])
    })];
    for (const [left, width, height, clipped] of numbers.bars) {
      const tall = Math.max(height * (FLOOR - TOP - 6), 1), middle = x(left + width / 2);
      parts.push(clipped ? shape("line", { class: "cd-clipped", x1: middle, x2: middle, y1: FLOOR, y2: FLOOR - tall, "stroke-width": width * INNER }) : shape("rect", { class: "cd-bar", x: x(left), width: width * INNER, y: FLOOR - tall, height: tall }));
    }
    parts.push(shape("line", { class: "cd-axis", x1: x(0), x2: x(1), y1: FLOOR, y2: FLOOR }));
    for (const at of numbers.grid) parts.push(shape("line", { class: "cd-code", x1: x(at), x2: x(at), y1: FLOOR + 2, y2: FLOOR + 9 }));
    parts.push(
      shape("line", { class: "cd-zero", x1: x(0.5), x2: x(0.5), y1: FLOOR, y2: FLOOR + 18 }),
      shape("text", { class: "cd-label cd-strong", x: x(0.5) + 5, y: FLOOR + 22 }, numbers.zero)
    );
    for (const [at, text] of numbers.axis) parts.push(shape("text", { class: "cd-label cd-middle", x: x(at), y: FLOOR + 38 }, text));
    for (const at of numbers.ends) {
      parts.push(
        shape("line", { class: "cd-end", x1: x(at), x2: x(at), y1: TOP, y2: FLOOR }),
        shape("path", { class: "cd-handle", d: `M${x(at)} ${TOP + 12}l-6 -10h12z` })
      );
    }
    const [rounding, clipping] = numbers.parts;
    const split = x(rounding), stop = Math.min(x(rounding + clipping), x(1));
    parts.push(
      shape("rect", { class: "cd-rounding", x: x(0), y: ERROR, height: THICK, width: split - x(0) }),
      shape("line", { class: "cd-clipping", x1: split, x2: stop, y1: ERROR + THICK / 2, y2: ERROR + THICK / 2, "stroke-width": THICK }),
      shape("rect", { class: "cd-frame", x: x(0), y: ERROR, height: THICK, width: INNER }),
      shape("line", { class: "cd-best", x1: x(numbers.best), x2: x(numbers.best), y1: ERROR - 4, y2: ERROR + THICK + 4 }),
      shape("text", { class: "cd-label cd-middle", x: x(numbers.best), y: ERROR + THICK + 16 }, "best"),
      shape("text", { class: "cd-label", x: x(0), y: ERROR - 6 }, "squared error")
    );
    if (numbers.beyond) parts.push(shape("text", { class: "cd-label cd-stop", x: x(1), y: ERROR + THICK + 16 }, "goes on →"));
    return parts;
  }
  function accept(numbers) {
    if (!line.waits()) {
      sliders.low.value = numbers.low;
      sliders.high.value = numbers.high;
      bits.value = String(numbers.bits);
    }
    sliders.low.setAttribute("aria-valuetext", numbers.low_text);
    sliders.high.setAttribute("aria-valuetext", numbers.high_text);
    symmetric.setAttribute("aria-pressed", String(numbers.symmetric));
    drawing.replaceChildren(...picture(numbers));
    drawing.setAttribute("aria-label", numbers.sentence);
    setting.textContent = numbers.setting;
    verdict.textContent = numbers.verdict;
    rows.replaceChildren(...numbers.rows.map((row) => node(
      "tr",
      {},
      node("th", { scope: "row" }, row.what),
      ...COLUMNS.map((name) => node("td", {}, row[name]))
    )));
    targets.replaceChildren(...numbers.targets.map((target) => node("li", { "data-done": String(target.done) }, node("b", {}, target.done ? "Reached: " : "Goal: "), target.text)));
    voice.say(numbers.spoken);
  }
  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    voice.stop();
  };
}
var widget_clip_dial_default = { render };
export {
  widget_clip_dial_default as default
};
//# sourceMappingURL=widget_clip_dial.bundle.js.map
