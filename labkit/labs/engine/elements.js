// What every widget's page is made of: elements, shapes, and the wire to Python.

import "./elements.css";

export function node(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

// The same in a drawing.
export function shape(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// JupyterLab's command mode takes keys from a focused element unless that element itself says so.
export function control(tag, attributes = {}, ...children) {
  return node(tag, { ...attributes, "data-lm-suppress-shortcuts": "true" }, ...children);
}

export function button(label, attributes, onClick) {
  const element = control("button", { type: "button", ...attributes }, label);
  element.addEventListener("click", onClick);
  return element;
}

export function labelled(title, element) {
  return node("label", {}, node("span", {}, title), element);
}

// The head of a table, from its columns' titles.
export function columns(...titles) {
  return node("thead", {}, node("tr", {}, ...titles.map((title) => node("th", { scope: "col" }, title))));
}

export function cross(x, y, r, className) {
  return shape("path", { class: className, d: `M${x - r} ${y - r}L${x + r} ${y + r}M${x - r} ${y + r}L${x + r} ${y - r}` });
}

// A line through points [x, y]; null among them, a number that is not finite, leaves a gap.
export function curve(points, className) {
  let pen = "M";
  const d = points.map((point) => {
    const piece = point ? `${pen}${point[0]} ${point[1]}` : "";
    pen = point ? "L" : "M";
    return piece;
  });
  return shape("path", { class: className, d: d.join("") });
}

// What a screen reader hears. A held key says only where it stopped.
export function announcer() {
  const element = node("div", { class: "lk-spoken", role: "status", "aria-live": "polite" });
  let waiting = null;
  return {
    element,
    say(text) {
      clearTimeout(waiting);
      waiting = setTimeout(() => { element.textContent = text; }, 300);
    },
    stop() { clearTimeout(waiting); },
  };
}

// The wire of an AskingWidget: the page asks by `request`, Python answers in `numbers`, and an
// answer to an older request is ignored.
//
// A request goes out at once. With `join` there is one at a time: a wish made before its answer is
// here waits, and join(last, wish) says what the last waiting wish and the new one make together,
// or null where both are to be sent.
export function wire(model, { join = null } = {}) {
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
    },
  };
}
