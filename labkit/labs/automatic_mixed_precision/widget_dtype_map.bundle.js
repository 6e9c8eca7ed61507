// Bundled by `python -m labkit build` from ../engine/elements.css ../engine/elements.js widget_dtype_map.css widget_dtype_map.js, sha256 92ac516deba48c8d3fa6d87f9c60a6dd1d84e0dc2f41eacf438ca1a6d8cd4e44

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

// labs/automatic_mixed_precision/widget_dtype_map.js
var ROW = 44;
var TOP = 40;
var TALL = 26;
var WEIGHT = 20;
var COPY = 128;
var BOX = 190;
var WIDE = 150;
var STREAM = 372;
var BACK = 410;
var BY = 540;
var GRAD = 650;
function render({ model, el }) {
  const voice = announcer();
  const line = wire(model, { join: (last, wish) => wish });
  let shown = line.numbers();
  const dtypes = control("select", {}, ...shown.dtypes.map((name) => node("option", { value: name }, name)));
  const slider = control("input", { type: "range", class: "dm-slider", min: "0", step: "1" });
  function go(at) {
    slider.value = String(at);
    line.ask({ dtype: dtypes.value, at: Number(slider.value) });
  }
  dtypes.addEventListener("change", () => go(0));
  slider.addEventListener("input", () => go(Number(slider.value)));
  const drawing = shape("svg", { class: "dm-drawing", role: "img" });
  const said = node("p", { class: "dm-said" });
  const root = node(
    "div",
    { class: "lk dm", role: "group", "aria-label": "DtypeMap" },
    node(
      "div",
      { class: "lk-controls" },
      labelled("Autocast", dtypes),
      labelled("Moment of the step", slider),
      button("back", { class: "lk-button" }, () => go(Number(slider.value) - 1)),
      button("next", { class: "lk-button lk-main" }, () => go(Number(slider.value) + 1))
    ),
    node(
      "p",
      { class: "lk-keys" },
      "Full edge: FP32. Dashed edge: 16 bits. Diamond: a cast. On the slider, ",
      node("kbd", {}, "←"),
      node("kbd", {}, "→"),
      " walk."
    ),
    drawing,
    said,
    voice.element
  );
  const y = (row) => TOP + row * ROW;
  const look = (dtype) => dtype === "fp32" ? "dm-wide" : "dm-low";
  const index = (row, part) => shown.moments.findIndex((one) => one.row === row && one.part === part);
  function marked(element, row, part) {
    const at = index(row, part);
    if (at === shown.at) element.classList.add("dm-here");
    if (at >= 0) element.addEventListener("click", () => go(at));
    return element;
  }
  function box(x, width, row, part, text, dtype) {
    return [
      marked(shape("rect", { class: `dm-box ${look(dtype)}`, x, y: y(row), width, height: TALL, rx: 4 }), row, part),
      shape("text", { class: "dm-text", x: x + width / 2, y: y(row) + 17, "text-anchor": "middle", "pointer-events": "none" }, text)
    ];
  }
  const diamond = (x, at, row, part) => index(row, part) < 0 ? [] : [marked(shape("path", { class: "dm-cast", d: `M${x} ${at - 7}l7 7l-7 7l-7 -7z` }), row, part)];
  const edge = (dtype, d) => shape("path", { class: `dm-line ${look(dtype)}`, d });
  function operation(op, row, rows) {
    const middle = y(row) + TALL / 2;
    const parts = [];
    if (op.name.startsWith("add")) {
      const branch = rows[row - 1];
      parts.push(
        edge(branch.gives, `M${BOX + WIDE / 2} ${y(row - 1) + TALL}V${middle}H${STREAM - 12}`),
        marked(shape("circle", { class: "dm-box dm-wide", cx: STREAM, cy: middle, r: 12 }), row, "forward"),
        shape("text", { class: "dm-text", x: STREAM, y: middle + 4, "text-anchor": "middle", "pointer-events": "none" }, "+")
      );
    } else {
      const starts = op.name.startsWith("layer norm");
      parts.push(starts ? edge("fp32", `M${STREAM} ${y(row) - 9}H${BOX + WIDE / 2}V${y(row)}`) : edge(rows[row - 1].gives, `M${BOX + WIDE / 2} ${y(row - 1) + TALL}V${y(row)}`));
      parts.push(
        ...box(BOX, WIDE, row, "forward", `${op.name}: ${op.gives}`, op.gives),
        ...diamond(BOX + WIDE / 2, y(row) - 9, row, "cast")
      );
    }
    if (op.weight) {
      parts.push(
        edge(op.copy, `M${COPY} ${middle}H${BOX}`),
        edge(op.weight, `M${WEIGHT + 90} ${middle}H${COPY}`),
        ...box(WEIGHT, 90, row, "none", `weight ${op.weight}`, op.weight),
        ...diamond(COPY + 18, middle, row, "copy")
      );
    }
    if (row) parts.push(edge(op.passes, `M${BACK + 55} ${y(row)}V${y(row - 1) + TALL}`));
    parts.push(
      ...box(BACK, 110, row, "backward", `gradient ${op.gradient}`, op.gradient),
      ...diamond(BACK + 55, y(row) + TALL + 9, row, "cast-back")
    );
    if (op.weight_gradient) {
      parts.push(
        edge(op.weight_gradient, `M${BACK + 110} ${middle}H${BY + 95}`),
        edge(op.grad, `M${BY + 95} ${middle}H${GRAD}`),
        ...box(BY, 80, row, "weight", `dW ${op.weight_gradient}`, op.weight_gradient),
        ...op.grad === op.weight_gradient ? [] : diamond(BY + 95, middle, row, "weight"),
        ...box(GRAD, 80, row, "none", `.grad ${op.grad}`, op.grad)
      );
    }
    return parts;
  }
  function accept(numbers) {
    shown = numbers;
    const bottom = y(numbers.rows.length);
    drawing.setAttribute("viewBox", `0 0 740 ${bottom}`);
    const heads = [[WEIGHT, "weights"], [BOX, "forward ↓"], [BACK, "backward ↑"], [BY, "weight gradients"]];
    const parts = [edge("fp32", `M${STREAM} 22V${bottom - 6}`), ...numbers.rows.flatMap(operation)];
    const isLine = (part) => part.classList.contains("dm-line");
    drawing.replaceChildren(
      ...heads.map(([x, text]) => shape("text", { class: "dm-head", x, y: 14 }, text)),
      ...parts.filter(isLine),
      ...parts.filter((part) => !isLine(part))
    );
    drawing.setAttribute("aria-label", numbers.sentence);
    if (!line.waits()) {
      slider.max = String(numbers.moments.length - 1);
      slider.value = String(numbers.at);
      dtypes.value = numbers.dtype;
    }
    slider.setAttribute("aria-valuetext", numbers.said);
    said.textContent = numbers.said;
    voice.say(numbers.said);
  }
  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    voice.stop();
  };
}
var widget_dtype_map_default = { render };
export {
  widget_dtype_map_default as default
};
//# sourceMappingURL=widget_dtype_map.bundle.js.map
