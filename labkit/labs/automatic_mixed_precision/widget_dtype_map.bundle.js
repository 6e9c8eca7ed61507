// Bundled by `python -m labkit build` from ../engine/elements.css ../engine/elements.js widget_dtype_map.css widget_dtype_map.js, sha256 e5ac59e0e238b7f6e912efb497fbee9d2766af6f4354d3d75c44f4b600fab52f

// labs/engine/elements.js
function node(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
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
function columns(...titles) {
  return node("thead", {}, node("tr", {}, ...titles.map((title) => node("th", { scope: "col" }, title))));
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

// labs/automatic_mixed_precision/widget_dtype_map.js
function render({ model, el }) {
  const line = wire(model);
  const ask = () => line.ask({ painted: [...painted], ran });
  const paints = model.get("paints");
  const painted = line.numbers().cells.map((cell) => cell.paint);
  let { ran } = line.numbers();
  const edges = painted.map((_, place) => {
    const element = button("", { class: "lk-button dm-edge" }, () => {
      const next = ["", ...paints][(["", ...paints].indexOf(painted[place]) + 1) % (paints.length + 1)];
      paint(place, next);
    });
    element.addEventListener("keydown", (event) => {
      const dtype = { 1: paints[0], 3: "fp32", Delete: "", Backspace: "" }[event.key];
      if (dtype === void 0 || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      paint(place, dtype);
    });
    return element;
  });
  function paint(place, dtype) {
    painted[place] = dtype;
    ask();
  }
  const run = button("run the step", { class: "lk-button dm-run" }, () => {
    ran = true;
    ask();
  });
  const clear = button("clear", { class: "lk-button", "aria-label": "clear all paint" }, () => {
    painted.fill("");
    ran = false;
    ask();
  });
  const score = node("p", { class: "dm-score" });
  const spoken = announcer();
  const body = node("tbody");
  for (const [at, row] of line.numbers().rows.entries()) {
    const before = line.numbers().rows[at - 1];
    const shown = node(
      "tr",
      { class: before && before.phase !== row.phase ? "dm-next" : "" },
      node("th", { scope: "row" }, row.title, node("small", {}, row.said))
    );
    shown.append(node("td", {}, edges[row.forward]));
    shown.append(node("td", {}, ...row.backward === null ? [] : [edges[row.backward]]));
    body.append(shown);
  }
  const root = node(
    "div",
    { class: "lk dm", role: "group", "aria-label": "DtypeMap" },
    node(
      "p",
      { class: "lk-keys" },
      "A press goes from none to ",
      paints.join(" to "),
      ". On a button ",
      node("kbd", {}, "1"),
      paints[0],
      " ",
      node("kbd", {}, "3"),
      "fp32 ",
      node("kbd", {}, "Del"),
      "none."
    ),
    node(
      "table",
      { class: "dm-table" },
      columns("value", "forward ↓", "its gradient ↑"),
      body
    ),
    node("div", { class: "lk-buttons" }, run, clear),
    score,
    spoken.element
  );
  function accept(numbers) {
    ran = numbers.ran;
    numbers.cells.forEach((cell, place) => {
      painted[place] = cell.paint;
      const mark = { right: "✓ ", wrong: "✗ ", open: "", "": "" }[cell.verdict];
      edges[place].textContent = cell.verdict === "wrong" ? `${mark}${cell.paint}, is ${cell.truth}` : mark + (cell.paint || cell.truth || "?");
      edges[place].dataset.paint = cell.paint ? cell.paint === "fp32" ? "wide" : "low" : "none";
      edges[place].dataset.verdict = cell.verdict;
      edges[place].setAttribute("aria-label", cell.spoken);
    });
    score.textContent = numbers.score;
    spoken.say(numbers.score);
  }
  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    spoken.stop();
  };
}
var widget_dtype_map_default = { render };
export {
  widget_dtype_map_default as default
};
//# sourceMappingURL=widget_dtype_map.bundle.js.map
