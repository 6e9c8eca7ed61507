// Draws what Python says (`numbers`): a table of values, and a button for each edge. What an edge
// really is comes from Python, and only after a run.

import { announcer, button, columns, node, wire } from "labkit/elements";
import "./widget_dtype_map.css";

function render({ model, el }) {
  const line = wire(model);
  // A request holds the whole state: of several that wait, only the last one is sent.
  const ask = () => line.ask({ painted: [...painted], ran });

  const paints = model.get("paints");
  const painted = line.numbers().cells.map((cell) => cell.paint); // what was pressed last
  let { ran } = line.numbers();
  const edges = painted.map((_, place) => {
    const element = button("", { class: "lk-button dm-edge" }, () => {
      const next = ["", ...paints][(["", ...paints].indexOf(painted[place]) + 1) % (paints.length + 1)];
      paint(place, next);
    });
    element.addEventListener("keydown", (event) => {
      const dtype = { 1: paints[0], 3: "fp32", Delete: "", Backspace: "" }[event.key];
      if (dtype === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      paint(place, dtype);
    });
    return element;
  });

  function paint(place, dtype) {
    painted[place] = dtype;
    ask();
  }

  const run = button("run the step", { class: "lk-button dm-run" }, () => { ran = true; ask(); });
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
    const shown = node("tr", { class: before && before.phase !== row.phase ? "dm-next" : "" },
      node("th", { scope: "row" }, row.title, node("small", {}, row.said)));
    shown.append(node("td", {}, edges[row.forward]));
    shown.append(node("td", {}, ...(row.backward === null ? [] : [edges[row.backward]])));
    body.append(shown);
  }
  const root = node("div", { class: "lk dm", role: "group", "aria-label": "DtypeMap" },
    node("p", { class: "lk-keys" }, "A press goes from none to ", paints.join(" to "), ". On a button ",
      node("kbd", {}, "1"), paints[0], " ", node("kbd", {}, "3"), "fp32 ", node("kbd", {}, "Del"), "none."),
    node("table", { class: "dm-table" },
      columns("value", "forward ↓", "its gradient ↑"), body),
    node("div", { class: "lk-buttons" }, run, clear), score, spoken.element);

  function accept(numbers) {
    ran = numbers.ran;
    numbers.cells.forEach((cell, place) => {
      painted[place] = cell.paint;
      const mark = { right: "✓ ", wrong: "✗ ", open: "", "": "" }[cell.verdict];
      edges[place].textContent = cell.verdict === "wrong"
        ? `${mark}${cell.paint}, is ${cell.truth}`
        : mark + (cell.paint || cell.truth || "?");
      edges[place].dataset.paint = cell.paint ? (cell.paint === "fp32" ? "wide" : "low") : "none";
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

export default { render };
