// What every widget's page is made of. A widget's own file follows this one in the same module.

function node(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// The same in a drawing.
function shape(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// JupyterLab's command mode takes keys from a focused element unless that element itself says so.
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

// What a screen reader hears. A held key says only where it stopped.
function announcer() {
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

