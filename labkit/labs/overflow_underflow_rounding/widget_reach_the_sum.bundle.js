// Bundled by `python -m labkit build` from ../engine/elements.css ../engine/elements.js widget_reach_the_sum.css widget_reach_the_sum.js, sha256 9da9f88c190f27ccf3c287c738051c82e6f49ae17eda78c46ff15fea51a2baa7

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

// labs/overflow_underflow_rounding/widget_reach_the_sum.js
function bar(kind, title) {
  const fill = node("span", { class: `rs-fill rs-${kind}` });
  const value = node("output", { class: "rs-value" });
  const row = node(
    "div",
    { class: "rs-row" },
    node("span", { class: "rs-title" }, title),
    node("span", { class: "rs-track" }, fill),
    value
  );
  return { row, draw: (percent, text) => {
    fill.style.width = `${percent}%`;
    value.textContent = text;
  } };
}
function render({ model, el }) {
  const line = wire(model, { join: (last, wish) => "format_name" in wish ? wish : "add" in last ? { add: last.add + wish.add } : null });
  const begin = () => line.ask({ format_name: formatBox.value });
  const formatBox = control(
    "select",
    { class: "rs-format" },
    ...model.get("formats").map((name) => node("option", { value: name }, name))
  );
  formatBox.addEventListener("change", begin);
  const presses = model.get("steps").map((times) => button(
    times === 1 ? "+ 1" : `+ 1, ${times} times`,
    { class: "lk-button", "aria-label": times === 1 ? "add 1" : `add 1, ${times} times` },
    () => line.ask({ add: times })
  ));
  const reset = button("reset", { class: "lk-button", "aria-label": "reset: begin again at 0" }, begin);
  const total = node("output", { class: "rs-total" });
  const counts = node("span", { class: "rs-counts" });
  const gap = bar("gap", "gap above the sum");
  const addend = bar("addend", "addend");
  const verdict = node("p", { class: "rs-verdict" });
  const bars = node("div", { class: "rs-bars", role: "img" }, gap.row, addend.row);
  const spoken = announcer();
  const root = node(
    "div",
    { class: "lk rs", role: "group", "aria-label": "ReachTheSum" },
    node(
      "div",
      { class: "lk-controls" },
      labelled("Format", formatBox),
      node("div", { class: "lk-buttons", role: "group", "aria-label": "Add ones" }, ...presses, reset)
    ),
    node("p", { class: "lk-keys" }, "With the focus on a button, Space or Enter presses it."),
    node("div", { class: "rs-facts" }, node("span", { class: "rs-title" }, "sum"), total, counts),
    bars,
    verdict,
    spoken.element
  );
  function accept(numbers) {
    if (!line.waits()) formatBox.value = numbers.format_name;
    total.textContent = numbers.total;
    counts.textContent = numbers.missing === "0" ? `of ${numbers.presses} ones` : `of ${numbers.presses} ones, ${numbers.missing} missing`;
    gap.draw(numbers.gap_percent, numbers.gap);
    addend.draw(numbers.addend_percent, numbers.addend);
    verdict.textContent = numbers.verdict;
    bars.setAttribute("aria-label", numbers.sentence);
    root.classList.toggle("rs-stuck", numbers.stuck);
    spoken.say(numbers.spoken);
  }
  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    spoken.stop();
  };
}
var widget_reach_the_sum_default = { render };
export {
  widget_reach_the_sum_default as default
};
//# sourceMappingURL=widget_reach_the_sum.bundle.js.map
