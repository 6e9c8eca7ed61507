// Bundled by `python -m labkit build` from ../engine/elements.css ../engine/elements.js widget_crash_rig.css widget_crash_rig.js, sha256 eae10afa0159b8c50f3bab66959da8cb870ed06a6950280ec222e54d33a46f9c

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
function cross(x, y, r, className) {
  return shape("path", { class: className, d: `M${x - r} ${y - r}L${x + r} ${y + r}M${x - r} ${y + r}L${x + r} ${y - r}` });
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

// labs/real_models/widget_crash_rig.js
var WIDTH = 640;
var EDGE = 24;
var TOP = 8;
var FLOOR = 150;
var ERROR = 186;
var THICK = 16;
var SCALE = 250;
var HEIGHT = 302;
var INNER = WIDTH - 2 * EDGE;
var PARTS = [["attention", "attention"], ["angles", "rotary angles"], ["logits", "logits of the head"], ["mean", "mean over tokens"]];
var FORMATS = [["BF16", "BF16"], ["FP16", "FP16"]];
var KEYS = { qk_norm: "q", fused: "f", cap: "c", after: "a", before: "m" };
var COLUMNS = ["format", "repairs", "error", "passes"];
function render({ model, el }) {
  const line = wire(model, { join: (last, wish) => "level" in last && "level" in wish ? wish : null });
  const voice = announcer();
  const box = (name, options) => {
    const element = control("select", {}, ...options.map(([value2, text]) => node("option", { value: value2 }, text)));
    element.addEventListener("change", () => line.ask({ [name]: element.value }));
    return element;
  };
  const part = box("part", PARTS);
  const format = box("format_name", FORMATS);
  const dial = node("span", {});
  const value = node("output", { class: "cr-value" });
  const slider = control("input", { type: "range", class: "cr-slider", step: "1" });
  slider.addEventListener("input", () => line.ask({ level: Number(slider.value) }));
  const repairs = node("div", { class: "lk-buttons", role: "group", "aria-label": "Repairs" });
  function next(element) {
    element.selectedIndex = (element.selectedIndex + 1) % element.options.length;
    element.dispatchEvent(new Event("change"));
  }
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "cr-drawing", role: "img" });
  const values = node("p", { class: "cr-values" });
  const verdict = node("p", { class: "cr-verdict" });
  const reading = node("p", {});
  const rows = node("tbody");
  const asked = node("p", { class: "cr-title" });
  const targets = node("ul", { class: "cr-targets" });
  const key = (name) => node("kbd", {}, name);
  const root = node(
    "div",
    { class: "lk cr", role: "group", "aria-label": "CrashRig" },
    node(
      "div",
      { class: "lk-controls" },
      labelled("Part", part),
      labelled("Format", format),
      node("label", {}, dial, slider),
      value
    ),
    node("div", { class: "lk-controls" }, node("span", { class: "cr-title" }, "Repairs"), repairs),
    node(
      "p",
      { class: "lk-keys" },
      "With the focus on the slider: ",
      key("←"),
      key("→"),
      " halve and double, ",
      key("p"),
      " part, ",
      key("b"),
      " format, the letter on a button turns a repair on or off."
    ),
    values,
    drawing,
    verdict,
    reading,
    node("table", { class: "cr-table" }, columns("tried", ...COLUMNS), rows),
    node("p", { class: "cr-caption" }, "Emulated on the CPU. A frame is the value in float64, the filled bar what was computed; float64 has QK-norm and the cap too, where they are on. Around a float32 matmul autocast is off. Fused attention (scaled_dot_product_attention) has no soft cap, so one turns the other off. The mark on the error's axis is the limit. Below are a gap of the format and what must stay apart, on one scale: where the gap is longer, neighbours become equal. The column passes is the sum of p (1 - p) times the slope of the cap: near 0, the softmax or the cap lets no gradient through. The mean runs without autocast, as in a model after .half(); the other parts run under autocast."),
    asked,
    targets,
    voice.element
  );
  root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.tagName === "SELECT") return;
    const repair = line.numbers().repairs.find(([name]) => KEYS[name] === event.key);
    if (repair) line.ask({ repair: repair[0] });
    else if (event.key === "p") next(part);
    else if (event.key === "b") next(format);
    else return;
    event.preventDefault();
  });
  const x = (share) => EDGE + share * INNER;
  function bars({ bars: all, signed }) {
    const zero = signed ? (TOP + FLOOR) / 2 : FLOOR, reach = signed ? (FLOOR - TOP) / 2 : FLOOR - TOP;
    const unit = INNER / all.length;
    const tall = (height) => ({ y: zero - Math.max(height, 0) * reach, height: Math.max(Math.abs(height) * reach, 0.5) });
    return [
      ...all.flatMap(({ exact, computed, word }, i) => {
        const left = x(0) + i * unit;
        const frame = shape("rect", { class: "cr-exact", x: left + 4, width: unit - 8, ...tall(exact) });
        if (computed !== null) return [shape("rect", { class: "cr-computed", x: left + 10, width: unit - 20, ...tall(computed) }), frame];
        return [
          frame,
          cross(left + unit / 2, zero - 26, 6, "cr-broken"),
          shape("text", { class: "cr-label cr-middle cr-strong", x: left + unit / 2, y: zero - 6 }, word)
        ];
      }),
      shape("line", { class: "cr-axis", x1: x(0), x2: x(1), y1: zero, y2: zero })
    ];
  }
  function gauge({ at, text, broken, limit, ticks }) {
    const bottom = ERROR + THICK;
    return [
      shape("text", { class: "cr-label", x: x(0), y: ERROR - 6 }, `relative error: ${text}`),
      broken ? shape("line", { class: "cr-beyond", x1: x(0), x2: x(at), y1: ERROR + THICK / 2, y2: ERROR + THICK / 2, "stroke-width": THICK }) : shape("rect", { class: "cr-error", x: x(0), y: ERROR, width: at * INNER, height: THICK }),
      shape("rect", { class: "cr-frame", x: x(0), y: ERROR, width: INNER, height: THICK }),
      shape("line", { class: "cr-limit", x1: x(limit), x2: x(limit), y1: ERROR - 5, y2: bottom + 5 }),
      shape("text", { class: "cr-label cr-middle", x: x(limit), y: ERROR - 7 }, "limit"),
      ...ticks.map(([place, name], i) => shape("text", {
        class: `cr-label ${i === 0 ? "" : i === ticks.length - 1 ? "cr-end" : "cr-middle"}`,
        x: x(place),
        y: bottom + 16
      }, name))
    ];
  }
  function scale({ gap, apart, gap_text, apart_text }) {
    return [[gap, gap_text, "cr-gap"], [apart, apart_text, "cr-apart"]].flatMap(([share, text, name], i) => [
      shape("text", { class: "cr-label", x: x(0), y: SCALE + 26 * i - 3 }, text),
      shape("rect", { class: name, x: x(0), y: SCALE + 26 * i, width: Math.max(share * INNER, 1), height: 8 })
    ]);
  }
  function switches(numbers) {
    const names = numbers.repairs.map(([name]) => name).join(" ");
    if (repairs.dataset.names !== `${numbers.part} ${names}`) {
      repairs.dataset.names = `${numbers.part} ${names}`;
      repairs.replaceChildren(...numbers.repairs.map(([name, title]) => button("", { class: "lk-button", "aria-label": title, "aria-keyshortcuts": KEYS[name] }, () => line.ask({ repair: name }))));
      numbers.repairs.forEach(([name, title], i) => repairs.children[i].append(key(KEYS[name]), ` ${title}`));
    }
    numbers.repairs.forEach(([, , on], i) => repairs.children[i].setAttribute("aria-pressed", String(on)));
  }
  function accept(numbers) {
    [slider.min, slider.max] = numbers.levels.map(String);
    if (!line.waits()) {
      part.value = numbers.part;
      format.value = numbers.format_name;
      slider.value = numbers.level;
    }
    dial.textContent = numbers.dial;
    value.textContent = numbers.value;
    slider.setAttribute("aria-valuetext", numbers.value);
    switches(numbers);
    values.textContent = numbers.drawn;
    drawing.replaceChildren(...bars(numbers), ...gauge(numbers.error), ...scale(numbers.scale));
    drawing.setAttribute("aria-label", numbers.sentence);
    verdict.textContent = numbers.verdict;
    verdict.dataset.holds = String(numbers.holds);
    reading.textContent = numbers.reading;
    rows.replaceChildren(...numbers.rows.map((row) => node(
      "tr",
      {},
      node("th", { scope: "row" }, row.setting),
      ...COLUMNS.map((name) => node("td", {}, row[name]))
    )));
    asked.textContent = numbers.asked;
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
var widget_crash_rig_default = { render };
export {
  widget_crash_rig_default as default
};
//# sourceMappingURL=widget_crash_rig.bundle.js.map
