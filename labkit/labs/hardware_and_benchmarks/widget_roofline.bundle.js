// Bundled by `python -m labkit build` from ../engine/elements.css ../engine/elements.js widget_roofline.css widget_roofline.js, sha256 453c8b376058f2aa2e7c9b5541210add3b7a18b2979b4ca82f66b121ac93ae6c

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

// labs/hardware_and_benchmarks/widget_roofline.js
var WIDTH = 720;
var HEIGHT = 300;
var LEFT = 90;
var RIGHT = 10;
var TOP = 12;
var BOTTOM = 44;
var DASHES = { solid: "", dashed: "9 5", dotted: "2 5", "dash-dot": "10 4 2 4" };
function render({ model, el }) {
  const voice = announcer();
  const line = wire(model, { join: (last, wish) => wish });
  const slider = control("input", {
    type: "range",
    class: "rl-slider",
    min: "0",
    step: "1",
    max: String(line.numbers().last)
  });
  slider.addEventListener("input", () => line.ask({ index: Number(slider.value) }));
  const size = node("span", { class: "rl-size" });
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "rl-drawing", role: "img" });
  const body = node("tbody", {});
  const table = node(
    "table",
    { class: "rl-table" },
    columns("device", "bound by", "at least", "attainable", "peak", "source"),
    body
  );
  const note = node("p", { class: "rl-note" });
  const root = node(
    "div",
    { class: "lk rl", role: "group", "aria-label": "Roofline" },
    node("div", { class: "lk-controls" }, labelled("Size of the square matrices", slider), size),
    node(
      "p",
      { class: "lk-keys" },
      "Drag the slider, or with the focus on it: ",
      node("kbd", {}, "←"),
      node("kbd", {}, "→"),
      " halve and double."
    ),
    drawing,
    table,
    note,
    voice.element
  );
  const x = (share) => LEFT + share * (WIDTH - LEFT - RIGHT);
  const y = (share) => HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
  function picture(numbers) {
    const parts = [];
    for (const [share, text] of numbers.columns) {
      parts.push(
        shape("line", { class: "rl-grid", x1: x(share), x2: x(share), y1: y(0), y2: y(1) }),
        shape("text", { class: "rl-tick", x: x(share), y: y(0) + 16, "text-anchor": share > 0.97 ? "end" : "middle" }, text)
      );
    }
    for (const [share, text] of numbers.levels) {
      parts.push(
        shape("line", { class: "rl-grid", x1: x(0), x2: x(1), y1: y(share), y2: y(share) }),
        shape("text", { class: "rl-tick", x: x(0) - 6, y: y(share) + 4, "text-anchor": "end" }, text)
      );
    }
    parts.push(shape(
      "text",
      { class: "rl-tick", x: x(0.5), y: HEIGHT - 6, "text-anchor": "middle" },
      numbers.axis
    ));
    numbers.lines.forEach((roof, i) => {
      parts.push(shape("polyline", {
        class: `rl-line rl-line-${i}`,
        "stroke-dasharray": DASHES[roof.style],
        points: roof.points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ")
      }));
      parts.push(shape("circle", { class: `rl-dot rl-dot-${i}`, cx: x(roof.at[0]), cy: y(roof.at[1]), r: 5 }));
    });
    return parts;
  }
  function accept(numbers) {
    if (!line.waits()) slider.value = numbers.index;
    slider.setAttribute("aria-valuetext", numbers.size);
    size.textContent = `${numbers.size} in ${numbers.dtype}: ${numbers.intensity}`;
    drawing.replaceChildren(...picture(numbers));
    drawing.setAttribute("aria-label", numbers.sentence);
    body.replaceChildren(...numbers.rows.map((row, i) => node(
      "tr",
      {},
      node(
        "th",
        { scope: "row" },
        shape(
          "svg",
          { viewBox: "0 0 30 8", class: "rl-key", "aria-hidden": "true" },
          shape("line", {
            class: `rl-line rl-line-${i}`,
            x1: 0,
            x2: 30,
            y1: 4,
            y2: 4,
            "stroke-dasharray": DASHES[row.style]
          })
        ),
        ` ${row.device}`
      ),
      ...["bound", "time", "rate", "peak", "source"].map((name) => node("td", {}, row[name]))
    )));
    note.textContent = numbers.note;
    voice.say(numbers.sentence);
  }
  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    voice.stop();
  };
}
var widget_roofline_default = { render };
export {
  widget_roofline_default as default
};
//# sourceMappingURL=widget_roofline.bundle.js.map
