// Bundled by `python -m labkit build` from ../engine/elements.css ../engine/elements.js widget_run_race.css widget_run_race.js, sha256 98981b0cfcf57bdcf7286d62deedd0146f69bcb3f2a5549af283bfcf846861db

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
function columns(...titles) {
  return node("thead", {}, node("tr", {}, ...titles.map((title) => node("th", { scope: "col" }, title))));
}
function cross(x, y, r, className) {
  return shape("path", { class: className, d: `M${x - r} ${y - r}L${x + r} ${y + r}M${x - r} ${y + r}L${x + r} ${y - r}` });
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
function wire(model, { join = null } = {}) {
  const waiting = [];
  const asked = () => model.get("request").seq ?? 0;
  const numbers = () => model.get("numbers");
  function ask(wish) {
    if (join && asked() > numbers().seq) {
      const joined = waiting.length ? join(waiting.at(-1), wish) : null;
      if (joined) waiting[waiting.length - 1] = joined;
      else waiting.push(wish);
      return;
    }
    model.set("request", { seq: Math.max(asked(), numbers().seq) + 1, ...wish });
    model.save_changes();
  }
  return {
    ask,
    numbers,
    waits: () => waiting.length > 0,
    // Calls accept(numbers) now and with every answer to the newest request, until the function
    // that it returns is called.
    follow(accept) {
      function hear() {
        if (numbers().seq < asked()) return;
        accept(numbers());
        if (waiting.length) ask(waiting.shift());
      }
      model.on("change:numbers", hear);
      hear();
      return () => model.off("change:numbers", hear);
    }
  };
}

// labs/three_crimes/widget_run_race.js
var WIDTH = 640;
var HEIGHT = 260;
var LEFT = 44;
var RIGHT = 12;
var TOP = 10;
var BOTTOM = 34;
function render({ model, el }) {
  const line = wire(model, { join: () => null });
  let step = model.get("step"), timer = null, told = null, task = null;
  const last = () => line.numbers().last;
  const dials = node("div", { class: "lk-controls" });
  const boxes = /* @__PURE__ */ new Map();
  for (const { name, title } of line.numbers().dials) {
    const box = control("select", {});
    box.addEventListener("change", () => {
      stop();
      tell();
      line.ask({ dial: name, position: box.value });
    });
    boxes.set(name, box);
    dials.append(labelled(title, box));
  }
  const press = (label, onClick, spoken = label) => button(label, { class: "lk-button", "aria-label": spoken }, onClick);
  const play = press("Play", () => timer ? stop() : start());
  const slider = control("input", { type: "range", min: "0", class: "rr-slider", "aria-label": "step" });
  slider.addEventListener("input", () => {
    stop();
    go(Number(slider.value));
  });
  const transport = node(
    "div",
    { class: "lk-buttons rr-transport", role: "group", "aria-label": "Race" },
    press("Start", () => {
      stop();
      go(0);
    }, "back to the start"),
    play,
    press("+ 1", () => {
      stop();
      go(step + 1);
    }, "one step on"),
    press("+ 10", () => {
      stop();
      go(step + 10);
    }, "ten steps on"),
    press("End", () => {
      stop();
      go(last());
    }, "to the end"),
    slider
  );
  const chart = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "rr-chart", role: "img" });
  const rows = node("tbody", {});
  const table = node(
    "table",
    { class: "rr-lanes" },
    columns("lane", "loss", "how it ends"),
    rows
  );
  const provenance = node("p", { class: "lk-keys" });
  const voice = announcer();
  const root = node(
    "div",
    { class: "lk rr", role: "group", "aria-label": "RunRace" },
    dials,
    transport,
    node(
      "p",
      { class: "lk-keys" },
      node("kbd", {}, "Space"),
      " plays and pauses on Play; ",
      node("kbd", {}, "←"),
      node("kbd", {}, "→"),
      " on the slider go step by step."
    ),
    chart,
    table,
    provenance,
    voice.element
  );
  const x = (at) => LEFT + (WIDTH - LEFT - RIGHT) * at / last();
  const y = (percent) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - percent / 100);
  const text = (content, attributes) => shape("text", attributes, content);
  function swatch(index) {
    return shape(
      "svg",
      { viewBox: "0 0 34 10", class: "rr-swatch", "aria-hidden": "true" },
      shape("line", { x1: 1, y1: 5, x2: 33, y2: 5, class: `rr-line rr-lane${index}` })
    );
  }
  function draw() {
    const { lanes, ticks } = line.numbers();
    const parts = ticks.flatMap(({ at, text: label }) => [
      shape("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(at), y2: y(at), class: "rr-grid" }),
      text(label, { x: LEFT - 6, y: y(at) + 4, class: "rr-tick", "text-anchor": "end" })
    ]);
    parts.push(text("loss", { x: 4, y: TOP + 26, class: "rr-tick" }));
    for (const at of [0, Math.round(last() / 2), last()])
      parts.push(text(String(at), { x: x(at), y: HEIGHT - 18, class: "rr-tick", "text-anchor": "middle" }));
    parts.push(text("step", { x: x(last() / 2), y: HEIGHT - 3, class: "rr-tick", "text-anchor": "middle" }));
    const spoken = [];
    rows.replaceChildren(...lanes.map((lane, index) => {
      const shown = lane.heights.slice(0, step + 1);
      parts.push(shape("polyline", {
        class: `rr-line rr-lane${index}`,
        points: shown.map((height, at2) => `${x(at2)},${y(height)}`).join(" ")
      }));
      const at = shown.length - 1;
      if (at < step) parts.push(cross(x(at), y(shown[at]), 5, "rr-cross"));
      else parts.push(shape("circle", { cx: x(at), cy: y(shown[at]), r: 4, class: `rr-head rr-lane${index}` }));
      spoken.push(`${lane.name} ${lane.losses[step]}`);
      const ending = step === last() ? lane.verdict : at < step ? "not finite" : "";
      return node(
        "tr",
        { "data-lane": String(index) },
        node("th", { scope: "row" }, swatch(index), lane.name),
        node("td", {}, node("output", {}, lane.losses[step])),
        node("td", {}, ending)
      );
    }));
    chart.replaceChildren(...parts);
    const sentence = `Loss at step ${step} of ${last()}: ${spoken.join("; ")}.`;
    chart.setAttribute("aria-label", sentence);
    slider.max = String(last());
    slider.value = String(step);
    slider.setAttribute("aria-valuetext", `step ${step} of ${last()}`);
    voice.say(sentence);
  }
  function go(to) {
    step = Math.max(0, Math.min(last(), to));
    draw();
    clearTimeout(told);
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
    timer = setInterval(() => {
      go(step + stride);
      if (step >= last()) stop();
    }, still ? 700 : 33);
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
    for (const { name, positions, position: position2 } of numbers.dials) {
      boxes.get(name).replaceChildren(...positions.map(([value, label]) => node("option", { value }, label)));
      boxes.get(name).value = position2;
    }
    const position = numbers.dials.find(({ name }) => name === "task").position;
    step = task && task !== position ? 0 : Math.min(step, numbers.last);
    task = position;
    provenance.textContent = numbers.provenance;
    draw();
  }
  function follow() {
    const said = model.get("step");
    if (!timer && said !== step && said <= last()) {
      step = said;
      draw();
    }
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
var widget_run_race_default = { render };
export {
  widget_run_race_default as default
};
//# sourceMappingURL=widget_run_race.bundle.js.map
