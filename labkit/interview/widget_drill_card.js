// Shows what Python says (`numbers`) and sends what was answered. A card's name goes with each
// request, so that a key pressed twice does not answer the next card.

import { announcer, button, control, node, wire } from "labkit/elements";
import "./widget_drill_card.css";

// The word for what the keys of a list do, by the card's form.
const KEYS = { choice: "choose keys", select: "tick keys", order: "order keys" };

function render({ model, el }) {
  const root = control("div", { class: "lk dc", role: "group", tabindex: "0" });
  const spoken = announcer();
  let shown = null; // card and state that stand on the page
  let chosen = new Set();
  let order = [];
  let fields = [];
  let hinting = null; // the button that asks for a hint
  let sure = 2;

  const line = wire(model);
  const { numbers } = line;
  const words = () => numbers().words;
  const ask = (act, value) => line.ask({ do: act, card: numbers().card, value, sure });
  const html = (tag, className, content) => {
    const element = node(tag, { class: className });
    element.innerHTML = content; // Python's, from the bank, with raw HTML escaped
    return element;
  };

  function value() {
    const form = numbers().form;
    if (form === "choice") return [...chosen][0] ?? null;
    if (form === "select") return [...chosen];
    if (form === "order") return order.length === numbers().choices.length ? order : null;
    if (form === "match" || form === "numeric") return fields.map((field) => field.value);
    return fields[0]?.value ?? null;
  }
  function complete() {
    const given = value();
    return Array.isArray(given) ? given.length > 0 && given.every((part) => part !== "") : Boolean(given?.trim?.() ?? given);
  }
  function submit() {
    if (complete()) ask("answer", value());
    else say(words().incomplete);
  }
  function say(why) {
    unclear.textContent = why;
    if (why) spoken.say(why);
  }

  function choose(key) {
    const { form } = numbers();
    if (form === "order") order = order.includes(key) ? order.filter((k) => k !== key) : [...order, key];
    else if (form === "choice") chosen = new Set([key]);
    else if (!chosen.delete(key)) chosen.add(key);
    mark();
  }
  function mark() {
    const { form } = numbers();
    say("");
    root.querySelectorAll(".lk-choice").forEach((element) => {
      const key = element.dataset.key;
      const on = form === "order" ? order.includes(key) : chosen.has(key);
      element.setAttribute("aria-pressed", String(on));
      element.querySelector(".dc-place").textContent = form === "order" && on ? `${order.indexOf(key) + 1}.` : "";
    });
  }

  function choices(view) {
    const names = namesOf(view);
    return node("div", { class: "lk-choices", role: "group", "aria-label": view.how },
      ...view.choices.map((choice, i) => {
        const element = button("", { class: "lk-button lk-choice", "aria-pressed": "false", "data-key": choice.key },
          () => choose(choice.key));
        element.append(node("kbd", {}, names[i]), " ", node("span", { class: "dc-place" }), html("span", "lk-text", choice.html));
        return element;
      }));
  }
  // What each of the card's choices is called, and is chosen by.
  function namesOf({ form, choices: list }) {
    return [...(form === "order" || form === "match" ? "abcdefghij" : "123456789")].slice(0, list.length);
  }
  function rights(view) {
    return node("ol", { class: "dc-rights", type: "a" }, ...view.choices.map((choice) => html("li", "", choice.html)));
  }
  // What the card listed, each with what became of it: in words, the colour only points at them.
  function noted(list, names, notes) {
    return node("ul", { class: "lk-choices dc-noted" }, ...list.map((content, i) => {
      const { said, right } = notes[i];
      const text = html("span", "lk-text", content);
      return node("li", { "data-right": String(right) }, node("kbd", {}, names[i]), " ", text, " ", node("b", {}, said));
    }));
  }
  // What was answered: the card's list, marked, or what was typed.
  function given(view) {
    const places = (list) => list.map((_, i) => String(i + 1));
    if (view.form === "match") return [rights(view), noted(view.lefts, places(view.lefts), view.notes)];
    if (view.choices.length) return [noted(view.choices.map((choice) => choice.html), namesOf(view), view.notes)];
    if (view.notes.length) return [noted(view.rubric, places(view.rubric), view.notes)];
    if (view.program) {
      return [node("p", {}, node("b", {}, words().code)), node("div", { class: "lk-rich" }, node("pre", {}, view.program))];
    }
    return view.given ? [node("p", { class: "dc-given" }, node("b", {}, `${words().given}: `), view.given)] : [];
  }
  function field(tag, label, attributes = {}) {
    const element = control(tag, { "aria-label": label, autocomplete: "off", spellcheck: "false", ...attributes });
    fields.push(element);
    return element;
  }

  function asking(view) {
    const parts = [];
    fields = [];
    if (["choice", "select", "order"].includes(view.form)) parts.push(choices(view));
    else if (view.form === "match") {
      parts.push(rights(view), node("div", { class: "dc-lefts" }, ...view.lefts.map((left, i) => {
        const select = field("select", `${i + 1}`);
        select.append(node("option", { value: "" }, "…"),
          ...view.choices.map((c, j) => node("option", { value: c.key }, namesOf(view)[j])));
        return node("label", {}, select, html("span", "", left));
      })));
    } else if (view.form === "numeric") {
      parts.push(node("div", { class: "dc-parts" }, ...view.parts.map((part) => node("label", {},
        html("span", "", part.label), field("input", `${part.label.replace(/<[^>]*>/g, "")} ${part.unit}`.trim() || view.how, { type: "text" }),
        node("span", {}, part.unit)))));
    } else if (view.form === "code") {
      const area = field("textarea", words().code, { rows: "12", cols: "80" });
      area.value = view.stub;
      parts.push(area);
    } else if (view.form === "free") parts.push(field("input", words().speech, { type: "text", class: "dc-speech", placeholder: words().speech }));
    else parts.push(field("input", view.how, { type: "text", placeholder: view.how }));

    const certainty = node("div", { class: "lk-buttons lk-sure dc-sure", role: "radiogroup", "aria-label": words().sure },
      node("span", {}, words().sure), ...words().sureness.map((word, i) => {
        const element = button(word, { class: "lk-button", role: "radio", "aria-checked": String(sure === i + 1) }, () => {
          sure = i + 1;
          certainty.querySelectorAll("[role=radio]").forEach((other, j) => other.setAttribute("aria-checked", String(j === i)));
        });
        return element;
      }));
    const buttons = [button(words().submit, { class: "lk-button lk-main" }, submit)];
    hinting = button(words().hint, { class: "lk-button" }, () => ask("hint"));
    if (view.more_hints) buttons.push(hinting);
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
      return node("label", { class: "dc-point" }, box, node("kbd", {}, String(i + 1)), html("span", "", point));
    });
    return [node("blockquote", {}, view.speech), node("h4", {}, words().model), html("div", "lk-rich", view.model),
      node("p", {}, words().tick), node("div", { class: "dc-points" }, ...boxes),
      node("div", { class: "lk-buttons" }, button(words().submit, { class: "lk-button lk-main" }, tick))];
  }
  function tick() {
    ask("tick", fields.flatMap((box, i) => (box.checked ? [i + 1] : [])));
  }

  function answered(view) {
    const correct = view.mark ? String(view.correct) : "unmarked";
    const parts = [...given(view), node("p", { class: "lk-verdict", "data-correct": correct }, view.verdict)];
    if (view.said) parts.push(html("p", "dc-said", view.said));
    if (view.form !== "choice" && view.form !== "select") // whose right options are marked
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
      // A hint or an unclear answer: what was typed and chosen stays.
      hints.replaceChildren(...view.hints.map((hint) => html("li", "", hint)));
      say(view.unclear);
      if (!view.unclear && view.hints.length) spoken.say(hints.lastChild.textContent);
      if (!view.more_hints && root.contains(hinting)) {
        if (document.activeElement === hinting) (fields[0] ?? root).focus();
        hinting.remove();
      }
      help.replaceChildren(...keysInWords());
      return;
    }
    const focused = root.contains(document.activeElement);
    shown = { name, words: view.words.submit };
    chosen = new Set();
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
      help.replaceChildren(...keysInWords());
      parts.push(...body, hints, unclear, help);
    }
    root.replaceChildren(...parts, spoken.element);
    root.setAttribute("aria-label", `DrillCard ${view.where}`);
    Object.assign(root.dataset, { card: view.card, state: view.state, form: view.form ?? "" });
    if (focused || view.seq > 0) (view.state === "asking" && fields[0] ? fields[0] : root).focus({ preventScroll: view.seq === 0 });
    const heard = view.state === "answered"
      ? [".lk-verdict", ".dc-said", ".dc-noted li:not([data-right=null])", ".dc-right"]
      : [".dc-introduction, .dc-prompt, blockquote, .lk-choice, .dc-report"];
    const elements = heard.flatMap((selector) => [...root.querySelectorAll(selector)]);
    spoken.say(elements.map((element) => element.textContent.trim()).join(". "));
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
  const help = node("p", { class: "lk-keys" });

  // What keys do now: their names, a word for it, and the act, unless the browser has one. An act
  // takes the place of its key among the names. Help and handler both go by this list, so that no
  // key is named that does nothing.
  function keys() {
    const view = numbers(), said = words();
    if (view.state === "answered") return [{ names: ["Enter"], said: said["next key"], act: () => ask("next") }];
    if (view.state === "ticking") {
      const names = fields.map((_, i) => String(i + 1));
      return [
        { names, said: said["tick keys"], act: (place) => fields[place].click() },
        { names: ["Enter"], said: said["answer key"], act: tick },
      ];
    }
    if (view.state !== "asking") return [];
    const names = namesOf(view);
    const found = [];
    if (view.form === "match") found.push({ names, said: said["match keys"], act: pair });
    else if (names.length) found.push({ names, said: said[KEYS[view.form]], act: (place) => choose(view.choices[place].key) });
    if (fields.length > 1) found.push({ names: ["Tab"], said: said["tab key"] });
    found.push({ names: [view.form === "code" ? "Shift+Enter" : "Enter"], said: said["answer key"], act: submit });
    // In a field h is a letter, and so it is where it names an item.
    const free = !fields.length && !names.includes("h");
    if (view.more_hints && free) found.push({ names: ["h"], said: said["hint key"], act: () => ask("hint") });
    return found;
  }
  function pair(place) {
    const select = fields.includes(document.activeElement) ? document.activeElement : fields[0];
    select.selectedIndex = place + 1; // after the empty one
    select.focus();
    say("");
  }
  function keysInWords() {
    const { to, comma } = words();
    return keys().flatMap(({ names, said }, i) => {
      const ends = names.length > 1 ? [names[0], names.at(-1)] : names;
      const named = ends.flatMap((name, j) => [...(j ? [` ${to} `] : []), node("kbd", {}, name)]);
      return [...(i ? [comma] : []), ...named, ` ${said}`];
    });
  }

  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation(); // nothing reaches JupyterLab's command mode
    const { target } = event;
    if (event.key === "Enter") {
      const own = target.matches("textarea") && !event.shiftKey; // a new line
      if (own || target.matches("summary, button:not(.lk-choice):not(.lk-main)")) return;
    } else if (target.matches("input:not([type=checkbox]), textarea")) return;
    const names = event.key === "Enter" ? ["Enter", "Shift+Enter"] : [event.key];
    const found = keys().find((each) => each.act && each.names.some((name) => names.includes(name)));
    if (found) found.act(found.names.indexOf(event.key));
    else {
      // What is typed on the card is meant for its field.
      const typed = numbers().state === "asking" && event.key.length === 1 && event.key !== " ";
      if (typed && fields.length && !fields.includes(target)) fields[0].focus();
      return;
    }
    event.preventDefault();
  }
  root.addEventListener("keydown", key);
  root.addEventListener("input", () => say(""));
  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    spoken.stop();
  };
}

export default { render };
