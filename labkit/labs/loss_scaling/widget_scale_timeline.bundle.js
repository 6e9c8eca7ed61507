// Bundled by `python -m labkit build` from ../engine/elements.css ../engine/elements.js widget_scale_timeline.css widget_scale_timeline.js, sha256 3cd4f69a6b0307cbbac50d512c1789af8fadc46dd35e3f8f94bf6bdaea401ec8

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
function cross(x, y, r, className) {
  return shape("path", { class: className, d: `M${x - r} ${y - r}L${x + r} ${y + r}M${x - r} ${y + r}L${x + r} ${y - r}` });
}
function curve(points, className) {
  let pen = "M";
  const d = points.map((point) => {
    const piece = point ? `${pen}${point[0]} ${point[1]}` : "";
    pen = point ? "L" : "M";
    return piece;
  });
  return shape("path", { class: className, d: d.join("") });
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

// labs/loss_scaling/widget_scale_timeline.js
var WIDTH = 720;
var SCALE = 170;
var LOSS = 70;
var LEFT = 64;
var TOP = 8;
function render({ model, el }) {
  const names = Object.keys(model.get("runs"));
  const voice = announcer();
  const inner = WIDTH - LEFT - 10;
  const x = (percent) => LEFT + percent / 100 * inner;
  const y = (percent, top, height) => top + percent / 100 * height;
  const lossTop = TOP + SCALE + 24;
  const shown = () => model.get("runs")[model.get("run")];
  const runBox = control("select", {}, ...names.map((name) => node("option", { value: name }, name)));
  runBox.addEventListener("change", () => {
    model.set("run", runBox.value);
    model.set("place", 0);
    model.save_changes();
  });
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
    if (next !== void 0) go(next);
  }
  drawing.addEventListener("click", (event) => {
    const box = drawing.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * WIDTH;
    go(Math.round((at - LEFT) / inner * (shown().rows.length - 1)));
  });
  const root = node(
    "div",
    { class: "lk st", role: "group", "aria-label": "ScaleTimeline" },
    node(
      "div",
      { class: "lk-controls" },
      ...names.length > 1 ? [labelled("Run", runBox)] : [],
      labelled("Step", slider),
      node("div", { class: "lk-buttons" }, before, after)
    ),
    node(
      "p",
      { class: "lk-keys" },
      "With the focus on the slider: ",
      node("kbd", {}, "←"),
      node("kbd", {}, "→"),
      " one step, ",
      node("kbd", {}, "Home"),
      node("kbd", {}, "End"),
      " the ends. A click in the picture goes there."
    ),
    row,
    drawing,
    sentence,
    voice.element
  );
  const placed = (points, top, height) => points.map((point) => point && [x(point[0]), y(point[1], top, height)]);
  function draw() {
    const run = shown();
    runBox.value = model.get("run");
    const parts = [];
    for (const [percent, text] of run.ticks) {
      const at = y(percent, TOP, SCALE);
      parts.push(
        shape("line", { class: "st-grid", x1: LEFT, x2: WIDTH - 10, y1: at, y2: at }),
        shape("text", { class: "st-label st-end", x: LEFT - 5, y: at + 4 }, text)
      );
    }
    parts.push(curve(placed(run.points, TOP, SCALE), "st-line"));
    for (const [cx, cy] of placed(run.skipped.map((i) => run.points[i]), TOP, SCALE)) parts.push(cross(cx, cy, 4, "st-skip"));
    parts.push(
      shape("line", { class: "st-grid", x1: LEFT, x2: WIDTH - 10, y1: lossTop + LOSS, y2: lossTop + LOSS }),
      shape("text", { class: "st-label st-end", x: LEFT - 5, y: lossTop + LOSS + 4 }, "0"),
      shape("text", { class: "st-label st-end", x: LEFT - 5, y: lossTop + 8 }, run.top_loss),
      curve(placed(run.losses, lossTop, LOSS), "st-loss"),
      shape("text", { class: "st-label", x: LEFT + 6, y: TOP + 12 }, "loss scale, × skipped"),
      shape("text", { class: "st-label", x: LEFT + 6, y: lossTop + 12 }, "loss"),
      shape("text", { class: "st-label", x: LEFT, y: lossTop + LOSS + 17 }, `step ${run.steps[0]}`),
      shape("text", { class: "st-label st-end", x: WIDTH - 10, y: lossTop + LOSS + 17 }, run.steps[1]),
      cursor
    );
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
var widget_scale_timeline_default = { render };
export {
  widget_scale_timeline_default as default
};
//# sourceMappingURL=widget_scale_timeline.bundle.js.map
