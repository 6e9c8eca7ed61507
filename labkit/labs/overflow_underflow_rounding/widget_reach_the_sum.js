// Draws what Python says (`numbers`). Every number on the screen is Python's; an answer to an older
// `request` is ignored.

function bar(kind, title) {
  const fill = node("span", { class: `rs-fill rs-${kind}` });
  const value = node("output", { class: "rs-value" });
  const row = node("div", { class: "rs-row" }, node("span", { class: "rs-title" }, title),
    node("span", { class: "rs-track" }, fill), value);
  return { row, draw: (percent, text) => { fill.style.width = `${percent}%`; value.textContent = text; } };
}

function render({ model, el }) {
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
    button(times === 1 ? "+ 1" : `+ 1, ${times} times`,
      { class: "lk-button", "aria-label": times === 1 ? "add 1" : `add 1, ${times} times` }, () => ask({ add: times })));
  const reset = button("reset", { class: "lk-button", "aria-label": "reset: begin again at 0" },
    () => { queued = 0; ask({ format_name: formatBox.value }); });
  const total = node("output", { class: "rs-total" });
  const counts = node("span", { class: "rs-counts" });
  const gap = bar("gap", "gap above the sum");
  const addend = bar("addend", "addend");
  const verdict = node("p", { class: "rs-verdict" });
  const bars = node("div", { class: "rs-bars", role: "img" }, gap.row, addend.row);
  const spoken = announcer();
  const root = node("div", { class: "lk rs", role: "group", "aria-label": "ReachTheSum" },
    node("div", { class: "lk-controls" },
      labelled("Format", formatBox),
      node("div", { class: "lk-buttons", role: "group", "aria-label": "Add ones" }, ...presses, reset)),
    node("p", { class: "lk-keys" }, "With the focus on a button, Space or Enter presses it."),
    node("div", { class: "rs-facts" }, node("span", { class: "rs-title" }, "sum"), total, counts),
    bars, verdict, spoken.element);

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
    spoken.say(numbers.spoken);
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
    spoken.stop();
  };
}

export default { render };
