// Draws what Python says (`runs`); a key or a click moves the cursor, and `place` reports it.

import { announcer, button, control, cross, curve, labelled, node, shape } from "labkit/elements";
import "./widget_scale_timeline.css";

const WIDTH = 720, SCALE = 170, LOSS = 70, LEFT = 64, TOP = 8;

function render({ model, el }) {
  const names = Object.keys(model.get("runs"));
  const voice = announcer();
  const inner = WIDTH - LEFT - 10;
  const x = (percent) => LEFT + percent / 100 * inner;
  const y = (percent, top, height) => top + percent / 100 * height;
  const lossTop = TOP + SCALE + 24;
  const shown = () => model.get("runs")[model.get("run")];

  const runBox = control("select", {}, ...names.map((name) => node("option", { value: name }, name)));
  runBox.addEventListener("change", () => { model.set("run", runBox.value); model.set("place", 0); model.save_changes(); });
  const slider = control("input", { type: "range", class: "st-slider", min: "0", step: "1" });
  slider.addEventListener("input", () => go(Number(slider.value)));
  const before = button("previous skip", { class: "lk-button" }, () => toSkip(-1));
  const after = button("next skip", { class: "lk-button" }, () => toSkip(1));
  const row = node("p", { class: "st-row" });
  const sentence = node("p", { class: "st-sentence" });
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${lossTop + LOSS + 22}`, class: "st-drawing", role: "img" });
  const cursor = shape("line", { class: "st-cursor", y1: TOP, y2: lossTop + LOSS });

  function go(place) {
    model.set("place", Math.min(Math.max(place, 0), shown().rows.length - 1));
    model.save_changes();
  }

  function toSkip(direction) {
    const now = model.get("place"), { skipped } = shown();
    const next = direction > 0 ? skipped.find((i) => i > now) : skipped.findLast((i) => i < now);
    if (next !== undefined) go(next);
  }

  drawing.addEventListener("click", (event) => {
    const box = drawing.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * WIDTH;
    go(Math.round((at - LEFT) / inner * (shown().rows.length - 1)));
  });

  const root = node("div", { class: "lk st", role: "group", "aria-label": "ScaleTimeline" },
    node("div", { class: "lk-controls" }, ...(names.length > 1 ? [labelled("Run", runBox)] : []),
      labelled("Step", slider), node("div", { class: "lk-buttons" }, before, after)),
    node("p", { class: "lk-keys" }, "With the focus on the slider: ", node("kbd", {}, "←"), node("kbd", {}, "→"),
      " one step, ", node("kbd", {}, "Home"), node("kbd", {}, "End"), " the ends. A click in the picture goes there."),
    row, drawing, sentence, voice.element);

  const placed = (points, top, height) => points.map((point) => point && [x(point[0]), y(point[1], top, height)]);

  function draw() {
    const run = shown();
    runBox.value = model.get("run");
    const parts = [];
    for (const [percent, text] of run.ticks) {
      const at = y(percent, TOP, SCALE);
      parts.push(shape("line", { class: "st-grid", x1: LEFT, x2: WIDTH - 10, y1: at, y2: at }),
        shape("text", { class: "st-label st-end", x: LEFT - 5, y: at + 4 }, text));
    }
    parts.push(curve(placed(run.points, TOP, SCALE), "st-line"));
    for (const [cx, cy] of placed(run.skipped.map((i) => run.points[i]), TOP, SCALE)) parts.push(cross(cx, cy, 4, "st-skip"));
    parts.push(shape("line", { class: "st-grid", x1: LEFT, x2: WIDTH - 10, y1: lossTop + LOSS, y2: lossTop + LOSS }),
      shape("text", { class: "st-label st-end", x: LEFT - 5, y: lossTop + LOSS + 4 }, "0"),
      shape("text", { class: "st-label st-end", x: LEFT - 5, y: lossTop + 8 }, run.top_loss),
      curve(placed(run.losses, lossTop, LOSS), "st-loss"),
      shape("text", { class: "st-label", x: LEFT + 6, y: TOP + 12 }, "loss scale, × skipped"),
      shape("text", { class: "st-label", x: LEFT + 6, y: lossTop + 12 }, "loss"),
      shape("text", { class: "st-label", x: LEFT, y: lossTop + LOSS + 17 }, `step ${run.steps[0]}`),
      shape("text", { class: "st-label st-end", x: WIDTH - 10, y: lossTop + LOSS + 17 }, run.steps[1]),
      cursor);
    drawing.replaceChildren(...parts);
    drawing.setAttribute("aria-label", run.sentence);
    sentence.textContent = run.sentence;
    slider.max = String(run.rows.length - 1);
    before.disabled = after.disabled = run.skipped.length === 0;
    move();
  }

  function move() {
    const run = shown(), place = Math.min(model.get("place"), run.rows.length - 1);
    slider.value = place;
    slider.setAttribute("aria-valuetext", run.rows[place]);
    row.textContent = run.rows[place];
    row.classList.toggle("st-skipped", run.skipped.includes(place));
    const at = x(run.points[place][0]);
    cursor.setAttribute("x1", at);
    cursor.setAttribute("x2", at);
    voice.say(run.rows[place]);
  }

  model.on("change:run", draw);
  model.on("change:place", move);
  el.append(root);
  draw();
  return () => {
    model.off("change:run", draw);
    model.off("change:place", move);
    voice.stop();
  };
}

export default { render };
