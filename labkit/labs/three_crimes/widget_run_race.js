// Draws what Python says (`numbers`) up to a step that the page chooses.

import { announcer, button, columns, control, cross, labelled, node, shape, wire } from "labkit/elements";
import "./widget_run_race.css";

const WIDTH = 640, HEIGHT = 260, LEFT = 44, RIGHT = 12, TOP = 10, BOTTOM = 34;

function render({ model, el }) {
  const line = wire(model, { join: () => null }); // each dial counts: they turn one after another
  let step = model.get("step"), timer = null, told = null, task = null;
  const last = () => line.numbers().last;

  // ---- dials
  const dials = node("div", { class: "lk-controls" });
  const boxes = new Map();
  for (const { name, title } of line.numbers().dials) {
    const box = control("select", {});
    box.addEventListener("change", () => {
      stop();
      tell(); // before the dial turns: afterwards the step may lie outside of the race
      line.ask({ dial: name, position: box.value });
    });
    boxes.set(name, box);
    dials.append(labelled(title, box));
  }

  // ---- transport
  const press = (label, onClick, spoken = label) =>
    button(label, { class: "lk-button", "aria-label": spoken }, onClick);
  const play = press("Play", () => (timer ? stop() : start()));
  const slider = control("input", { type: "range", min: "0", class: "rr-slider", "aria-label": "step" });
  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
  const transport = node("div", { class: "lk-buttons rr-transport", role: "group", "aria-label": "Race" },
    press("Start", () => { stop(); go(0); }, "back to the start"), play,
    press("+ 1", () => { stop(); go(step + 1); }, "one step on"),
    press("+ 10", () => { stop(); go(step + 10); }, "ten steps on"),
    press("End", () => { stop(); go(last()); }, "to the end"), slider);

  // ---- picture
  const chart = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "rr-chart", role: "img" });
  const rows = node("tbody", {});
  const table = node("table", { class: "rr-lanes" },
    columns("lane", "loss", "how it ends"), rows);
  const provenance = node("p", { class: "lk-keys" });
  const voice = announcer();
  const root = node("div", { class: "lk rr", role: "group", "aria-label": "RunRace" },
    dials, transport,
    node("p", { class: "lk-keys" }, node("kbd", {}, "Space"), " plays and pauses on Play; ",
      node("kbd", {}, "←"), node("kbd", {}, "→"), " on the slider go step by step."),
    chart, table, provenance, voice.element);

  const x = (at) => LEFT + (WIDTH - LEFT - RIGHT) * at / last();
  const y = (percent) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - percent / 100);
  const text = (content, attributes) => shape("text", attributes, content);

  function swatch(index) {
    return shape("svg", { viewBox: "0 0 34 10", class: "rr-swatch", "aria-hidden": "true" },
      shape("line", { x1: 1, y1: 5, x2: 33, y2: 5, class: `rr-line rr-lane${index}` }));
  }

  function draw() {
    const { lanes, ticks } = line.numbers();
    const parts = ticks.flatMap(({ at, text: label }) => [
      shape("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(at), y2: y(at), class: "rr-grid" }),
      text(label, { x: LEFT - 6, y: y(at) + 4, class: "rr-tick", "text-anchor": "end" })]);
    parts.push(text("loss", { x: 4, y: TOP + 26, class: "rr-tick" }));
    for (const at of [0, Math.round(last() / 2), last()])
      parts.push(text(String(at), { x: x(at), y: HEIGHT - 18, class: "rr-tick", "text-anchor": "middle" }));
    parts.push(text("step", { x: x(last() / 2), y: HEIGHT - 3, class: "rr-tick", "text-anchor": "middle" }));
    const spoken = [];
    rows.replaceChildren(...lanes.map((lane, index) => {
      const shown = lane.heights.slice(0, step + 1);
      parts.push(shape("polyline", { class: `rr-line rr-lane${index}`,
        points: shown.map((height, at) => `${x(at)},${y(height)}`).join(" ") }));
      const at = shown.length - 1;
      if (at < step) parts.push(cross(x(at), y(shown[at]), 5, "rr-cross"));
      else parts.push(shape("circle", { cx: x(at), cy: y(shown[at]), r: 4, class: `rr-head rr-lane${index}` }));
      spoken.push(`${lane.name} ${lane.losses[step]}`);
      const ending = step === last() ? lane.verdict : at < step ? "not finite" : "";
      return node("tr", { "data-lane": String(index) },
        node("th", { scope: "row" }, swatch(index), lane.name),
        node("td", {}, node("output", {}, lane.losses[step])), node("td", {}, ending));
    }));
    chart.replaceChildren(...parts);
    const sentence = `Loss at step ${step} of ${last()}: ${spoken.join("; ")}.`;
    chart.setAttribute("aria-label", sentence);
    slider.max = String(last());
    slider.value = String(step);
    slider.setAttribute("aria-valuetext", `step ${step} of ${last()}`);
    voice.say(sentence);
  }

  // ---- movement
  function go(to) {
    step = Math.max(0, Math.min(last(), to));
    draw();
    clearTimeout(told); // Python hears where a race stopped, not of every step
    told = setTimeout(tell, 150);
  }

  function tell() {
    clearTimeout(told);
    if (model.get("step") === step) return;
    model.set("step", step);
    model.save_changes();
  }

  function start() {
    if (step >= last()) step = 0;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const stride = Math.max(1, Math.ceil(last() / (still ? 6 : 120)));
    timer = setInterval(() => { go(step + stride); if (step >= last()) stop(); }, still ? 700 : 33);
    play.textContent = "Pause";
    play.setAttribute("aria-label", "Pause");
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
    play.setAttribute("aria-label", "Play");
  }

  function accept(numbers) {
    for (const { name, positions, position } of numbers.dials) {
      boxes.get(name).replaceChildren(...positions.map(([value, label]) => node("option", { value }, label)));
      boxes.get(name).value = position;
    }
    const position = numbers.dials.find(({ name }) => name === "task").position;
    // Another task begins at 0, as in Python, whose word on it may cross one of ours.
    step = task && task !== position ? 0 : Math.min(step, numbers.last);
    task = position;
    provenance.textContent = numbers.provenance;
    draw();
  }

  function follow() {
    const said = model.get("step");
    if (!timer && said !== step && said <= last()) { step = said; draw(); }
  }

  model.on("change:step", follow);
  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    model.off("change:step", follow);
    stop();
    clearTimeout(told);
    voice.stop();
  };
}

export default { render };
