// Draws what Python says (`runs`); a key or a click moves the cursor, and `place` reports it.

const ST_WIDTH = 720, ST_SCALE = 170, ST_LOSS = 70, ST_LEFT = 64, ST_TOP = 8;

function render({ model, el }) {
  const names = Object.keys(model.get("runs"));
  const voice = announcer();
  const inner = ST_WIDTH - ST_LEFT - 10;
  const x = (percent) => ST_LEFT + percent / 100 * inner;
  const y = (percent, top, height) => top + percent / 100 * height;
  const lossTop = ST_TOP + ST_SCALE + 24;
  const shown = () => model.get("runs")[model.get("run")];

  const runBox = control("select", {}, ...names.map((name) => node("option", { value: name }, name)));
  runBox.addEventListener("change", () => { model.set("run", runBox.value); model.set("place", 0); model.save_changes(); });
  const slider = control("input", { type: "range", class: "st-slider", min: "0", step: "1" });
  slider.addEventListener("input", () => go(Number(slider.value)));
  const before = button("previous skip", { class: "lk-button" }, () => toSkip(-1));
  const after = button("next skip", { class: "lk-button" }, () => toSkip(1));
  const row = node("p", { class: "st-row" });
  const sentence = node("p", { class: "st-sentence" });
  const drawing = shape("svg", { viewBox: `0 0 ${ST_WIDTH} ${lossTop + ST_LOSS + 22}`, class: "st-drawing", role: "img" });
  const cursor = shape("line", { class: "st-cursor", y1: ST_TOP, y2: lossTop + ST_LOSS });

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
    const at = (event.clientX - box.left) / box.width * ST_WIDTH;
    go(Math.round((at - ST_LEFT) / inner * (shown().rows.length - 1)));
  });

  const root = node("div", { class: "lk st", role: "group", "aria-label": "ScaleTimeline" },
    node("div", { class: "lk-controls" }, ...(names.length > 1 ? [labelled("Run", runBox)] : []),
      labelled("Step", slider), node("div", { class: "lk-buttons" }, before, after)),
    node("p", { class: "lk-keys" }, "With the focus on the slider: ", node("kbd", {}, "←"), node("kbd", {}, "→"),
      " one step, ", node("kbd", {}, "Home"), node("kbd", {}, "End"), " the ends. A click in the picture goes there."),
    row, drawing, sentence, voice.element);

  function path(points, top, height) {
    let pen = "M";
    return points.map((point) => {
      if (!point) { pen = "M"; return ""; } // a loss that is no number leaves a gap
      const piece = `${pen}${x(point[0]).toFixed(1)} ${y(point[1], top, height).toFixed(1)}`;
      pen = "L";
      return piece;
    }).join("");
  }

  function draw() {
    const run = shown();
    runBox.value = model.get("run");
    const parts = [];
    for (const [percent, text] of run.ticks) {
      const at = y(percent, ST_TOP, ST_SCALE);
      parts.push(shape("line", { class: "st-grid", x1: ST_LEFT, x2: ST_WIDTH - 10, y1: at, y2: at }),
        shape("text", { class: "st-label st-end", x: ST_LEFT - 5, y: at + 4 }, text));
    }
    parts.push(shape("path", { class: "st-line", d: path(run.points, ST_TOP, ST_SCALE) }));
    for (const i of run.skipped) {
      const [cx, cy] = [x(run.points[i][0]), y(run.points[i][1], ST_TOP, ST_SCALE)];
      parts.push(shape("path", { class: "st-skip", d: `M${cx - 4} ${cy - 4}L${cx + 4} ${cy + 4}M${cx - 4} ${cy + 4}L${cx + 4} ${cy - 4}` }));
    }
    parts.push(shape("line", { class: "st-grid", x1: ST_LEFT, x2: ST_WIDTH - 10, y1: lossTop + ST_LOSS, y2: lossTop + ST_LOSS }),
      shape("text", { class: "st-label st-end", x: ST_LEFT - 5, y: lossTop + ST_LOSS + 4 }, "0"),
      shape("text", { class: "st-label st-end", x: ST_LEFT - 5, y: lossTop + 8 }, run.top_loss),
      shape("path", { class: "st-loss", d: path(run.losses, lossTop, ST_LOSS) }),
      shape("text", { class: "st-label", x: ST_LEFT + 6, y: ST_TOP + 12 }, "loss scale, × skipped"),
      shape("text", { class: "st-label", x: ST_LEFT + 6, y: lossTop + 12 }, "loss"),
      shape("text", { class: "st-label", x: ST_LEFT, y: lossTop + ST_LOSS + 17 }, `step ${run.steps[0]}`),
      shape("text", { class: "st-label st-end", x: ST_WIDTH - 10, y: lossTop + ST_LOSS + 17 }, run.steps[1]),
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
