// Bundled by `python -m labkit build` from elements.css elements.js widget_prediction.css widget_prediction.js, sha256 55482e949514a7c940ba30ad7d03036e9e10c4ac6cbba8c227e2aaebd6e32d62

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

// labs/engine/widget_prediction.js
function render({ model, el }) {
  const root = control("div", { class: "lk pr", role: "group", tabindex: "0", "aria-label": "Prediction" });
  const spoken = announcer();
  const line = wire(model);
  const { numbers } = line;
  let shown = null;
  let sent = false;
  const ticked = /* @__PURE__ */ new Set();
  let field = null;
  let sureness = null;
  const unclear = node("p", { class: "lk-trouble pr-unclear", role: "alert" });
  const html = (tag, className, content) => {
    const element = node(tag, { class: className });
    element.innerHTML = content;
    return element;
  };
  const places = () => [...ticked].sort((a, b) => a - b);
  const ways = {
    NumberGuess: { value: () => field.value.trim(), complete: () => field.value.trim() !== "" },
    ChoiceGuess: { value: () => names()[places()[0]], complete: () => ticked.size === 1 },
    TickGuess: { value: () => places().map((place) => place + 1), complete: () => true }
  };
  const way = () => ways[numbers().form];
  const names = () => numbers().names;
  const buttons = () => [...root.querySelectorAll(".lk-choice")];
  function say(text) {
    unclear.textContent = text;
    spoken.say(text);
  }
  function submit(sure) {
    if (!way().complete()) say(`First your guess: ${numbers().how}.`);
    else if (!sent) {
      sent = true;
      line.ask({ do: "guess", value: way().value(), sure });
    }
  }
  function goOn() {
    if (way().complete()) sureness.querySelectorAll("button")[1].focus();
    else say(`First your guess: ${numbers().how}.`);
  }
  function choose(place) {
    if (numbers().form === "ChoiceGuess") {
      ticked.clear();
      ticked.add(place);
    } else if (!ticked.delete(place)) ticked.add(place);
    buttons().forEach((element, i) => element.setAttribute("aria-pressed", String(ticked.has(i))));
    buttons()[place].focus();
  }
  function asking(view) {
    const parts = [];
    field = null;
    if (view.form === "NumberGuess") {
      field = control("input", { type: "text", autocomplete: "off", spellcheck: "false", "aria-description": view.how });
      parts.push(node("div", { class: "lk-controls" }, labelled(view.unit ? `Your guess, in ${view.unit}` : "Your guess", field)));
    } else {
      parts.push(node(
        "div",
        { class: "lk-choices", role: "group", "aria-label": "Your guess" },
        ...view.choices.map((choice, i) => {
          const element = button("", { class: "lk-button lk-choice", "aria-pressed": "false" }, () => choose(i));
          element.append(node("kbd", {}, String(i + 1)), html("span", "lk-text", choice));
          return element;
        })
      ));
    }
    sureness = node(
      "div",
      { class: "lk-buttons lk-sure pr-sure", role: "group", "aria-label": "How sure?" },
      node("span", {}, "How sure?"),
      ...view.sureness.map((name, i) => {
        const element = button("", { class: "lk-button" }, () => submit(i + 1));
        element.append(node("kbd", {}, String(i + 1)), ` ${name}`);
        return element;
      })
    );
    const show = button("Show me", { class: "lk-button" }, () => line.ask({ do: "show" }));
    const keys = view.form === "NumberGuess" ? "Type a number, then Enter" : view.form === "ChoiceGuess" ? "A number chooses, then Enter" : "Numbers tick, then Enter";
    parts.push(
      sureness,
      unclear,
      node("div", { class: "lk-buttons" }, show),
      node("p", { class: "lk-keys" }, `${keys}; then 1, 2 or 3 says how sure you are.`)
    );
    return parts;
  }
  function answered(view) {
    const mark = view.correct === null ? "none" : String(view.correct);
    const parts = [];
    if (view.form === "TickGuess") parts.push(node("ol", {}, ...view.choices.map((choice) => html("li", "", choice))));
    parts.push(node("p", { class: "lk-verdict", "data-correct": mark }, view.said));
    if (view.reasons.length) parts.push(node("ul", { class: "lk-list" }, ...view.reasons.map((reason) => html("li", "", reason))));
    parts.push(html("div", "lk-rich pr-explanation", view.explanation));
    return parts;
  }
  function accept(view) {
    sent = false;
    if (shown === view.state) {
      unclear.textContent = view.unclear;
      if (view.unclear) {
        spoken.say(view.unclear);
        (field ?? root).focus();
      }
      return;
    }
    const focused = root.contains(document.activeElement);
    const parts = [html("div", "lk-rich pr-question", view.question), ...view.state === "asking" ? asking(view) : answered(view)];
    if (view.trouble) parts.push(node("p", { class: "lk-trouble", role: "alert" }, view.trouble));
    root.replaceChildren(...parts, spoken.element);
    root.dataset.state = view.state;
    if (focused) root.focus({ preventScroll: true });
    if (shown) spoken.say([...root.querySelectorAll(".lk-verdict, .lk-list")].map((element) => element.textContent.trim()).join(" "));
    shown = view.state;
  }
  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation();
    if (shown !== "asking") return;
    const { target } = event;
    const digit = /^[1-9]$/.test(event.key) ? Number(event.key) : 0;
    const choosing = target.closest(".lk-choice");
    if (sureness.contains(target)) {
      if (digit === 0 || digit > 3) return;
      submit(digit);
    } else if (event.key === "Enter" && (target === root || target === field || choosing)) {
      if (choosing && numbers().form === "ChoiceGuess") choose(buttons().indexOf(choosing));
      goOn();
    } else if (target === field) return;
    else if (field && event.key.length === 1 && event.key !== " ") {
      field.focus();
      return;
    } else if (digit && digit <= buttons().length) choose(digit - 1);
    else return;
    event.preventDefault();
  }
  root.addEventListener("keydown", key);
  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    spoken.stop();
  };
}
var widget_prediction_default = { render };
export {
  widget_prediction_default as default
};
//# sourceMappingURL=widget_prediction.bundle.js.map
