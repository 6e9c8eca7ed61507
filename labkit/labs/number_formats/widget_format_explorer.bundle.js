// Bundled by `python -m labkit build` from ../engine/elements.css ../engine/elements.js widget_format_explorer.css widget_format_explorer.js, sha256 c7c4907fc56a36a5aa196adb5d0d7ebb8188e0b5780e0492609a9faa15678cd1

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

// labs/number_formats/widget_format_explorer.js
function placeOf(code, layout) {
  const negative = layout.signed && code >= layout.sign_weight;
  const k = negative ? code - layout.sign_weight : code;
  if (k > layout.k_max || negative && k === 0 && !layout.negative_zero) return null;
  return negative ? -k : k;
}
function nextCode(code, direction, layout) {
  const k = placeOf(code, layout);
  if (k === null || k + direction > layout.k_max || k + direction < layout.k_min) return code;
  const to = k + direction;
  const negative = to < 0 || to === 0 && k < 0 && layout.negative_zero;
  return Math.abs(to) + (negative ? layout.sign_weight : 0);
}
function position(k, layout) {
  if (k < 0 && layout.signed) return -position(-k, layout);
  const per_binade = 2 ** layout.mantissa_bits;
  const field = Math.floor(k / per_binade);
  const rest = k - field * per_binade;
  if (field === 0 && layout.has_zero) return rest * 2 ** (1 - layout.bias - layout.mantissa_bits);
  return (per_binade + rest) * 2 ** (field - layout.bias - layout.mantissa_bits);
}
function chooseView(view, k, layout) {
  const gap = (at) => Math.max(position(at + 1, layout) - position(at, layout), position(at, layout) - position(at - 1, layout));
  const moved = view && Math.abs(position(k, layout) - view.centre) / view.unit;
  const zoom = view && gap(k) / view.unit;
  if (view && view.format === layout.format_name && moved <= 2.1 && zoom > 0.6 && zoom < 1.1) return view;
  return { format: layout.format_name, centre: position(k, layout), unit: gap(k) };
}
var HALF_VIEW = 3.3;
function percent(at, view) {
  return 50 + (at - view.centre) / view.unit / HALF_VIEW * 50;
}
function mark(className, left, ...children) {
  const element = node("span", { class: className }, ...children);
  element.style.left = `${left}%`;
  return element;
}
function span(className, from, to, ...children) {
  const [left, right] = [Math.max(0, from), Math.min(100, to)];
  const element = mark(className, left, ...children);
  element.style.width = `${Math.max(0, right - left)}%`;
  return element;
}
function lineMarks(k, view, layout, line, fresh) {
  const at = (value) => percent(position(value, layout), view);
  const here = at(k);
  const [low, high] = [k > layout.k_min, k < layout.k_max];
  const marks = [];
  const from = low ? (at(k - 1) + here) / 2 : layout.signed ? 0 : here;
  const to = high ? (here + at(k + 1)) / 2 : layout.stays_at_max ? 100 : (here + at(k + 1)) / 2;
  const infinite = layout.has_inf && Math.abs(k) === layout.k_max;
  if (!infinite) marks.push(span("fe-band", from, to));
  const edge = (end, outward) => layout.has_inf ? at(end) : (at(end) + at(end + outward)) / 2;
  if (!layout.stays_at_max && edge(layout.k_max, 1) < 100)
    marks.push(span("fe-beyond", edge(layout.k_max, 1), 100, node("b", {}, layout.beyond_high)));
  if (edge(layout.k_min, -1) > 0 && !(layout.stays_at_max && layout.signed))
    marks.push(span("fe-beyond", 0, edge(layout.k_min, -1), node("b", {}, layout.beyond_low)));
  for (const outward of [-1, 1]) {
    for (let tick = k; tick >= layout.k_min && tick <= layout.k_max; tick += outward) {
      const left = at(tick);
      if (left < 0 || left > 100) break;
      if (tick === k && outward > 0) continue;
      const kind = layout.mantissa_bits && Math.abs(tick) % 2 ? "fe-tick fe-odd" : "fe-tick";
      const element = mark(kind, left);
      element.dataset.k = tick;
      marks.push(element);
      if (Math.abs(tick - k) > 40) break;
    }
    const neighbour = k + outward;
    if (neighbour < layout.k_min || neighbour > layout.k_max) continue;
    const other = at(neighbour);
    marks.push(mark("fe-neighbour", other, outward < 0 ? "◀" : "▶"));
    marks.push(mark("fe-midpoint", (here + other) / 2, "◇"));
    const gap = span("fe-gap fe-number", Math.min(here, other), Math.max(here, other));
    if (line) gap.append(node("i", {}, outward < 0 ? line.gap_below : line.gap_above));
    marks.push(gap);
  }
  const marker = mark("fe-marker", here, "▼");
  marker.dataset.k = k;
  const label = mark("fe-here fe-number", here, line ? line.here : "");
  label.style.transform = `translateX(-${here}%)`;
  marks.push(marker, label);
  if (fresh && line && line.x_part !== null) {
    const towards = at(k + Math.sign(line.x_part));
    const left = here + Math.abs(line.x_part) * (towards - here);
    const x = mark("fe-x-label", left, line.x_label);
    x.style.transform = `translateX(-${left}%)`;
    marks.push(mark("fe-x", left, "▲"), x);
  }
  return marks;
}
function table(caption, columns, rows) {
  const cells = (row) => columns.map(
    ([key, title], i) => node(i ? "td" : "th", { role: i ? "cell" : "rowheader", "data-title": title, ...i ? {} : { scope: "row" } }, row[key])
  );
  return node(
    "table",
    { role: "table" },
    node("caption", {}, caption),
    node("thead", { role: "rowgroup" }, node(
      "tr",
      { role: "row" },
      ...columns.map(([, title]) => node("th", { role: "columnheader", scope: "col" }, title))
    )),
    node("tbody", { role: "rowgroup" }, ...rows.map((row) => node("tr", { role: "row", class: `fe-row-${row.mark}`, ...row.current ? { "aria-current": "true" } : {} }, ...cells(row))))
  );
}
function render({ model, el }) {
  const line = wire(model);
  let numbers = line.numbers();
  let { code, layout } = numbers;
  let wish = { format_name: numbers.format_name, source: { text: numbers.text } };
  let fresh = true;
  let view = null;
  let active = 0;
  let waiting = [];
  let bits = [];
  const formatBox = control(
    "select",
    { class: "fe-format" },
    ...model.get("formats").map(([name, title]) => node("option", { value: name }, title))
  );
  const textBox = control("input", {
    type: "text",
    class: "fe-text",
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off"
  });
  const moves = [
    ["down", "− 1 ulp", "1 ulp down: to the next value below"],
    ["up", "+ 1 ulp", "1 ulp up: to the next value above"],
    ["halve", "÷ 2", "÷ 2: divide by two"],
    ["double", "× 2", "× 2: multiply by two"],
    ["negate", "negate", "negate: change the sign"]
  ].map(([name, label, spoken2]) => button(label, { class: `lk-button fe-move-${name}`, "aria-label": spoken2 }, () => move(name)));
  const message = node("div", { class: "fe-message", role: "status", "aria-live": "polite" });
  const spoken = announcer();
  const bitGroup = node("div", { class: "fe-bits", role: "group" });
  const facts = node("div", { class: "fe-facts fe-number" });
  const lineBox = node("div", { class: "fe-line", role: "img" });
  const caption = node("p", { class: "fe-caption" });
  const legend = node("dl", { class: "fe-legend fe-number" });
  const notes = node("div", { class: "fe-notes fe-number" });
  const [modes, formats] = ["Every rounding of x", "x in every format"].map((title) => ({
    box: node("div", { class: "fe-number" }),
    title
  }));
  const tables = node("div", { class: "fe-tables" }, ...[modes, formats].map(({ title, box }) => node("details", {}, control("summary", {}, title), box)));
  const root = node(
    "div",
    { class: "lk fe", role: "group", "aria-label": "FormatExplorer" },
    node(
      "div",
      { class: "lk-controls" },
      labelled("Format", formatBox),
      node("label", { class: "fe-grow" }, node("span", {}, "Value x"), textBox),
      node("div", { class: "lk-buttons", role: "group", "aria-label": "Change the value" }, ...moves)
    ),
    message,
    bitGroup,
    node(
      "p",
      { class: "lk-keys" },
      "Keys on the bits: ",
      ...[["←", "→"], ["Space"], ["↑", "↓"], ["Home", "End"]].flatMap((keys, i) => [
        ...keys.map((key) => node("kbd", {}, key)),
        [" move · ", " toggles · ", " one ulp up or down · ", " first or last bit. In the value field Enter applies."][i]
      ])
    ),
    facts,
    lineBox,
    caption,
    legend,
    notes,
    tables,
    spoken.element
  );
  const numberBoxes = [facts, legend, notes, modes.box, formats.box];
  function ask(change) {
    wish = { ...wish, ...change };
    line.ask(wish);
    setFresh(false);
  }
  function go(next) {
    if (next === code) return;
    code = next;
    ask({ source: { code, format_name: layout.format_name } });
    drawBits();
    drawLine();
  }
  function move(name) {
    if (name === "up" || name === "down") return go(nextCode(code, name === "up" ? 1 : -1, layout));
    if (!fresh) return waiting.push(name);
    const next = numbers.moves[name];
    if (next === null) message.textContent = numbers.refusals[name];
    else go(next);
  }
  function weight(i) {
    return 2 ** (bits.length - 1 - i);
  }
  function isSet(i) {
    return Math.floor(code / weight(i)) % 2 === 1;
  }
  function toggle(i) {
    go(code + (isSet(i) ? -weight(i) : weight(i)));
  }
  function focusBit(i) {
    active = Math.max(0, Math.min(bits.length - 1, i));
    bits.forEach((bit, j) => bit.setAttribute("tabindex", j === active ? "0" : "-1"));
    bits[active].focus();
  }
  bitGroup.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const does = {
      ArrowLeft: () => focusBit(active - 1),
      ArrowRight: () => focusBit(active + 1),
      Home: () => focusBit(0),
      End: () => focusBit(bits.length - 1),
      ArrowUp: () => move("up"),
      ArrowDown: () => move("down")
    }[event.key];
    if (!does) return;
    event.preventDefault();
    event.stopPropagation();
    does();
  });
  formatBox.addEventListener("change", () => ask({ format_name: formatBox.value }));
  const applyText = () => {
    if (textBox.value !== textBox.dataset.applied) {
      textBox.dataset.applied = textBox.value;
      ask({ source: { text: textBox.value } });
    }
  };
  textBox.addEventListener("change", applyText);
  textBox.addEventListener("keydown", (event) => event.key === "Enter" && applyText());
  function setFresh(now) {
    fresh = now;
    root.classList.toggle("fe-waiting", !now);
    for (const box of numberBoxes) box.setAttribute("aria-busy", String(!now));
  }
  function buildBits() {
    const focused = bits.includes(document.activeElement);
    bits = layout.bits.map(({ name }, i) => {
      const bit = button(
        "",
        { class: `fe-bit fe-${layout.bits[i].field}`, "aria-label": name, title: name, tabindex: "-1" },
        () => toggle(i)
      );
      bit.addEventListener("focus", () => {
        if (active !== i) focusBit(i);
      });
      return bit;
    });
    bitGroup.setAttribute("aria-label", layout.bits_label);
    caption.textContent = layout.caption;
    bitGroup.replaceChildren(...layout.fields.map(({ field, title }) => node(
      "div",
      { class: `fe-field fe-${field}`, role: "group", "aria-label": title },
      node("span", { class: "fe-field-title" }, title),
      node("div", { class: "fe-field-bits" }, ...bits.filter((_, i) => layout.bits[i].field === field)),
      node("span", { class: "fe-field-value fe-number" })
    )));
    active = Math.min(active, bits.length - 1);
    bits[active].setAttribute("tabindex", "0");
    if (focused) bits[active].focus();
  }
  function drawBits() {
    bits.forEach((bit, i) => {
      bit.textContent = isSet(i) ? "1" : "0";
      bit.setAttribute("aria-pressed", String(isSet(i)));
    });
  }
  function drawLine() {
    const k = placeOf(code, layout);
    if (k === null) {
      lineBox.replaceChildren(node("span", { class: "fe-no-place" }, layout.nan_sentence));
      view = null;
      return;
    }
    view = chooseView(view, k, layout);
    lineBox.replaceChildren(node("span", { class: "fe-axis" }), ...lineMarks(k, view, layout, numbers.line, fresh));
  }
  function drawNumbers() {
    layout.fields.forEach((_, i) => {
      bitGroup.children[i].lastChild.textContent = numbers.field_values[i];
    });
    const formula = node(
      "span",
      { class: "fe-formula" },
      ...numbers.formula.map(([kind, text]) => kind.endsWith("-power") ? node("sup", { class: `fe-part-${kind}` }, text) : node("span", { class: `fe-part-${kind}` }, text))
    );
    facts.replaceChildren(
      node(
        "div",
        { class: "fe-tags" },
        node("span", { class: "fe-kind" }, numbers.kind),
        node("span", {}, "code "),
        node("code", {}, numbers.hex)
      ),
      formula,
      node("div", { class: "fe-exact" }, node("span", { class: "fe-label" }, "exact value"), node("output", {}, numbers.exact))
    );
    lineBox.setAttribute("aria-label", numbers.line_sentence);
    legend.replaceChildren(...numbers.legend.map(({ sign, title, value, detail }) => node("div", {}, node("dt", {}, `${sign} ${title}`), node("dd", {}, value, node("small", {}, detail)))));
    notes.replaceChildren(...numbers.notes.map((text) => node("p", {}, text)));
    modes.box.replaceChildren(table(
      numbers.modes_title,
      [["name", "rounding"], ["value", "gives"], ["hex", "code"], ["ulps", "error, ulp"]],
      numbers.modes
    ));
    formats.box.replaceChildren(table(
      numbers.rows_title,
      [
        ["name", "format"],
        ["value", "nearest value"],
        ["hex", "code"],
        ["ulps", "error, ulp"],
        ["relative", "error, relative"],
        ["note", "what happened"]
      ],
      numbers.rows
    ));
    formatBox.value = numbers.format_name;
    message.textContent = numbers.message;
    textBox.setAttribute("aria-invalid", String(numbers.message !== ""));
    const typing = document.activeElement === textBox && textBox.value !== textBox.dataset.applied;
    if (!numbers.message && !typing) textBox.value = textBox.dataset.applied = numbers.text;
    spoken.say(numbers.spoken);
  }
  function accept(latest) {
    const other = latest.format_name !== layout.format_name || bits.length === 0;
    numbers = latest;
    ({ code, layout } = numbers);
    wish = { format_name: numbers.format_name, source: { text: numbers.text } };
    setFresh(true);
    if (other) buildBits();
    drawBits();
    drawLine();
    drawNumbers();
    if (waiting.length) move(waiting.shift());
  }
  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    spoken.stop();
  };
}
var widget_format_explorer_default = { render };
export {
  widget_format_explorer_default as default
};
//# sourceMappingURL=widget_format_explorer.bundle.js.map
