// Bundled by `python -m labkit build` from ../engine/elements.css ../engine/elements.js widget_gradient_window.css widget_gradient_window.js, sha256 e950c2adc2d7378c79118930c60146e4e5d111c3244b61c44c7b63a6f69f7b41

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

// labs/loss_scaling/widget_gradient_window.js
var WIDTH = 720;
var HEIGHT = 170;
var FLOOR = 140;
function render({ model, el }) {
  const line = wire(model, { join: (last, wish) => "k" in last && "k" in wish ? wish : null });
  const first = line.numbers();
  const [low, high] = first.axis;
  const unit = WIDTH / (high + 1 - low);
  const voice = announcer();
  let playing = null;
  const slider = control("input", {
    type: "range",
    class: "gw-slider",
    step: "1",
    min: String(first.scales[0]),
    max: String(first.scales[1])
  });
  slider.addEventListener("input", () => line.ask({ k: Number(slider.value) }));
  const scale = node("span", { class: "gw-scale" });
  const bars = shape("g", { class: "gw-bars" });
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "gw-drawing", role: "img" });
  for (const zone of first.zones) {
    const x = (zone.from - low) * unit, width = (zone.to - zone.from) * unit;
    drawing.append(
      shape("rect", { class: `gw-zone gw-${zone.name}`, x, y: 0, width, height: FLOOR }),
      shape("text", { class: "gw-name", x: x + width / 2, y: 14 }, zone.name)
    );
  }
  for (let e = -60; e <= high; e += 10) {
    const x = (e - low) * unit;
    drawing.append(
      shape("line", { class: "gw-tick", x1: x, x2: x, y1: FLOOR, y2: FLOOR + 5 }),
      shape("text", { class: "gw-name", x: Math.min(Math.max(x, 18), WIDTH - 18), y: FLOOR + 20 }, `2**${e}`)
    );
  }
  drawing.append(shape("line", { class: "gw-tick", x1: 0, x2: WIDTH, y1: FLOOR, y2: FLOOR }), bars);
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
    if (within !== Number(slider.value)) {
      slider.value = within;
      line.ask({ k: within });
    }
  });
  for (const end of ["pointerup", "pointercancel"]) drawing.addEventListener(end, () => {
    grip = null;
  });
  const shares = node("dl", { class: "gw-shares" });
  const verdict = node("p", { class: "gw-verdict" });
  const story = node("p", { class: "gw-story" });
  function stop() {
    clearInterval(playing);
    playing = null;
    play.textContent = "play";
  }
  const play = button("play", { class: "lk-button" }, () => {
    if (playing) {
      stop();
      return;
    }
    if (line.numbers().over) line.ask({ restart: true });
    play.textContent = "pause";
    playing = setInterval(() => {
      if (line.numbers().over) stop();
      else if (!line.waits()) line.ask({ next: true });
    }, 250);
  });
  const next = button("next frame", { class: "lk-button" }, () => line.ask({ next: true }));
  const dynamic = button(
    "dynamic",
    { class: "lk-button", "aria-pressed": "false" },
    () => {
      stop();
      const on = dynamic.getAttribute("aria-pressed") !== "true";
      dynamic.setAttribute("aria-pressed", String(on));
      line.ask({ dynamic: on });
    }
  );
  const restart = button("restart", { class: "lk-button" }, () => {
    stop();
    line.ask({ restart: true });
  });
  const chase = node(
    "div",
    { class: "lk-buttons gw-chase", role: "group", "aria-label": "Scale chase" },
    play,
    next,
    dynamic,
    restart
  );
  const root = node(
    "div",
    { class: "lk gw", role: "group", "aria-label": "GradientWindow" },
    node("div", { class: "lk-controls" }, labelled("Loss scale", slider), scale, chase),
    node(
      "p",
      { class: "lk-keys" },
      "Drag the slider or the histogram. With the focus on the slider: ",
      node("kbd", {}, "←"),
      node("kbd", {}, "→"),
      " halve and double, ",
      node("kbd", {}, "Home"),
      node("kbd", {}, "End"),
      " the ends."
    ),
    drawing,
    shares,
    verdict,
    story,
    voice.element
  );
  function accept(numbers) {
    if (!line.waits()) {
      slider.value = numbers.k;
      dynamic.setAttribute("aria-pressed", String(numbers.dynamic));
    }
    slider.disabled = numbers.dynamic;
    slider.setAttribute("aria-valuetext", numbers.scale);
    scale.textContent = numbers.scale;
    bars.replaceChildren(...numbers.bars.map(([place, percent]) => {
      const height = Math.max(percent / 100 * (FLOOR - 22), 2);
      return shape("rect", {
        class: "gw-bar",
        x: (place - low) * unit + 0.5,
        width: unit - 1,
        y: FLOOR - height,
        height
      });
    }));
    shares.replaceChildren(...numbers.shares.map(([name, share]) => node("div", {}, node("dt", {}, name), node("dd", {}, share))));
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
var widget_gradient_window_default = { render };
export {
  widget_gradient_window_default as default
};
//# sourceMappingURL=widget_gradient_window.bundle.js.map
