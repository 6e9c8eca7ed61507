// Bundled by `python -m labkit build` from ../labs/engine/elements.css ../labs/engine/elements.js widget_drill_card.css widget_drill_card.js, sha256 dfb32fd2019b727ac9e5f265cbfeb06c7bcc6faf86bb07227713ef1767615229

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

// interview/widget_drill_card.js
function render({ model, el }) {
  const root = control("div", { class: "lk dc", role: "group", tabindex: "0" });
  const spoken = announcer();
  let shown = null;
  let chosen = /* @__PURE__ */ new Set();
  let order = [];
  let fields = [];
  let sure = 2;
  const line = wire(model);
  const { numbers } = line;
  const words = () => numbers().words;
  const ask = (act, value2) => line.ask({ do: act, card: numbers().card, value: value2, sure });
  const html = (tag, className, content) => {
    const element = node(tag, { class: className });
    element.innerHTML = content;
    return element;
  };
  function value() {
    const form = numbers().form;
    if (form === "choice") return [...chosen][0] ?? null;
    if (form === "select") return [...chosen];
    if (form === "order") return order.length === numbers().choices.length ? order : null;
    if (form === "match" || form === "numeric") return fields.map((field2) => field2.value);
    return fields[0]?.value ?? null;
  }
  function complete() {
    const given = value();
    return Array.isArray(given) ? given.length > 0 && given.every((part) => part !== "") : Boolean(given?.trim?.() ?? given);
  }
  function submit() {
    if (complete()) ask("answer", value());
    else spoken.say(numbers().how);
  }
  function choose(key2) {
    const { form } = numbers();
    if (form === "order") order = order.includes(key2) ? order.filter((k) => k !== key2) : [...order, key2];
    else if (form === "choice") chosen = /* @__PURE__ */ new Set([key2]);
    else if (!chosen.delete(key2)) chosen.add(key2);
    mark();
  }
  function mark() {
    const { form } = numbers();
    root.querySelectorAll(".lk-choice").forEach((element) => {
      const key2 = element.dataset.key;
      const on = form === "order" ? order.includes(key2) : chosen.has(key2);
      element.setAttribute("aria-pressed", String(on));
      element.querySelector(".dc-place").textContent = form === "order" && on ? `${order.indexOf(key2) + 1}.` : "";
    });
  }
  function choices(list, letters) {
    return node(
      "div",
      { class: "lk-choices", role: "group", "aria-label": numbers().how },
      ...list.map((choice, i) => {
        const name = letters ? "abcdefghij"[i] : String(i + 1);
        const element = button(
          "",
          { class: "lk-button lk-choice", "aria-pressed": "false", "data-key": choice.key },
          () => choose(choice.key)
        );
        element.append(node("kbd", {}, name), node("span", { class: "dc-place" }), html("span", "lk-text", choice.html));
        return element;
      })
    );
  }
  function field(tag, label, attributes = {}) {
    const element = control(tag, { "aria-label": label, autocomplete: "off", spellcheck: "false", ...attributes });
    fields.push(element);
    return element;
  }
  function asking(view) {
    const parts = [];
    fields = [];
    if (view.form === "choice" || view.form === "select") parts.push(choices(view.choices, false));
    else if (view.form === "order") parts.push(choices(view.choices, true));
    else if (view.form === "match") {
      parts.push(node("ol", { class: "dc-rights", type: "a" }, ...view.choices.map((c) => html("li", "", c.html))));
      parts.push(node("div", { class: "dc-lefts" }, ...view.lefts.map((left, i) => {
        const select = field("select", `${i + 1}`);
        select.append(
          node("option", { value: "" }, "…"),
          ...view.choices.map((c, j) => node("option", { value: c.key }, "abcdefghij"[j]))
        );
        return node("label", {}, select, html("span", "", left));
      })));
    } else if (view.form === "numeric") {
      parts.push(node("div", { class: "dc-parts" }, ...view.parts.map((part) => node(
        "label",
        {},
        html("span", "", part.label),
        field("input", `${part.label.replace(/<[^>]*>/g, "")} ${part.unit}`.trim() || view.how, { type: "text" }),
        node("span", {}, part.unit)
      ))));
    } else if (view.form === "code") {
      const area = field("textarea", words().code, { rows: "12", cols: "80" });
      area.value = view.stub;
      parts.push(area);
    } else if (view.form === "free") parts.push(field("input", words().speech, { type: "text", class: "dc-speech", placeholder: words().speech }));
    else parts.push(field("input", view.how, { type: "text", placeholder: view.how }));
    const certainty = node(
      "div",
      { class: "lk-buttons lk-sure dc-sure", role: "radiogroup", "aria-label": words().sure },
      node("span", {}, words().sure),
      ...words().sureness.map((word, i) => {
        const element = button(word, { class: "lk-button", role: "radio", "aria-checked": String(sure === i + 1) }, () => {
          sure = i + 1;
          certainty.querySelectorAll("[role=radio]").forEach((other, j) => other.setAttribute("aria-checked", String(j === i)));
        });
        return element;
      })
    );
    const buttons = [button(words().submit, { class: "lk-button lk-main" }, submit)];
    if (view.more_hints) buttons.push(button(words().hint, { class: "lk-button" }, () => ask("hint")));
    buttons.push(button(words().unknown, { class: "lk-button" }, () => ask("answer", null)));
    if (view.form !== "free") parts.push(certainty);
    parts.push(node("div", { class: "lk-buttons" }, ...buttons));
    return parts;
  }
  function ticking(view) {
    fields = [];
    const boxes = view.rubric.map((point, i) => {
      const box = control("input", { type: "checkbox", id: `dc-point-${i}` });
      fields.push(box);
      return node("label", { class: "dc-point" }, box, html("span", "", point));
    });
    return [
      node("blockquote", {}, view.speech),
      node("h4", {}, words().model),
      html("div", "lk-rich", view.model),
      node("p", {}, words().tick),
      node("div", { class: "dc-points" }, ...boxes),
      node("div", { class: "lk-buttons" }, button(words().submit, { class: "lk-button lk-main" }, tick))
    ];
  }
  function tick() {
    ask("tick", fields.flatMap((box, i) => box.checked ? [i + 1] : []));
  }
  function answered(view) {
    const correct = view.mark ? String(view.correct) : "unmarked";
    const parts = [node("p", { class: "lk-verdict", "data-correct": correct }, view.verdict)];
    if (view.said) parts.push(html("p", "dc-said", view.said));
    parts.push(node("div", { class: "dc-right" }, node("b", {}, `${view.label}: `), html("span", "", view.right)));
    parts.push(html("div", "lk-rich", view.explanation));
    if (view.again) parts.push(html("p", "dc-again", view.again));
    if (view.cell) {
      parts.push(node("details", {}, control("summary", {}, words().see), html("div", "", view.cell)));
    }
    if (view.sources.length) parts.push(node("p", { class: "dc-sources" }, view.sources.join(" · ")));
    parts.push(node("div", { class: "lk-buttons" }, button(words().next, { class: "lk-button lk-main" }, () => ask("next"))));
    return parts;
  }
  function accept(view) {
    const name = `${view.card} ${view.state}`;
    const same = shown?.name === name && shown.words === view.words.submit;
    if (same) {
      hints.replaceChildren(...view.hints.map((hint) => html("li", "", hint)));
      unclear.textContent = view.unclear;
      if (view.unclear) spoken.say(view.unclear);
      else if (view.hints.length) spoken.say(hints.lastChild.textContent);
      return;
    }
    const focused = root.contains(document.activeElement);
    shown = { name, words: view.words.submit };
    chosen = /* @__PURE__ */ new Set();
    order = [];
    sure = 2;
    unclear.textContent = view.unclear;
    const parts = [node("div", { class: "dc-head" }, node("span", {}, view.where), languages(view))];
    if (view.trouble) parts.push(node("p", { class: "lk-trouble", role: "alert" }, view.trouble));
    if (view.state === "done") parts.push(html("div", "lk-rich dc-report", view.report));
    else {
      if (view.introduction) parts.push(node("p", { class: "dc-introduction" }, view.introduction));
      parts.push(html("div", "lk-rich dc-prompt", view.prompt));
      if (view.claim) parts.push(html("blockquote", "", view.claim));
      if (view.code) parts.push(html("div", "", view.code));
      hints.replaceChildren(...view.hints.map((hint) => html("li", "", hint)));
      const body = { asking, ticking, answered }[view.state](view);
      parts.push(...body, hints, unclear, node("p", { class: "lk-keys" }, words()["card keys"]));
    }
    root.replaceChildren(...parts, spoken.element);
    root.setAttribute("aria-label", `DrillCard ${view.where}`);
    Object.assign(root.dataset, { card: view.card, state: view.state, form: view.form ?? "" });
    if (focused || view.seq > 0) (view.state === "asking" && fields[0] ? fields[0] : root).focus({ preventScroll: view.seq === 0 });
    const heard = view.state === "answered" ? ".lk-verdict, .dc-said, .dc-right" : ".dc-introduction, .dc-prompt, blockquote, .lk-choice, .dc-report";
    spoken.say([...root.querySelectorAll(heard)].map((element) => element.textContent.trim()).join(". "));
  }
  function languages(view) {
    const current = model.get("language");
    const other = current === "en" ? "zh" : "en";
    return button(other === "zh" ? "中文" : "English", { class: "lk-button", lang: other }, () => {
      model.set("language", other);
      model.save_changes();
    });
  }
  const hints = node("ul", { class: "lk-list" });
  const unclear = node("p", { class: "lk-trouble dc-unclear", role: "alert" });
  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation();
    const typing = event.target.matches("input:not([type=checkbox]), textarea, select");
    const { state, form, choices: list } = numbers();
    if (event.key === "Enter" && !event.target.matches("textarea, summary") && !event.target.matches("button:not(.lk-choice):not(.lk-main)")) {
      if (state === "asking") submit();
      else if (state === "ticking") tick();
      else if (state === "answered") ask("next");
    } else if (event.key === "Enter" && event.shiftKey && event.target.matches("textarea")) submit();
    else if (typing) return;
    else if (state === "asking" && event.key === "h") ask("hint");
    else if (state === "asking" && (form === "choice" || form === "select") && list[Number(event.key) - 1]) choose(list[Number(event.key) - 1].key);
    else if (state === "asking" && form === "order" && list["abcdefghij".indexOf(event.key)] && event.key.length === 1) choose(list["abcdefghij".indexOf(event.key)].key);
    else if (state === "ticking" && fields[Number(event.key) - 1]) fields[Number(event.key) - 1].click();
    else if (state === "asking" && fields[0] && event.key.length === 1) {
      fields[0].focus();
      return;
    } else return;
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
var widget_drill_card_default = { render };
export {
  widget_drill_card_default as default
};
//# sourceMappingURL=widget_drill_card.bundle.js.map
