// Bundled by `python -m labkit build` from ../engine/elements.css ../engine/elements.js widget_sensitivity_map.css widget_sensitivity_map.js, sha256 d6feb001c0121af6f98ef73616a99a60ae361e6faca1e02e943b872655283a58

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

// labs/choosing_precision/widget_sensitivity_map.js
var WIDTH = 640;
var LEFT = 60;
var RIGHT = 12;
var TOP = 10;
var KL = 130;
var NAMES = 148;
var ROOF = 158;
var FLOOR = 246;
var GAUGE = 282;
var APART = 58;
var HEIGHT = 380;
var INNER = WIDTH - LEFT - RIGHT;
var THICK = 16;
var COLUMNS = [["mean", "bits a weight"], ["memory", "memory"], ["alone", "sum of single KLs"], ["measured", "measured KL"]];
function render({ model, el }) {
  const line = wire(model, {
    join: (last, wish) => "bits" in last && "bits" in wish && last.layer === wish.layer ? wish : null
  });
  const { layers, menu } = line.numbers();
  const voice = announcer();
  const layer = control("select", {}, ...layers.map((name, i) => node("option", { value: name }, `${i + 1} ${name}`)));
  layer.addEventListener("change", () => askLayer(layer.selectedIndex));
  const slider = control("input", { type: "range", class: "sm-slider", min: "0", max: String(menu.length - 1), step: "1" });
  slider.addEventListener("input", () => setBits(Number(slider.value)));
  const bits = node("span", { class: "sm-value" });
  const all = node(
    "div",
    { class: "lk-buttons", role: "group", "aria-label": "All layers" },
    ...menu.map((width, i) => button(String(width), { class: "lk-button", "aria-label": `all at ${width} bits` }, () => line.ask({ all: i })))
  );
  function setBits(place) {
    line.ask({ layer: layer.value, bits: place });
  }
  function askLayer(index) {
    slider.value = menu.indexOf(line.numbers().columns[index].bits);
    line.ask({ layer: layers[index] });
  }
  function choose(index) {
    if (index < 0 || index >= layers.length || layers[index] === layer.value) return;
    layer.value = layers[index];
    askLayer(index);
  }
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "sm-drawing", role: "img" });
  let held = false;
  const at = (event) => {
    const area = drawing.getBoundingClientRect();
    return [((event.clientX - area.left) / area.width * WIDTH - LEFT) / INNER, (event.clientY - area.top) / area.height * HEIGHT];
  };
  const follow = (event) => {
    const wanted = (FLOOR - at(event)[1]) / (FLOOR - ROOF) * menu.at(-1);
    const place = menu.reduce((best, width, i) => Math.abs(width - wanted) < Math.abs(menu[best] - wanted) ? i : best, 0);
    if (place !== Number(slider.value)) {
      slider.value = place;
      setBits(place);
    }
  };
  drawing.addEventListener("pointerdown", (event) => {
    const [across, down] = at(event);
    const index = line.numbers().columns.findIndex(({ edges }) => edges[0] <= across && across < edges[1]);
    if (index < 0 || down > FLOOR) return;
    choose(index);
    held = down > ROOF;
    if (held) drawing.setPointerCapture(event.pointerId);
  });
  drawing.addEventListener("pointermove", (event) => {
    if (held) follow(event);
  });
  for (const over of ["pointerup", "pointercancel"]) drawing.addEventListener(over, () => {
    held = false;
  });
  const reading = node("p", { class: "sm-reading" });
  const verdict = node("p", { class: "sm-verdict" });
  const rows = node("tbody");
  const targets = node("ul", { class: "sm-targets" });
  const key = (name) => node("kbd", {}, name);
  const root = node(
    "div",
    { class: "lk sm", role: "group", "aria-label": "SensitivityMap" },
    node(
      "div",
      { class: "lk-controls" },
      labelled("Matrix", layer),
      node("div", { class: "sm-beside" }, labelled("Bits", slider), bits),
      node("div", { class: "sm-all" }, node("span", {}, "All at"), all)
    ),
    node(
      "p",
      { class: "lk-keys" },
      "Click a column, drag the top of its lower bar. With the focus on the slider: ",
      key("←"),
      key("→"),
      " bits, ",
      key("n"),
      key("p"),
      " next and previous matrix."
    ),
    reading,
    drawing,
    verdict,
    node("table", { class: "sm-table" }, columns("choice", ...COLUMNS.map(([, title]) => title)), rows),
    node("p", { class: "sm-caption" }, "A column is as wide as its matrix has weights. Above: the KL of this matrix alone, on a log axis; the short marks are its other numbers of bits. Below: bits, so that the area is memory; the dashed line is the uniform choice. The KL is computed now, in nats a prediction, with all matrices rounded at once."),
    targets,
    voice.element
  );
  root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.tagName === "SELECT") return;
    const by = { n: 1, p: -1 }[event.key];
    if (!by) return;
    choose(layers.indexOf(layer.value) + by);
    event.preventDefault();
  });
  const x = (share) => LEFT + share * INNER;
  const up = (share) => KL - share * (KL - TOP);
  function column({ edges, kl, others, bits: width, tall }, i, chosen) {
    const left = x(edges[0]) + 1, wide = Math.max(x(edges[1]) - x(edges[0]) - 2, 1), middle = left + wide / 2;
    const roof = FLOOR - tall * (FLOOR - ROOF);
    return [
      ...chosen ? [shape("rect", { class: "sm-chosen", x: left - 1, width: wide + 2, y: TOP - 6, height: FLOOR - TOP + 10 })] : [],
      ...others.map((place) => shape("line", { class: "sm-other", x1: left, x2: left + wide, y1: up(place), y2: up(place) })),
      shape("rect", { class: "sm-kl", x: left + wide * 0.2, width: wide * 0.6, y: up(kl), height: Math.max(KL - up(kl), 1) }),
      shape("text", { class: `sm-label sm-middle ${chosen ? "sm-strong" : ""}`, x: middle, y: NAMES }, String(i + 1)),
      shape("rect", { class: "sm-bits", x: left, width: wide, y: roof, height: FLOOR - roof }),
      shape("text", { class: "sm-label sm-middle sm-on", x: middle, y: FLOOR - 5 }, String(width))
    ];
  }
  function gauge({ title, at: end, mark, name, beyond }, y) {
    return [
      shape("text", { class: "sm-label", x: x(0), y: y - 6 }, title),
      shape("rect", { class: "sm-gauge", x: x(0), y, width: end * INNER, height: THICK }),
      shape("rect", { class: "sm-frame", x: x(0), y, width: INNER, height: THICK }),
      shape("line", { class: "sm-mark", x1: x(mark), x2: x(mark), y1: y - 4, y2: y + THICK + 4 }),
      shape("text", { class: `sm-label ${mark > 0.9 ? "sm-end" : "sm-middle"}`, x: x(mark), y: y + THICK + 16 }, name),
      ...beyond ? [shape("text", { class: "sm-label sm-end", x: x(1), y: y - 6 }, "goes on →")] : []
    ];
  }
  function picture(numbers) {
    const chosen = numbers.layers.indexOf(numbers.layer), line2 = FLOOR - numbers.uniform * (FLOOR - ROOF);
    return [
      ...numbers.decades.flatMap(([place, text]) => [
        shape("line", { class: "sm-tick", x1: LEFT - 4, x2: LEFT, y1: up(place), y2: up(place) }),
        shape("text", { class: "sm-label sm-end", x: LEFT - 6, y: up(place) + 4 }, text)
      ]),
      ...numbers.columns.flatMap((each, i) => column(each, i, i === chosen)),
      shape("text", { class: "sm-label sm-end", x: LEFT - 6, y: FLOOR - 5 }, "bits"),
      shape("line", { class: "sm-uniform", x1: x(0), x2: x(1), y1: line2, y2: line2 }),
      ...numbers.gauges.flatMap((each, i) => gauge(each, GAUGE + i * APART))
    ];
  }
  function accept(numbers) {
    if (!line.waits()) {
      layer.value = numbers.layer;
      slider.value = numbers.bits;
    }
    bits.textContent = numbers.bits_text;
    slider.setAttribute("aria-valuetext", numbers.bits_text);
    reading.textContent = numbers.reading;
    drawing.replaceChildren(...picture(numbers));
    drawing.setAttribute("aria-label", numbers.sentence);
    verdict.textContent = numbers.verdict;
    verdict.dataset.holds = String(numbers.holds);
    rows.replaceChildren(...numbers.rows.map((row) => node(
      "tr",
      {},
      node("th", { scope: "row" }, row.what),
      ...COLUMNS.map(([name]) => node("td", {}, row[name]))
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
var widget_sensitivity_map_default = { render };
export {
  widget_sensitivity_map_default as default
};
//# sourceMappingURL=widget_sensitivity_map.bundle.js.map
