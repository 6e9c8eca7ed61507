// Bundled by `python -m labkit build` from ../engine/elements.css ../engine/elements.js widget_nan_detective.css widget_nan_detective.js, sha256 1f014da09bb99a52016710ae61dd7b5d4041779c93b4e5a6a2a74d945a786a67

// labs/engine/elements.js
function node(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}
function shape(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
function control(tag, attributes = {}, ...children) {
  return node(tag, { ...attributes, "data-lm-suppress-shortcuts": "true" }, ...children);
}
function button(label2, attributes, onClick) {
  const element = control("button", { type: "button", ...attributes }, label2);
  element.addEventListener("click", onClick);
  return element;
}
function cross(x2, y, r, className) {
  return shape("path", { class: className, d: `M${x2 - r} ${y - r}L${x2 + r} ${y + r}M${x2 - r} ${y + r}L${x2 + r} ${y - r}` });
}
function curve(points, className) {
  let pen = "M";
  const d = points.map((point) => {
    const piece = point ? `${pen}${point[0]} ${point[1]}` : "";
    pen = point ? "L" : "M";
    return piece;
  });
  return shape("path", { class: className, d: d.join("") });
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

// labs/detective/widget_nan_detective.js
var W = 400;
var LEFT = 44;
var INNER = W - LEFT - 10;
var x = (percent) => LEFT + percent / 100 * INNER;
var filled2 = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
var label = (x2, y, text, end = false) => shape("text", { class: end ? "nd-label nd-end" : "nd-label", x: x2, y }, text);
var KINDS = {
  line(picture, words) {
    const height = 110, y = (percent) => 8 + percent / 100 * (height - 8);
    const parts = [
      shape("path", { class: "nd-axis", d: `M${LEFT} 8V${height}H${W - 10}` }),
      label(LEFT - 4, 16, picture.top, true),
      label(LEFT - 4, height, picture.bottom, true),
      label(LEFT, height + 15, picture.start),
      label(W - 10, height + 15, picture.end, true)
    ];
    picture.curves.forEach(({ name, points, gap }, i) => {
      parts.push(curve(points.map((point) => point && [x(point[0]), y(point[1])]), `nd-curve nd-curve-${i}`));
      if (gap !== null) {
        parts.push(shape("line", { class: "nd-gap", x1: x(gap), x2: x(gap), y1: 8, y2: height }));
      }
      const top = height + 31 + 15 * i;
      parts.push(
        shape("path", { class: `nd-curve nd-curve-${i}`, d: `M${LEFT} ${top - 4}h24` }),
        label(LEFT + 30, top, gap === null ? name : `${name}${words["broken from"]}`)
      );
    });
    for (const [px, py] of picture.marks) parts.push(cross(x(px), y(py), 3, "nd-mark"));
    let bottom = height + 22 + 15 * picture.curves.length;
    if (picture.marks.length) {
      bottom += 15;
      parts.push(cross(LEFT + 12, bottom - 10, 3, "nd-mark"), label(LEFT + 30, bottom - 6, words["skipped step"]));
    }
    return [bottom, parts];
  },
  bars(picture) {
    const left = 150, inner = W - left - 10, x2 = (percent) => left + percent / 100 * inner;
    const bottom = 18 + 30 * picture.rows.length;
    const parts = picture.limits.flatMap(([at, word]) => [
      shape("line", { class: "nd-limit", x1: x2(at), x2: x2(at), y1: 16, y2: bottom }),
      shape("text", { class: "nd-label nd-middle", x: x2(at), y: 11 }, word)
    ]);
    picture.rows.forEach((row, i) => {
      const top = 20 + 30 * i;
      parts.push(
        label(left - 8, top + 11, row.label.replace("attention.", "att. ").replace("scores.", ""), true),
        label(left, top + 22, row.text)
      );
      if (row.span) parts.push(shape("rect", { class: "nd-bar", x: x2(row.span[0]), y: top + 2, width: Math.max(x2(row.span[1]) - x2(row.span[0]), 2), height: 8 }));
      else parts.push(shape("line", { class: "nd-axis", x1: left, x2: left + inner, y1: top + 6, y2: top + 6 }));
    });
    return [bottom + 4, parts];
  },
  histogram(picture, words) {
    const height = 96, [at, word] = picture.limit;
    const parts = picture.bars.map(([left, width, tall]) => shape("rect", {
      class: "nd-bar",
      x: x(left) + 0.5,
      width: Math.max(x(left + width) - x(left) - 1, 1),
      y: height - tall / 100 * (height - 20),
      height: tall / 100 * (height - 20)
    }));
    parts.push(
      shape("path", { class: "nd-axis", d: `M${LEFT} ${height}H${W - 10}` }),
      shape("line", { class: "nd-limit", x1: x(at), x2: x(at), y1: 16, y2: height }),
      shape("text", { class: "nd-label nd-middle", x: x(at), y: 11 }, word),
      label(LEFT, height + 15, picture.ends[0]),
      label(W - 10, height + 15, picture.ends[1], true),
      shape("text", { class: "nd-label nd-middle", x: x(50), y: height + 15 }, words["size of an update"])
    );
    return [height + 22, parts];
  },
  chain(picture) {
    const parts = picture.rows.flatMap((row, i) => {
      const y = 14 + 19 * i, state = picture.states[i];
      const line = i ? [shape("line", { class: "nd-axis", x1: 16, x2: 16, y1: y - 13, y2: y - 6 })] : [];
      const box = shape("rect", { class: `nd-box nd-${state}`, x: 10, y: y - 6, width: 12, height: 12 });
      const mark = state === "bad" ? [cross(16, y, 4, "nd-mark")] : [];
      return [...line, box, ...mark, shape("text", { class: state === "bad" ? "nd-label nd-strong" : "nd-label", x: 32, y: y + 4 }, row)];
    });
    return [14 + 19 * picture.rows.length, parts];
  },
  digits(picture) {
    const size = 9, wide = 8 * size + 24;
    const parts = picture.images.flatMap((image, n) => {
      const left = 6 + n % 4 * wide, top = 4 + Math.floor(n / 4) * (8 * size + 24);
      const cells = image.flatMap((row, i) => row.map((value, j) => value === null ? cross(left + (j + 0.5) * size, top + (i + 0.5) * size, 4, "nd-mark") : shape("rect", { class: "nd-pixel", x: left + j * size, y: top + i * size, width: size, height: size, "fill-opacity": value / 16 })));
      return [
        shape("rect", { class: "nd-frame", x: left, y: top, width: 8 * size, height: 8 * size }),
        ...cells,
        label(left, top + 8 * size + 14, picture.labels[n])
      ];
    });
    return [8 + 2 * (8 * size + 24), parts];
  }
};
function render({ model, el }) {
  const root = control("div", { class: "lk nd", role: "group", tabindex: "0" });
  const spoken = announcer();
  let suspect = null;
  let standing = null;
  const line = wire(model);
  const { numbers } = line;
  function request(act, value) {
    line.ask({ case: numbers().case, do: act, value });
    root.setAttribute("aria-busy", "true");
    const wait = numbers().words[act === "another" ? "next runs" : "measuring"];
    root.querySelector(".nd-left").textContent = wait;
    spoken.say(wait);
  }
  function ask(instrument) {
    if (instrument.asked) root.querySelector(`.nd-reading[data-id=${instrument.id}]`)?.focus();
    else if (!numbers().closed) request("ask", instrument.id);
  }
  function choose(id) {
    if (numbers().closed) return;
    suspect = id;
    root.querySelectorAll(".nd-suspect").forEach((each) => each.setAttribute("aria-checked", String(each.dataset.id === id)));
    root.querySelector(".nd-accuse").setAttribute("aria-disabled", "false");
  }
  function accuse() {
    if (suspect) request("accuse", suspect);
    else spoken.say(numbers().words["choose first"]);
  }
  function drawing(reading) {
    const [height, parts] = KINDS[reading.picture.kind](reading.picture, numbers().words);
    return shape("svg", { class: "nd-picture", viewBox: `0 0 ${W} ${height}`, role: "img", "aria-label": reading.text }, ...parts);
  }
  function card(reading, note) {
    return control(
      "section",
      { class: "nd-reading", tabindex: "-1", "data-id": reading.id, "aria-label": reading.name },
      node("h4", {}, reading.name, ...note ? [node("span", { class: "nd-note" }, note)] : []),
      node("p", {}, reading.text),
      drawing(reading)
    );
  }
  function verdict(view, words) {
    const parts = [node("p", { class: "lk-verdict", "data-correct": String(view.right) }, view.opening)];
    if (view.idea) parts.push(node("p", {}, node("b", {}, words.idea), view.idea));
    parts.push(
      node("p", {}, node("b", {}, words.sign), view.sign),
      node("p", {}, node("b", {}, words.repair), view.repair),
      node("h3", {}, view.bill),
      node("div", { class: "nd-readings" }, ...view.evidence.map((reading) => card(reading, words[reading.asked ? "you asked" : "you did not ask"]))),
      node(
        "details",
        {},
        control("summary", {}, words.others),
        node("ul", {}, ...view.against.map((each) => node("li", {}, each.sentence)))
      ),
      node("div", { class: "lk-buttons" }, button(words.another, { class: "lk-button lk-main" }, () => request("another")))
    );
    return node("div", { class: "nd-closing" }, ...parts);
  }
  function draw() {
    const view = numbers(), { words } = view;
    const parts = [
      node("div", { class: "nd-head" }, node("h3", {}, filled2(words.case, view)), node("span", { class: "nd-left" }, view.left_words)),
      node("p", { class: "nd-symptom" }, view.symptom)
    ];
    if (view.verdict) parts.push(verdict(view.verdict, words));
    else {
      parts.push(node(
        "p",
        { class: "lk-keys" },
        node("kbd", {}, "1"),
        words.to,
        node("kbd", {}, String(view.instruments.length)),
        words["keys ask"],
        node("kbd", {}, "a"),
        words.to,
        node("kbd", {}, "m"),
        words["keys choose"],
        node("kbd", {}, "Enter"),
        words["keys accuse"]
      ));
      parts.push(node("h4", {}, words.instruments), node(
        "div",
        { class: "nd-instruments", role: "group", "aria-label": words.instruments },
        ...view.instruments.map((each, i) => {
          const price = filled2(words.price, each);
          const name = filled2(each.asked ? words.asked : words.priced, each);
          const element = button("", {
            class: "lk-button lk-choice nd-instrument",
            "data-id": each.id,
            "aria-label": name,
            "aria-disabled": String(!each.payable && !each.asked),
            "data-asked": String(each.asked)
          }, () => ask(each));
          element.append(node("kbd", {}, String(i + 1)), node("span", {}, node("b", {}, each.name, each.asked ? " ✓" : ""), node("small", {}, each.tells), node("small", { class: "nd-price" }, price)));
          return element;
        })
      ));
    }
    if (view.trouble) parts.push(node("p", { class: "lk-trouble", role: "alert" }, view.trouble));
    const shown = new Set(view.verdict?.evidence.map((reading) => reading.id));
    const readings = view.readings.filter((reading) => !shown.has(reading.id));
    if (readings.length) {
      parts.push(
        node("h4", {}, view.verdict ? words.besides : words.readings),
        node("div", { class: "nd-readings nd-asked" }, ...readings.map((reading) => card(reading)))
      );
    }
    if (!view.verdict) {
      parts.push(
        node("h4", {}, words.suspects),
        node(
          "div",
          { class: "nd-suspects", role: "radiogroup", "aria-label": words.suspects },
          ...view.suspects.map((each, i) => {
            const element = button("", {
              class: "lk-button lk-choice nd-suspect",
              role: "radio",
              "aria-checked": String(each.id === suspect),
              "data-id": each.id,
              "aria-label": each.name
            }, () => choose(each.id));
            element.append(node("kbd", {}, "abcdefghijklm"[i]), node("span", {}, each.name));
            return element;
          })
        ),
        node("div", { class: "lk-buttons" }, button(words.accuse, { class: "lk-button lk-main nd-accuse", "aria-disabled": String(!suspect) }, accuse))
      );
    }
    root.replaceChildren(...parts, spoken.element);
    root.setAttribute("aria-label", filled2(words.title, view));
    root.setAttribute("lang", view.language);
    Object.assign(root.dataset, { case: view.case, left: view.left, closed: String(view.closed) });
  }
  function accept(view) {
    root.setAttribute("aria-busy", "false");
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset : null;
    const [id, isSuspect] = [focused?.id, document.activeElement?.classList.contains("nd-suspect")];
    const fresh = standing !== view.case;
    if (fresh) suspect = null;
    standing = view.case;
    draw();
    if (focused) {
      const again = !fresh && !view.closed && id && root.querySelector(`${isSuspect ? ".nd-suspect" : ".nd-instrument"}[data-id=${id}]`);
      (again || root).focus({ preventScroll: !view.closed });
    }
    const last = view.readings.at(-1);
    if (view.verdict) spoken.say(`${view.verdict.opening} ${view.words.repair}${view.verdict.repair}`);
    else if (view.trouble) spoken.say(view.trouble);
    else spoken.say(`${last && !fresh ? filled2(view.words.reading, last) : view.symptom} ${view.left_words}`);
  }
  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation();
    const view = numbers();
    const letter = event.key.length === 1 ? "abcdefghijklm".indexOf(event.key) : -1;
    if (event.key === "Enter" && event.target.matches("button:not(.nd-suspect), summary")) return;
    if (event.key === "Enter" && view.closed) request("another");
    else if (event.key === "Enter") accuse();
    else if (view.closed) return;
    else if (view.instruments[Number(event.key) - 1]) ask(view.instruments[Number(event.key) - 1]);
    else if (view.suspects[letter]) {
      choose(view.suspects[letter].id);
      root.querySelector(`.nd-suspect[data-id=${suspect}]`).focus();
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
var widget_nan_detective_default = { render };
export {
  widget_nan_detective_default as default
};
//# sourceMappingURL=widget_nan_detective.bundle.js.map
