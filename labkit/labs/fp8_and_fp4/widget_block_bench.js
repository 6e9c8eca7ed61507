// Draws what Python says (`numbers`). Every number on the screen is Python's.

import { announcer, button, columns, control, labelled, node, shape, wire } from "labkit/elements";
import "./widget_block_bench.css";

const WIDTH = 640, LEFT = 50, TOP = 8, FLOOR = 218, HEIGHT = 252;
const VALUES = 64, UNIT = (WIDTH - LEFT) / VALUES;
const DRAG = 12; // pixels of the mouse for one doubling

const FORMATS = ["E4M3", "E5M2", "E2M1"];
const GRANULARITIES = [["tensor", "the tensor"], ["row", "the row"], ["32", "32 values (MX)"],
  ["16", "16 values (NVFP4 in E2M1)"]];

function render({ model, el }) {
  // Steps that wait for an answer are added up; all else is done in order.
  const line = wire(model, {
    join: (last, wish) => {
      for (const step of ["move", "times"]) {
        if (step in last && step in wish) return { [step]: last[step] + wish[step] };
      }
      return "place" in last && "place" in wish ? wish : null;
    },
  });
  const voice = announcer();

  const box = (name, options) => {
    const element = control("select", {}, ...options.map(([value, text]) => node("option", { value }, text)));
    element.addEventListener("change", () => line.ask({ [name]: element.value }));
    return element;
  };
  const format = box("format_name", FORMATS.map((name) => [name, name]));
  const granularity = box("granularity", GRANULARITIES);
  const rounding = box("rounding", [["nearest", "nearest"], ["stochastic", "stochastic"]]);
  const again = button("draw again", { class: "lk-button" }, () => line.ask({ draw: true }));
  const rotate = button("rotate 16", { class: "lk-button", "aria-pressed": "false",
    "aria-label": "rotate 16 values at a time" }, () => turn());
  const slider = control("input", { type: "range", class: "bb-slider", min: "1", max: String(VALUES), step: "1" });
  slider.addEventListener("input", () => line.ask({ place: Number(slider.value) - 1 }));
  const halve = button("halve", { class: "lk-button", "aria-label": "halve the value" }, () => line.ask({ times: -1 }));
  const double = button("double", { class: "lk-button", "aria-label": "double the value" }, () => line.ask({ times: 1 }));
  const reset = button("put back", { class: "lk-button", "aria-label": "put back all values" }, () => line.ask({ reset: true }));

  function turn() { line.ask({ rotated: !line.numbers().rotated }); }
  function next(element) { // the next choice of a select
    element.selectedIndex = (element.selectedIndex + 1) % element.options.length;
    element.dispatchEvent(new Event("change"));
  }

  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "bb-drawing", role: "img" });
  let grip = null;
  drawing.addEventListener("pointerdown", (event) => {
    const across = drawing.getBoundingClientRect();
    const at = Math.floor(((event.clientX - across.left) / across.width * WIDTH - LEFT) / UNIT);
    line.ask({ place: Math.min(Math.max(at, 0), VALUES - 1) });
    grip = { y: event.clientY, done: 0 };
    drawing.setPointerCapture(event.pointerId);
  });
  drawing.addEventListener("pointermove", (event) => {
    if (!grip) return;
    const wanted = Math.round((grip.y - event.clientY) / DRAG);
    if (wanted !== grip.done) { line.ask({ times: wanted - grip.done }); grip.done = wanted; }
  });
  for (const end of ["pointerup", "pointercancel"]) drawing.addEventListener(end, () => { grip = null; });

  const setting = node("p", { class: "bb-setting" });
  const shares = node("dl", { class: "bb-shares" });
  const reading = node("p", { class: "bb-reading" });
  const rows = node("tbody");
  const targets = node("ol", { class: "bb-targets" });

  const key = (name) => node("kbd", {}, name);
  const root = node("div", { class: "lk bb", role: "group", "aria-label": "BlockBench" },
    node("div", { class: "lk-controls" }, labelled("Format", format), labelled("One scale for", granularity),
      labelled("Rounding", rounding), node("div", { class: "lk-buttons" }, again, rotate)),
    node("div", { class: "lk-controls" }, labelled("Value", slider), node("div", { class: "lk-buttons" }, halve, double, reset)),
    node("p", { class: "lk-keys" }, "Click a bar and drag it up or down. With the focus on the slider: ",
      key("←"), key("→"), " choose a value, ", key("↑"), key("↓"), " double and halve it, ",
      key("f"), " format, ", key("g"), " scale, ", key("r"), " draw again, ", key("n"), " nearest, ", key("h"), " rotate."),
    setting,
    node("div", { class: "bb-main" }, drawing, shares),
    reading,
    node("table", { class: "bb-table" }, columns("values", "scale", "largest", "flushed", "clipped"), rows),
    node("p", { class: "bb-caption" }, `${line.numbers().source} Magnitudes on a log axis, quantised on the CPU. `
      + "The filled bar is a value, the frame around it what is read back. A hollow bar becomes 0, a striped one is clipped. "
      + "A shaded band is what one scale can reach: watch which bars leave their band when one value grows, and which "
      + "bands stay where they are. SQNR weighs squares, so an outlier hides what happens to the rest: read the flushed "
      + "share too. After a rotation, a short line is the value before it."),
    targets, voice.element);

  slider.addEventListener("keydown", (event) => {
    const act = { ArrowUp: () => line.ask({ times: 1 }), ArrowDown: () => line.ask({ times: -1 }) }[event.key];
    if (act && !event.altKey && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); }
  });
  root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.tagName === "SELECT") return;
    const act = { f: () => next(format), g: () => next(granularity), r: () => line.ask({ draw: true }),
      n: () => line.ask({ rounding: "nearest" }), h: turn }[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  const y = (height) => FLOOR - height * (FLOOR - TOP);

  function bar(value, i) {
    const x = LEFT + i * UNIT, middle = x + UNIT / 2;
    const top = y(value.height), parts = [];
    if (value.image !== null) {
      parts.push(shape("rect", { class: "bb-image", x: x + 0.7, width: UNIT - 1.4, y: y(value.image), height: FLOOR - y(value.image) }));
    }
    if (value.state === "clipped") {
      parts.push(shape("line", { class: "bb-bar bb-clipped", x1: middle, x2: middle, y1: FLOOR, y2: top }));
    } else if (value.state !== "zero") {
      parts.push(shape("rect", { class: `bb-bar bb-${value.state}`, x: middle - 2, width: 4, y: top, height: Math.max(FLOOR - top, 1) }));
    }
    if (value.before !== null) {
      parts.push(shape("line", { class: "bb-before", x1: x + 1, x2: x + UNIT - 1, y1: y(value.before), y2: y(value.before) }));
    }
    return parts;
  }

  function picture(numbers) {
    const parts = [];
    for (const block of numbers.blocks) {
      const x = LEFT + block.begin * UNIT, width = (block.end - block.begin) * UNIT;
      parts.push(shape("rect", { class: "bb-window", x, width, y: y(block.high), height: y(block.low) - y(block.high) }),
        shape("line", { class: "bb-border", x1: x, x2: x, y1: TOP, y2: FLOOR + 18 }),
        shape("text", { class: "bb-label bb-middle", x: x + width / 2, y: FLOOR + 28 }, block.code));
    }
    for (const [height, text] of numbers.ticks) {
      parts.push(shape("line", { class: "bb-tick", x1: LEFT - 4, x2: LEFT, y1: y(height), y2: y(height) }),
        shape("text", { class: "bb-label bb-end", x: LEFT - 6, y: y(height) + 4 }, text));
    }
    const chosen = LEFT + (numbers.place + 0.5) * UNIT;
    parts.push(...numbers.bars.flatMap(bar),
      shape("line", { class: "bb-border", x1: LEFT, x2: WIDTH, y1: FLOOR, y2: FLOOR }),
      shape("path", { class: "bb-chosen", d: `M${chosen} ${FLOOR + 3}l5 10h-10z` }));
    return parts;
  }

  function accept(numbers) {
    if (!line.waits()) {
      slider.value = numbers.place + 1;
      format.value = numbers.format_name;
      granularity.value = numbers.granularity;
      rounding.value = numbers.rounding;
    }
    rotate.setAttribute("aria-pressed", String(numbers.rotated));
    slider.setAttribute("aria-valuetext", numbers.reading);
    drawing.replaceChildren(...picture(numbers));
    drawing.setAttribute("aria-label", numbers.sentence);
    setting.textContent = numbers.setting;
    shares.replaceChildren(...numbers.shares.map(([name, share]) =>
      node("div", {}, node("dt", {}, name), node("dd", {}, share))));
    reading.textContent = numbers.reading;
    rows.replaceChildren(...numbers.rows.map((row) => node("tr", {},
      node("th", { scope: "row" }, row.values), ...["scale", "largest", "flushed", "clipped"].map((name) => node("td", {}, row[name])))));
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
