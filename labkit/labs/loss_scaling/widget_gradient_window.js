// Draws what Python says (`numbers`). Every number on the screen is Python's; an answer to an older
// `request` is ignored.

const GW_WIDTH = 720, GW_HEIGHT = 170, GW_FLOOR = 140;

function render({ model, el }) {
  const first = model.get("numbers");
  const [low, high] = first.axis;
  const unit = GW_WIDTH / (high + 1 - low); // one power of two
  const voice = announcer();
  const waiting = []; // wishes in order while Python is at work on an older one; of scales the newest
  let playing = null;

  function ask(wanted) {
    const open = model.get("request").seq ?? 0;
    if (open > model.get("numbers").seq) {
      if ("k" in wanted && "k" in (waiting.at(-1) ?? {})) waiting.pop();
      waiting.push(wanted);
      return;
    }
    model.set("request", { seq: Math.max(open, model.get("numbers").seq) + 1, ...wanted });
    model.save_changes();
  }

  const slider = control("input", { type: "range", class: "gw-slider", step: "1",
    min: String(first.scales[0]), max: String(first.scales[1]) });
  slider.addEventListener("input", () => ask({ k: Number(slider.value) }));
  const scale = node("span", { class: "gw-scale" });

  const bars = shape("g", { class: "gw-bars" });
  const drawing = shape("svg", { viewBox: `0 0 ${GW_WIDTH} ${GW_HEIGHT}`, class: "gw-drawing", role: "img" });
  for (const zone of first.zones) {
    const x = (zone.from - low) * unit, width = (zone.to - zone.from) * unit;
    drawing.append(shape("rect", { class: `gw-zone gw-${zone.name}`, x, y: 0, width, height: GW_FLOOR }),
      shape("text", { class: "gw-name", x: x + width / 2, y: 14 }, zone.name));
  }
  for (let e = -60; e <= high; e += 10) {
    const x = (e - low) * unit;
    drawing.append(shape("line", { class: "gw-tick", x1: x, x2: x, y1: GW_FLOOR, y2: GW_FLOOR + 5 }),
      shape("text", { class: "gw-name", x: Math.min(Math.max(x, 18), GW_WIDTH - 18), y: GW_FLOOR + 20 }, `2**${e}`));
  }
  drawing.append(shape("line", { class: "gw-tick", x1: 0, x2: GW_WIDTH, y1: GW_FLOOR, y2: GW_FLOOR }), bars);

  // A drag of the histogram itself moves the scale as the slider does.
  let grip = null;
  drawing.addEventListener("pointerdown", (event) => {
    grip = { x: event.clientX, k: Number(slider.value) };
    drawing.setPointerCapture(event.pointerId);
  });
  drawing.addEventListener("pointermove", (event) => {
    if (!grip) return;
    const step = unit * drawing.getBoundingClientRect().width / GW_WIDTH;
    const k = grip.k + Math.round((event.clientX - grip.x) / step);
    const within = Math.min(Math.max(k, first.scales[0]), first.scales[1]);
    if (within !== Number(slider.value)) { slider.value = within; ask({ k: within }); }
  });
  for (const end of ["pointerup", "pointercancel"]) drawing.addEventListener(end, () => { grip = null; });

  const shares = node("dl", { class: "gw-shares" });
  const verdict = node("p", { class: "gw-verdict" });
  const story = node("p", { class: "gw-story" });

  function stop() { clearInterval(playing); playing = null; play.textContent = "play"; }
  const play = button("play", { class: "lk-button" }, () => {
    if (playing) { stop(); return; }
    if (model.get("numbers").over) ask({ restart: true });
    play.textContent = "pause";
    playing = setInterval(() => {
      if (model.get("numbers").over) stop();
      else if (!waiting.length) ask({ next: true });
    }, 250);
  });
  const next = button("next frame", { class: "lk-button" }, () => ask({ next: true }));
  const dynamic = button("dynamic", { class: "lk-button", "aria-pressed": "false" },
    () => {
      const on = dynamic.getAttribute("aria-pressed") !== "true";
      dynamic.setAttribute("aria-pressed", String(on));
      ask({ dynamic: on });
    });
  const restart = button("restart", { class: "lk-button" }, () => { stop(); ask({ restart: true }); });
  const chase = node("div", { class: "lk-buttons gw-chase", role: "group", "aria-label": "Scale chase" },
    play, next, dynamic, restart);

  const root = node("div", { class: "lk gw", role: "group", "aria-label": "GradientWindow" },
    node("div", { class: "lk-controls" }, labelled("Loss scale", slider), scale, chase),
    node("p", { class: "lk-keys" }, "Drag the slider or the histogram. With the focus on the slider: ",
      node("kbd", {}, "←"), node("kbd", {}, "→"), " halve and double, ",
      node("kbd", {}, "Home"), node("kbd", {}, "End"), " the ends."),
    drawing, shares, verdict, story, voice.element);

  function accept() {
    const numbers = model.get("numbers");
    if (numbers.seq < (model.get("request").seq ?? 0)) return; // the answer to an older request
    if (!waiting.length) {
      slider.value = numbers.k;
      dynamic.setAttribute("aria-pressed", String(numbers.dynamic));
    }
    slider.setAttribute("aria-valuetext", numbers.scale);
    scale.textContent = numbers.scale;
    bars.replaceChildren(...numbers.bars.map(([place, percent]) => {
      const height = Math.max(percent / 100 * (GW_FLOOR - 22), 2); // a single gradient is seen too
      return shape("rect", { class: "gw-bar", x: (place - low) * unit + 0.5, width: unit - 1,
        y: GW_FLOOR - height, height });
    }));
    shares.replaceChildren(...numbers.shares.map(([name, share]) =>
      node("div", {}, node("dt", {}, name), node("dd", {}, share))));
    verdict.textContent = numbers.verdict;
    root.classList.toggle("gw-held", numbers.holds);
    chase.hidden = !numbers.chase;
    story.textContent = numbers.story;
    drawing.setAttribute("aria-label", numbers.sentence);
    voice.say(numbers.sentence);
    if (waiting.length) ask(waiting.shift());
  }

  model.on("change:numbers", accept);
  el.append(root);
  accept();
  return () => {
    model.off("change:numbers", accept);
    clearInterval(playing);
    voice.stop();
  };
}

export default { render };
