// Bundled by `python -m labkit build` from ../engine/elements.css ../engine/elements.js widget_call_order.css widget_call_order.js, sha256 19fa846bd4c5de9253f72a7aaed421fdf67c255d39c4965616a2c35f13cb1e99

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

// labs/automatic_mixed_precision/widget_call_order.js
function render({ model, el }) {
  const line = wire(model);
  function ask(calls, focus) {
    order = calls;
    at = focus;
    draw(order.map((call) => ({ call, kind: "", fault: "", spoken: call })));
    line.ask({ order });
  }
  const without = (place) => order.filter((_, i) => i !== place);
  let order = line.numbers().rows.map((entry) => entry.call);
  let at = 0;
  let held = null;
  const list = node("ol", { class: "co-list", "aria-label": "calls, in order" });
  const palette = node("div", { class: "lk-buttons co-palette", role: "group", "aria-label": "Put in" });
  const verdict = node("p", { class: "co-verdict" });
  const spoken = announcer();
  const reset = button("begin again", { class: "lk-button" }, () => ask([...line.numbers().first], 0));
  const root = node(
    "div",
    { class: "lk co", role: "group", "aria-label": "CallOrder" },
    node(
      "p",
      { class: "lk-keys" },
      "Drag a call, or on a call: ",
      node("kbd", {}, "Shift"),
      node("kbd", {}, "↑"),
      node("kbd", {}, "↓"),
      "moves it, ",
      node("kbd", {}, "↑"),
      node("kbd", {}, "↓"),
      "goes on, ",
      node("kbd", {}, "Del"),
      "takes it out."
    ),
    list,
    palette,
    node("div", { class: "lk-buttons" }, reset),
    verdict,
    spoken.element
  );
  function focusRow(place) {
    at = Math.max(0, Math.min(order.length - 1, place));
    list.querySelectorAll(".co-call").forEach((call, i) => {
      call.tabIndex = i === at ? 0 : -1;
    });
    list.querySelectorAll(".co-call")[at]?.focus();
  }
  function move(from, to) {
    if (to >= 0 && to < order.length && to !== from) ask(without(from).toSpliced(to, 0, order[from]), to);
  }
  function row(entry, place) {
    const call = button(entry.call, {
      class: "lk-button co-call",
      "aria-label": entry.spoken,
      tabindex: place === at ? "0" : "-1"
    }, () => focusRow(place));
    call.addEventListener("keydown", (event) => {
      const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (step && event.shiftKey) move(place, place + step);
      else if (step) focusRow(place + step);
      else if (event.key === "Delete" || event.key === "Backspace") ask(without(place), Math.max(0, place - 1));
      else return;
      event.preventDefault();
    });
    const small = (label, name, act) => button(label, {
      class: "lk-button co-small",
      tabindex: "-1",
      "aria-label": `${name} ${entry.call}`
    }, act);
    const item = node(
      "li",
      { class: "co-row", draggable: "true", "data-kind": entry.kind },
      call,
      small("↑", "move up", () => move(place, place - 1)),
      small("↓", "move down", () => move(place, place + 1)),
      small("×", "take out", () => ask(without(place), Math.max(0, place - 1))),
      node("span", { class: "co-fault" }, entry.fault)
    );
    item.addEventListener("dragstart", (event) => {
      held = place;
      event.dataTransfer.effectAllowed = "move";
      event.stopPropagation();
    });
    item.addEventListener("dragover", (event) => {
      event.preventDefault();
      event.stopPropagation();
    });
    item.addEventListener("drop", (event) => {
      event.preventDefault();
      event.stopPropagation();
      if (held !== null) move(held, place);
      held = null;
    });
    return item;
  }
  function draw(rows) {
    const focused = root.contains(document.activeElement) && document.activeElement !== reset;
    at = Math.min(at, Math.max(0, rows.length - 1));
    list.replaceChildren(...rows.map(row));
    if (focused) focusRow(at);
  }
  function accept(numbers) {
    order = numbers.rows.map((entry) => entry.call);
    draw(numbers.rows);
    palette.replaceChildren(...numbers.absent.map((call) => button(
      `+ ${call}`,
      { class: "lk-button", "aria-label": `put in ${call}` },
      () => {
        if (!order.includes(call)) ask([...order, call], order.length);
      }
    )));
    verdict.textContent = numbers.verdict;
    spoken.say(`${numbers.rows[at]?.spoken ?? ""}. ${numbers.verdict}`);
  }
  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    spoken.stop();
  };
}
var widget_call_order_default = { render };
export {
  widget_call_order_default as default
};
//# sourceMappingURL=widget_call_order.bundle.js.map
