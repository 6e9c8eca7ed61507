// Draws what Python says (`numbers`). Every number on the screen is Python's; an answer to an older
// `request` is ignored.

function node(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// JupyterLab's command mode takes keys from a focused element unless that element itself says so.
function control(tag, attributes = {}, ...children) {
  return node(tag, { ...attributes, "data-lm-suppress-shortcuts": "true" }, ...children);
}

function button(label, spoken, onClick) {
  const element = control("button", { type: "button", class: "rs-press", "aria-label": spoken }, label);
  element.addEventListener("click", onClick);
  return element;
}

function bar(kind, title) {
  const fill = node("span", { class: `rs-fill rs-${kind}` });
  const value = node("output", { class: "rs-value" });
  const row = node("div", { class: "rs-row" }, node("span", { class: "rs-title" }, title),
    node("span", { class: "rs-track" }, fill), value);
  return { row, draw: (percent, text) => { fill.style.width = `${percent}%`; value.textContent = text; } };
}

function render({ model, el }) {
  let announcing = null;

  function ask(wanted) {
    const seq = Math.max(model.get("request").seq ?? 0, model.get("numbers").seq) + 1;
    // A press made before the last answer is here counts too: adds to come are added up.
    const open = model.get("request");
    const waiting = (open.seq ?? 0) > model.get("numbers").seq && "add" in open && "add" in wanted;
    if (waiting) queued += wanted.add;
    else { model.set("request", { seq, ...wanted }); model.save_changes(); }
  }
  let queued = 0;

  const formatBox = control("select", { class: "rs-format" },
    ...model.get("formats").map((name) => node("option", { value: name }, name)));
  formatBox.addEventListener("change", () => { queued = 0; ask({ format_name: formatBox.value }); });
  const presses = model.get("steps").map((times) =>
    button(times === 1 ? "+ 1" : `+ 1, ${times} times`, times === 1 ? "add 1" : `add 1, ${times} times`,
      () => ask({ add: times })));
  const reset = button("reset", "reset: begin again at 0",
    () => { queued = 0; ask({ format_name: formatBox.value }); });
  const total = node("output", { class: "rs-total" });
  const counts = node("span", { class: "rs-counts" });
  const gap = bar("gap", "gap above the sum");
  const addend = bar("addend", "addend");
  const verdict = node("p", { class: "rs-verdict" });
  const bars = node("div", { class: "rs-bars", role: "img" }, gap.row, addend.row);
  const spoken = node("div", { class: "rs-spoken", role: "status", "aria-live": "polite" });
  const root = node("div", { class: "rs", role: "group", "aria-label": "ReachTheSum" },
    node("div", { class: "rs-controls" },
      node("label", {}, node("span", {}, "Format"), formatBox),
      node("div", { class: "rs-presses", role: "group", "aria-label": "Add ones" }, ...presses, reset)),
    node("p", { class: "rs-keys" }, "With the focus on a button, Space or Enter presses it."),
    node("div", { class: "rs-facts" }, node("span", { class: "rs-title" }, "sum"), total, counts),
    bars, verdict, spoken);

  function accept() {
    const numbers = model.get("numbers");
    if (numbers.seq < (model.get("request").seq ?? 0)) return; // the answer to an older request
    formatBox.value = numbers.format_name;
    total.textContent = numbers.total;
    counts.textContent = numbers.missing === "0"
      ? `of ${numbers.presses} ones`
      : `of ${numbers.presses} ones, ${numbers.missing} missing`;
    gap.draw(numbers.gap_percent, numbers.gap);
    addend.draw(numbers.addend_percent, numbers.addend);
    verdict.textContent = numbers.verdict;
    bars.setAttribute("aria-label", numbers.sentence);
    root.classList.toggle("rs-stuck", numbers.stuck);
    clearTimeout(announcing); // a held key says only where it stopped
    announcing = setTimeout(() => { spoken.textContent = numbers.spoken; }, 300);
    if (queued) {
      const add = queued;
      queued = 0;
      ask({ add });
    }
  }

  model.on("change:numbers", accept);
  el.append(root);
  accept();
  return () => {
    model.off("change:numbers", accept);
    clearTimeout(announcing);
  };
}

export default { render };
