// Draws what Python says (`numbers`). Every number on the screen is Python's.

import { announcer, control, cross, curve, labelled, node, shape, wire } from "labkit/elements";
import "./widget_alarm_bench.css";

const WIDTH = 640, LEFT = 56, RIGHT = 12, TOP = 10, FLOOR = 210, RUNG = 226, HEIGHT = 266;
const INNER = WIDTH - LEFT - RIGHT, TALL = FLOOR - TOP;

function render({ model, el }) {
  // Of places of one slider that wait only the newest is of interest; all else is done in order.
  const line = wire(model, {
    join: (last, wish) => (["k", "margin", "level"].some((name) => name in last && name in wish) ? wish : null),
  });
  const voice = announcer();
  const { rules, windows, networks, margins, levels } = line.numbers();

  const box = (name, options, read = String) => {
    const element = control("select", {}, ...options.map(([value, text]) => node("option", { value }, text)));
    element.addEventListener("change", () => line.ask({ [name]: read(element.value) }));
    return element;
  };
  const boxes = {
    rule: box("rule", rules),
    window: box("window", windows.map((value) => [value, String(value)]), Number),
    network: box("network", networks),
  };
  const slide = (name, min, max, step) => {
    const element = control("input", { type: "range", class: "ab-slider", min: String(min), max: String(max), step: String(step) });
    element.addEventListener("input", () => line.ask({ [name]: Number(element.value) }));
    return element;
  };
  const sliders = { k: slide("k", 1, 12, 0.5), margin: slide("margin", 0, margins - 1, 1), level: slide("level", ...levels, 1) };
  const said = Object.fromEntries(Object.keys(sliders).map((name) => [name, node("span", { class: "ab-value" })]));
  const beside = (title, name) => node("div", { class: "ab-beside" }, labelled(title, sliders[name]), said[name]);

  // The mouse moves the spike up and down.
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "ab-drawing", role: "img" });
  let dragged = false;
  const follow = (event) => {
    const area = drawing.getBoundingClientRect(), { spike, level } = line.numbers().drawing;
    const height = (FLOOR - (event.clientY - area.top) / area.height * HEIGHT) / TALL;
    const wanted = Math.round(line.numbers().level + (height - spike[1]) / level);
    const within = Math.min(Math.max(wanted, levels[0]), levels[1]);
    if (within !== Number(sliders.level.value)) { sliders.level.value = within; line.ask({ level: within }); }
  };
  drawing.addEventListener("pointerdown", (event) => {
    dragged = true;
    drawing.setPointerCapture(event.pointerId);
    follow(event);
  });
  drawing.addEventListener("pointermove", (event) => { if (dragged) follow(event); });
  for (const over of ["pointerup", "pointercancel"]) drawing.addEventListener(over, () => { dragged = false; });

  const seen = node("p", { class: "ab-seen" });
  const verdict = node("p", { class: "ab-verdict" });
  const rows = node("tbody");
  const targets = node("ul", { class: "ab-targets" });

  const head = (attributes, title) => node("th", attributes, title);
  const heads = node("thead", {},
    node("tr", {}, head({ rowspan: "2", scope: "col" }, "rule"), head({ rowspan: "2", scope: "col" }, "faults caught"),
      ...networks.map(([, title]) => head({ colspan: "2", scope: "colgroup" }, title))),
    node("tr", {}, ...networks.flatMap(() => [head({ scope: "col" }, "false"), head({ scope: "col" }, "sees from")])));

  const key = (name) => node("kbd", {}, name);
  const root = node("div", { class: "lk ab", role: "group", "aria-label": "AlarmBench" },
    node("div", { class: "lk-controls" }, labelled("Rule", boxes.rule), labelled("Window", boxes.window), labelled("Drawn run", boxes.network)),
    node("div", { class: "lk-controls" }, beside("k, widths", "k"), beside("Margin", "margin"), beside(`Spike at step ${line.numbers().at}`, "level")),
    node("p", { class: "lk-keys" }, "Drag the spike up and down. With the focus on a slider: ", key("←"), key("→"), " move it, ",
      key("r"), " rule, ", key("w"), " window, ", key("n"), " run."),
    drawing, seen,
    node("table", { class: "ab-table" }, heads, rows), verdict,
    node("p", { class: "ab-caption" }, "Recorded losses in nats, 500 steps a run. The dashed line is the limit, which begins when the window is full; each cross "
      + "is an alarm, the framed one is the spike's. Inf and NaN always ring and are never stored. The table holds all four rules at this "
      + "window, k and margin: faults caught in copies of the runs with planted faults, false alarms in the healthy runs, and the factor from which on "
      + "half of the runs see a spike at the marked step. Watch what the margin costs and what it saves."),
    targets, voice.element);

  function next(element) { // the next choice of a select
    element.selectedIndex = (element.selectedIndex + 1) % element.options.length;
    element.dispatchEvent(new Event("change"));
  }

  root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.tagName === "SELECT") return;
    const name = { r: "rule", w: "window", n: "network" }[event.key];
    if (!name) return;
    next(boxes[name]);
    event.preventDefault();
  });

  const x = (share) => LEFT + share * INNER;
  const y = (share) => FLOOR - share * TALL;
  const placed = (points) => points.map((point) => point && [x(point[0]), y(point[1])]);

  function picture({ loss, limit, spike, alarms, rings, decades, steps }) {
    return [
      ...decades.flatMap(([at, text]) => [
        shape("line", { class: "ab-grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(at), y2: y(at) }),
        shape("text", { class: "ab-label ab-end", x: LEFT - 6, y: y(at) + 4 }, text)]),
      ...steps.map(([at, text]) => shape("text", { class: "ab-label ab-middle", x: x(at), y: RUNG + 34 }, text)),
      curve(placed(loss), "ab-loss"),
      curve(placed(limit), "ab-limit"),
      shape("circle", { class: `ab-spike ${rings ? "ab-rings" : ""}`, cx: x(spike[0]), cy: y(spike[1]), r: 7 }),
      shape("line", { class: "ab-axis", x1: LEFT, x2: WIDTH - RIGHT, y1: RUNG + 12, y2: RUNG + 12 }),
      shape("text", { class: "ab-label ab-end", x: LEFT - 6, y: RUNG + 4 }, "alarms"),
      ...alarms.flatMap(([at, ours]) => [cross(x(at), RUNG, 4, "ab-alarm"),
        ...(ours ? [shape("rect", { class: "ab-ours", x: x(at) - 8, y: RUNG - 8, width: 16, height: 16 })] : [])]),
    ];
  }

  function accept(numbers) {
    if (!line.waits()) {
      for (const [name, element] of Object.entries({ ...boxes, ...sliders })) element.value = numbers[name];
    }
    const words = { k: numbers.k_text, margin: numbers.margin_text, level: numbers.level_text };
    for (const [name, text] of Object.entries(words)) {
      said[name].textContent = text;
      sliders[name].setAttribute("aria-valuetext", text);
    }
    drawing.replaceChildren(...picture(numbers.drawing));
    drawing.setAttribute("aria-label", numbers.sentence);
    seen.textContent = numbers.seen;
    rows.replaceChildren(...numbers.rows.map((row) => node("tr", row.chosen ? { "aria-current": "true" } : {},
      node("th", { scope: "row" }, row.rule), node("td", {}, row.caught),
      ...row.cells.flatMap((cell) => [node("td", {}, cell.false), node("td", {}, cell.smallest)]))));
    verdict.textContent = numbers.verdict;
    verdict.dataset.holds = String(numbers.holds);
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
