// Draws what Python says (`numbers`), and asks Python to move, take out or put back a call.

function render({ model, el }) {
  function ask(wanted, focus) {
    const seq = Math.max(model.get("request").seq ?? 0, model.get("numbers").seq) + 1;
    at = focus ?? at;
    model.set("request", { seq, ...wanted });
    model.save_changes();
  }
  let at = 0; // the row that has the focus, or had it last
  let held = null; // the row that the mouse drags

  const list = node("ol", { class: "co-list", "aria-label": "calls, in order" });
  const palette = node("div", { class: "lk-buttons co-palette", role: "group", "aria-label": "Put in" });
  const verdict = node("p", { class: "co-verdict" });
  const spoken = announcer();
  const reset = button("begin again", { class: "lk-button" }, () => ask({ reset: true }, 0));
  const root = node("div", { class: "lk co", role: "group", "aria-label": "CallOrder" },
    node("p", { class: "lk-keys" }, "Drag a call, or on a call: ", node("kbd", {}, "Shift"), node("kbd", {}, "↑"),
      node("kbd", {}, "↓"), "moves it, ", node("kbd", {}, "↑"), node("kbd", {}, "↓"), "goes on, ",
      node("kbd", {}, "Del"), "takes it out."),
    list, palette, node("div", { class: "lk-buttons" }, reset), verdict, spoken.element);

  const count = () => model.get("numbers").rows.length;
  function focusRow(place) {
    at = Math.max(0, Math.min(count() - 1, place));
    list.querySelectorAll(".co-call").forEach((call, i) => { call.tabIndex = i === at ? 0 : -1; });
    list.querySelectorAll(".co-call")[at]?.focus();
  }
  function move(from, to) {
    if (to >= 0 && to < count() && to !== from) ask({ move: [from, to] }, to);
  }

  function row(entry, place) {
    const call = button(entry.call, { class: "lk-button co-call", "aria-label": entry.spoken,
      tabindex: place === at ? "0" : "-1" }, () => focusRow(place));
    call.addEventListener("keydown", (event) => {
      const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (step && event.shiftKey) move(place, place + step);
      else if (step) focusRow(place + step);
      else if (event.key === "Delete" || event.key === "Backspace") ask({ take: place }, Math.max(0, place - 1));
      else return;
      event.preventDefault();
    });
    const small = (label, name, act) => button(label, { class: "lk-button co-small", tabindex: "-1",
      "aria-label": `${name} ${entry.call}` }, act);
    const line = node("li", { class: "co-row", draggable: "true", "data-kind": entry.kind },
      call, small("↑", "move up", () => move(place, place - 1)), small("↓", "move down", () => move(place, place + 1)),
      small("×", "take out", () => ask({ take: place }, Math.max(0, place - 1))),
      node("span", { class: "co-fault" }, entry.fault));
    line.addEventListener("dragstart", (event) => {
      held = place;
      event.dataTransfer.effectAllowed = "move";
      event.stopPropagation();
    });
    line.addEventListener("dragover", (event) => { event.preventDefault(); event.stopPropagation(); });
    line.addEventListener("drop", (event) => {
      event.preventDefault();
      event.stopPropagation();
      if (held !== null) move(held, place);
      held = null;
    });
    return line;
  }

  function accept() {
    const numbers = model.get("numbers");
    if (numbers.seq < (model.get("request").seq ?? 0)) return; // the answer to an older request
    const focused = root.contains(document.activeElement) && document.activeElement !== reset;
    at = Math.min(at, Math.max(0, numbers.rows.length - 1));
    list.replaceChildren(...numbers.rows.map(row));
    palette.replaceChildren(...numbers.absent.map((call) =>
      button(`+ ${call}`, { class: "lk-button", "aria-label": `put in ${call}` }, () => ask({ put: call }, count()))));
    verdict.textContent = numbers.verdict;
    if (focused) focusRow(at);
    spoken.say(`${numbers.rows[at]?.spoken ?? ""}. ${numbers.verdict}`);
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
