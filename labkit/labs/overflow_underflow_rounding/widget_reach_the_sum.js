// Draws what Python says (`numbers`). Every number on the screen is Python's.

import { announcer, button, control, labelled, node, wire } from "labkit/elements";
import "./widget_reach_the_sum.css";

function bar(kind, title) {
  const fill = node("span", { class: `rs-fill rs-${kind}` });
  const value = node("output", { class: "rs-value" });
  const row = node("div", { class: "rs-row" }, node("span", { class: "rs-title" }, title),
    node("span", { class: "rs-track" }, fill), value);
  return { row, draw: (percent, text) => { fill.style.width = `${percent}%`; value.textContent = text; } };
}

function render({ model, el }) {
  // A press made before the last answer is here counts too: adds to come are added up, and a reset
  // takes the place of them.
  const line = wire(model, { join: (last, wish) =>
    "format_name" in wish ? wish : "add" in last ? { add: last.add + wish.add } : null });
  const begin = () => line.ask({ format_name: formatBox.value });

  const formatBox = control("select", { class: "rs-format" },
    ...model.get("formats").map((name) => node("option", { value: name }, name)));
  formatBox.addEventListener("change", begin);
  const presses = model.get("steps").map((times) =>
    button(times === 1 ? "+ 1" : `+ 1, ${times} times`,
      { class: "lk-button", "aria-label": times === 1 ? "add 1" : `add 1, ${times} times` }, () => line.ask({ add: times })));
  const reset = button("reset", { class: "lk-button", "aria-label": "reset: begin again at 0" }, begin);
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

  function accept(numbers) {
    if (!line.waits()) formatBox.value = numbers.format_name;
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
  }

  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    spoken.stop();
  };
}

export default { render };
