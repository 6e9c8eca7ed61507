// Draws what Python says (`numbers`): a block from top to bottom, its gradients beside it.

import { announcer, button, control, labelled, node, shape, wire } from "labkit/elements";
import "./widget_dtype_map.css";

const ROW = 44, TOP = 40, TALL = 26;
const WEIGHT = 20, COPY = 128, BOX = 190, WIDE = 150, STREAM = 372, BACK = 410, BY = 540, GRAD = 650;

function render({ model, el }) {
  const voice = announcer();
  const line = wire(model, { join: (last, wish) => wish }); // only the newest place is of interest
  let shown = line.numbers();

  const dtypes = control("select", {}, ...shown.dtypes.map((name) => node("option", { value: name }, name)));
  const slider = control("input", { type: "range", class: "dm-slider", min: "0", step: "1" });
  // The controls say what is wanted; the answer to an earlier wish may still be on its way.
  function go(at) {
    slider.value = String(at); // the browser keeps it within the walk
    line.ask({ dtype: dtypes.value, at: Number(slider.value) });
  }
  dtypes.addEventListener("change", () => go(0));
  slider.addEventListener("input", () => go(Number(slider.value)));
  const drawing = shape("svg", { class: "dm-drawing", role: "img" });
  const said = node("p", { class: "dm-said" });
  const root = node("div", { class: "lk dm", role: "group", "aria-label": "DtypeMap" },
    node("div", { class: "lk-controls" }, labelled("Autocast", dtypes), labelled("Moment of the step", slider),
      button("back", { class: "lk-button" }, () => go(Number(slider.value) - 1)),
      button("next", { class: "lk-button lk-main" }, () => go(Number(slider.value) + 1))),
    node("p", { class: "lk-keys" }, "Full edge: FP32. Dashed edge: 16 bits. Diamond: a cast. On the slider, ",
      node("kbd", {}, "←"), node("kbd", {}, "→"), " walk."),
    drawing, said, voice.element);

  const y = (row) => TOP + row * ROW;
  const look = (dtype) => (dtype === "fp32" ? "dm-wide" : "dm-low");
  const index = (row, part) => shown.moments.findIndex((one) => one.row === row && one.part === part);

  // What stands at a moment of the walk is marked there, and a press goes to it.
  function marked(element, row, part) {
    const at = index(row, part);
    if (at === shown.at) element.classList.add("dm-here");
    if (at >= 0) element.addEventListener("click", () => go(at));
    return element;
  }
  function box(x, width, row, part, text, dtype) {
    return [marked(shape("rect", { class: `dm-box ${look(dtype)}`, x, y: y(row), width, height: TALL, rx: 4 }), row, part),
      shape("text", { class: "dm-text", x: x + width / 2, y: y(row) + 17, "text-anchor": "middle", "pointer-events": "none" }, text)];
  }
  const diamond = (x, at, row, part) => index(row, part) < 0 ? []
    : [marked(shape("path", { class: "dm-cast", d: `M${x} ${at - 7}l7 7l-7 7l-7 -7z` }), row, part)];
  const edge = (dtype, d) => shape("path", { class: `dm-line ${look(dtype)}`, d });

  function operation(op, row, rows) {
    const middle = y(row) + TALL / 2;
    const parts = [];
    if (op.name.startsWith("add")) {
      const branch = rows[row - 1];
      parts.push(edge(branch.gives, `M${BOX + WIDE / 2} ${y(row - 1) + TALL}V${middle}H${STREAM - 12}`),
        marked(shape("circle", { class: "dm-box dm-wide", cx: STREAM, cy: middle, r: 12 }), row, "forward"),
        shape("text", { class: "dm-text", x: STREAM, y: middle + 4, "text-anchor": "middle", "pointer-events": "none" }, "+"));
    } else {
      const starts = op.name.startsWith("layer norm");
      parts.push(starts ? edge("fp32", `M${STREAM} ${y(row) - 9}H${BOX + WIDE / 2}V${y(row)}`)
        : edge(rows[row - 1].gives, `M${BOX + WIDE / 2} ${y(row - 1) + TALL}V${y(row)}`));
      parts.push(...box(BOX, WIDE, row, "forward", `${op.name}: ${op.gives}`, op.gives),
        ...diamond(BOX + WIDE / 2, y(row) - 9, row, "cast"));
    }
    if (op.weight) {
      parts.push(edge(op.copy, `M${COPY} ${middle}H${BOX}`), edge(op.weight, `M${WEIGHT + 90} ${middle}H${COPY}`),
        ...box(WEIGHT, 90, row, "none", `weight ${op.weight}`, op.weight), ...diamond(COPY + 18, middle, row, "copy"));
    }
    if (row) parts.push(edge(op.passes, `M${BACK + 55} ${y(row)}V${y(row - 1) + TALL}`));
    parts.push(...box(BACK, 110, row, "backward", `gradient ${op.gradient}`, op.gradient),
      ...diamond(BACK + 55, y(row) + TALL + 9, row, "cast-back"));
    if (op.weight_gradient) {
      parts.push(edge(op.weight_gradient, `M${BACK + 110} ${middle}H${BY + 95}`),
        edge(op.grad, `M${BY + 95} ${middle}H${GRAD}`),
        ...box(BY, 80, row, "weight", `dW ${op.weight_gradient}`, op.weight_gradient),
        ...(op.grad === op.weight_gradient ? [] : diamond(BY + 95, middle, row, "weight")),
        ...box(GRAD, 80, row, "none", `.grad ${op.grad}`, op.grad));
    }
    return parts;
  }

  function accept(numbers) {
    shown = numbers;
    const bottom = y(numbers.rows.length);
    drawing.setAttribute("viewBox", `0 0 740 ${bottom}`);
    const heads = [[WEIGHT, "weights"], [BOX, "forward ↓"], [BACK, "backward ↑"], [BY, "weight gradients"]];
    const parts = [edge("fp32", `M${STREAM} 22V${bottom - 6}`), ...numbers.rows.flatMap(operation)];
    const isLine = (part) => part.classList.contains("dm-line"); // boxes and diamonds lie on lines
    drawing.replaceChildren(
      ...heads.map(([x, text]) => shape("text", { class: "dm-head", x, y: 14 }, text)),
      ...parts.filter(isLine), ...parts.filter((part) => !isLine(part)));
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

export default { render };
