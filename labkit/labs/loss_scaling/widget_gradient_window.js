// Draws what Python says (`numbers`). Every number on the screen is Python's.

import { announcer, button, control, labelled, node, shape, wire } from "labkit/elements";
import "./widget_gradient_window.css";

const WIDTH = 720, HEIGHT = 170, FLOOR = 140;

function render({ model, el }) {
  // Of scales that wait one after another only the newest is of interest; all else is done in order.
  const line = wire(model, { join: (last, wish) => ("k" in last && "k" in wish ? wish : null) });
  const first = line.numbers();
  const [low, high] = first.axis;
  const unit = WIDTH / (high + 1 - low); // one power of two
  const voice = announcer();
  let playing = null;

  const slider = control("input", { type: "range", class: "gw-slider", step: "1",
    min: String(first.scales[0]), max: String(first.scales[1]) });
  slider.addEventListener("input", () => line.ask({ k: Number(slider.value) }));
  const scale = node("span", { class: "gw-scale" });

  const bars = shape("g", { class: "gw-bars" });
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "gw-drawing", role: "img" });
  for (const zone of first.zones) {
    const x = (zone.from - low) * unit, width = (zone.to - zone.from) * unit;
    drawing.append(shape("rect", { class: `gw-zone gw-${zone.name}`, x, y: 0, width, height: FLOOR }),
      shape("text", { class: "gw-name", x: x + width / 2, y: 14 }, zone.name));
  }
  for (let e = -60; e <= high; e += 10) {
    const x = (e - low) * unit;
    drawing.append(shape("line", { class: "gw-tick", x1: x, x2: x, y1: FLOOR, y2: FLOOR + 5 }),
      shape("text", { class: "gw-name", x: Math.min(Math.max(x, 18), WIDTH - 18), y: FLOOR + 20 }, `2**${e}`));
  }
  drawing.append(shape("line", { class: "gw-tick", x1: 0, x2: WIDTH, y1: FLOOR, y2: FLOOR }), bars);

  // A drag of the histogram itself moves the scale as the slider does.
  let grip = null;
  drawing.addEventListener("pointerdown", (event) => {
    grip = { x: event.clientX, k: Number(slider.value) };
    drawing.setPointerCapture(event.pointerId);
  });
  drawing.addEventListener("pointermove", (event) => {
    if (!grip || slider.disabled) return;
    const step = unit * drawing.getBoundingClientRect().width / WIDTH;
    const k = grip.k + Math.round((event.clientX - grip.x) / step);
    const within = Math.min(Math.max(k, first.scales[0]), first.scales[1]);
    if (within !== Number(slider.value)) { slider.value = within; line.ask({ k: within }); }
  });
  for (const end of ["pointerup", "pointercancel"]) drawing.addEventListener(end, () => { grip = null; });

  const shares = node("dl", { class: "gw-shares" });
  const verdict = node("p", { class: "gw-verdict" });
  const story = node("p", { class: "gw-story" });

  function stop() { clearInterval(playing); playing = null; play.textContent = "play"; }
  const play = button("play", { class: "lk-button" }, () => {
    if (playing) { stop(); return; }
    if (line.numbers().over) line.ask({ restart: true });
    play.textContent = "pause";
    playing = setInterval(() => {
      if (line.numbers().over) stop();
      else if (!line.waits()) line.ask({ next: true });
    }, 250);
  });
  const next = button("next frame", { class: "lk-button" }, () => line.ask({ next: true }));
  const dynamic = button("dynamic", { class: "lk-button", "aria-pressed": "false" },
    () => {
      stop(); // the chase begins again
      const on = dynamic.getAttribute("aria-pressed") !== "true";
      dynamic.setAttribute("aria-pressed", String(on));
      line.ask({ dynamic: on });
    });
  const restart = button("restart", { class: "lk-button" }, () => { stop(); line.ask({ restart: true }); });
  const chase = node("div", { class: "lk-buttons gw-chase", role: "group", "aria-label": "Scale chase" },
    play, next, dynamic, restart);

  const root = node("div", { class: "lk gw", role: "group", "aria-label": "GradientWindow" },
    node("div", { class: "lk-controls" }, labelled("Loss scale", slider), scale, chase),
    node("p", { class: "lk-keys" }, "Drag the slider or the histogram. With the focus on the slider: ",
      node("kbd", {}, "←"), node("kbd", {}, "→"), " halve and double, ",
      node("kbd", {}, "Home"), node("kbd", {}, "End"), " the ends."),
    drawing, shares, verdict, story, voice.element);

  function accept(numbers) {
    if (!line.waits()) {
      slider.value = numbers.k;
      dynamic.setAttribute("aria-pressed", String(numbers.dynamic));
    }
    slider.disabled = numbers.dynamic; // the scaler moves it
    slider.setAttribute("aria-valuetext", numbers.scale);
    scale.textContent = numbers.scale;
    bars.replaceChildren(...numbers.bars.map(([place, percent]) => {
      const height = Math.max(percent / 100 * (FLOOR - 22), 2); // a single gradient is seen too
      return shape("rect", { class: "gw-bar", x: (place - low) * unit + 0.5, width: unit - 1,
        y: FLOOR - height, height });
    }));
    shares.replaceChildren(...numbers.shares.map(([name, share]) =>
      node("div", {}, node("dt", {}, name), node("dd", {}, share))));
    verdict.textContent = numbers.verdict;
    root.classList.toggle("gw-held", numbers.holds);
    chase.hidden = !numbers.chase;
    story.textContent = numbers.story;
    drawing.setAttribute("aria-label", numbers.sentence);
    voice.say(numbers.sentence);
  }

  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    clearInterval(playing);
    voice.stop();
  };
}

export default { render };
