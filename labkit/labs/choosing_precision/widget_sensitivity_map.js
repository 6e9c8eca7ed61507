// Draws what Python says (`numbers`). Every number on the screen is Python's.

import { announcer, button, columns, control, labelled, node, shape, wire } from "labkit/elements";
import "./widget_sensitivity_map.css";

const WIDTH = 640, LEFT = 60, RIGHT = 12, TOP = 10, KL = 130, NAMES = 148, ROOF = 158, FLOOR = 246, GAUGE = 282, APART = 58, HEIGHT = 380;
const INNER = WIDTH - LEFT - RIGHT, THICK = 16;
const COLUMNS = [["mean", "bits a weight"], ["memory", "memory"], ["alone", "sum of single KLs"], ["measured", "measured KL"]];

function render({ model, el }) {
  // Of bits of one layer that wait only the newest are of interest; all else is done in order.
  const line = wire(model, {
    join: (last, wish) => ("bits" in last && "bits" in wish && last.layer === wish.layer ? wish : null),
  });
  const { layers, menu } = line.numbers();
  const voice = announcer();

  const layer = control("select", {}, ...layers.map((name, i) => node("option", { value: name }, `${i + 1} ${name}`)));
  layer.addEventListener("change", () => askLayer(layer.selectedIndex));
  const slider = control("input", { type: "range", class: "sm-slider", min: "0", max: String(menu.length - 1), step: "1" });
  slider.addEventListener("input", () => setBits(Number(slider.value)));
  const bits = node("span", { class: "sm-value" }); // the slider says it: an output would speak twice
  const all = node("div", { class: "lk-buttons", role: "group", "aria-label": "All layers" },
    ...menu.map((width, i) => button(String(width), { class: "lk-button", "aria-label": `all at ${width} bits` }, () => line.ask({ all: i }))));

  // A wish names its layer, so that it holds for the one that was meant when it was made.
  function setBits(place) { line.ask({ layer: layer.value, bits: place }); }

  function askLayer(index) {
    slider.value = menu.indexOf(line.numbers().columns[index].bits); // the next key comes before the answer
    line.ask({ layer: layers[index] });
  }

  function choose(index) {
    if (index < 0 || index >= layers.length || layers[index] === layer.value) return;
    layer.value = layers[index];
    askLayer(index);
  }

  // The mouse chooses a column, and the height of its lower bar.
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "sm-drawing", role: "img" });
  let held = false;
  const at = (event) => {
    const area = drawing.getBoundingClientRect();
    return [((event.clientX - area.left) / area.width * WIDTH - LEFT) / INNER, (event.clientY - area.top) / area.height * HEIGHT];
  };
  const follow = (event) => {
    const wanted = (FLOOR - at(event)[1]) / (FLOOR - ROOF) * menu.at(-1);
    const place = menu.reduce((best, width, i) => (Math.abs(width - wanted) < Math.abs(menu[best] - wanted) ? i : best), 0);
    if (place !== Number(slider.value)) { slider.value = place; setBits(place); }
  };
  drawing.addEventListener("pointerdown", (event) => {
    const [across, down] = at(event);
    const index = line.numbers().columns.findIndex(({ edges }) => edges[0] <= across && across < edges[1]);
    if (index < 0 || down > FLOOR) return;
    choose(index);
    held = down > ROOF;
    if (held) drawing.setPointerCapture(event.pointerId);
  });
  drawing.addEventListener("pointermove", (event) => { if (held) follow(event); });
  for (const over of ["pointerup", "pointercancel"]) drawing.addEventListener(over, () => { held = false; });

  const reading = node("p", { class: "sm-reading" });
  const verdict = node("p", { class: "sm-verdict" });
  const rows = node("tbody");
  const targets = node("ul", { class: "sm-targets" });

  const key = (name) => node("kbd", {}, name);
  const root = node("div", { class: "lk sm", role: "group", "aria-label": "SensitivityMap" },
    node("div", { class: "lk-controls" }, labelled("Matrix", layer), node("div", { class: "sm-beside" }, labelled("Bits", slider), bits),
      node("div", { class: "sm-all" }, node("span", {}, "All at"), all)),
    node("p", { class: "lk-keys" }, "Click a column, drag the top of its lower bar. With the focus on the slider: ", key("←"), key("→"),
      " bits, ", key("n"), key("p"), " next and previous matrix."),
    reading, drawing, verdict,
    node("table", { class: "sm-table" }, columns("choice", ...COLUMNS.map(([, title]) => title)), rows),
    node("p", { class: "sm-caption" }, "A column is as wide as its matrix has weights. Above: the KL of this matrix alone, on a log axis; the short "
      + "marks are its other numbers of bits. Below: bits, so that the area is memory; the dashed line is the uniform choice. "
      + "The KL is computed now, in nats a prediction, with all matrices rounded at once."),
    targets, voice.element);

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
      ...(chosen ? [shape("rect", { class: "sm-chosen", x: left - 1, width: wide + 2, y: TOP - 6, height: FLOOR - TOP + 10 })] : []),
      ...others.map((place) => shape("line", { class: "sm-other", x1: left, x2: left + wide, y1: up(place), y2: up(place) })),
      shape("rect", { class: "sm-kl", x: left + wide * 0.2, width: wide * 0.6, y: up(kl), height: Math.max(KL - up(kl), 1) }),
      shape("text", { class: `sm-label sm-middle ${chosen ? "sm-strong" : ""}`, x: middle, y: NAMES }, String(i + 1)),
      shape("rect", { class: "sm-bits", x: left, width: wide, y: roof, height: FLOOR - roof }),
      shape("text", { class: "sm-label sm-middle sm-on", x: middle, y: FLOOR - 5 }, String(width)),
    ];
  }

  function gauge({ title, at: end, mark, name, beyond }, y) {
    return [
      shape("text", { class: "sm-label", x: x(0), y: y - 6 }, title),
      shape("rect", { class: "sm-gauge", x: x(0), y, width: end * INNER, height: THICK }),
      shape("rect", { class: "sm-frame", x: x(0), y, width: INNER, height: THICK }),
      shape("line", { class: "sm-mark", x1: x(mark), x2: x(mark), y1: y - 4, y2: y + THICK + 4 }),
      shape("text", { class: `sm-label ${mark > 0.9 ? "sm-end" : "sm-middle"}`, x: x(mark), y: y + THICK + 16 }, name),
      ...(beyond ? [shape("text", { class: "sm-label sm-end", x: x(1), y: y - 6 }, "goes on →")] : []),
    ];
  }

  function picture(numbers) {
    const chosen = numbers.layers.indexOf(numbers.layer), line = FLOOR - numbers.uniform * (FLOOR - ROOF);
    return [
      ...numbers.decades.flatMap(([place, text]) => [
        shape("line", { class: "sm-tick", x1: LEFT - 4, x2: LEFT, y1: up(place), y2: up(place) }),
        shape("text", { class: "sm-label sm-end", x: LEFT - 6, y: up(place) + 4 }, text)]),
      ...numbers.columns.flatMap((each, i) => column(each, i, i === chosen)),
      shape("text", { class: "sm-label sm-end", x: LEFT - 6, y: FLOOR - 5 }, "bits"),
      shape("line", { class: "sm-uniform", x1: x(0), x2: x(1), y1: line, y2: line }),
      ...numbers.gauges.flatMap((each, i) => gauge(each, GAUGE + i * APART)),
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
    rows.replaceChildren(...numbers.rows.map((row) => node("tr", {},
      node("th", { scope: "row" }, row.what), ...COLUMNS.map(([name]) => node("td", {}, row[name])))));
    targets.replaceChildren(...numbers.targets.map((target) =>
      node("li", { "data-done": String(target.done) }, node("b", {}, target.done ? "Reached: " : "Goal: "), target.text)));
    voice.say(numbers.spoken);
  }

  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    voice.stop();
  };
}

export default { render };
