// Bundled by `python -m labkit build` from ../engine/elements.css ../engine/elements.js widget_rollout.css widget_rollout.js, sha256 70eee47804f204680a3d237459dcc9cca84de97734fa923a3f9111af9f5da83e

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
function button(label, attributes, onClick) {
  const element = control("button", { type: "button", ...attributes }, label);
  element.addEventListener("click", onClick);
  return element;
}
function labelled(title, element) {
  return node("label", {}, node("span", {}, title), element);
}
function columns(...titles) {
  return node("thead", {}, node("tr", {}, ...titles.map((title) => node("th", { scope: "col" }, title))));
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

// labs/production/widget_rollout.js
var WIDTH = 640;
var LEFT = 44;
var RIGHT = 10;
var LANE = 6;
var TALL = 34;
var TOP = 56;
var FLOOR = 216;
var HEIGHT = 240;
var INNER = WIDTH - LEFT - RIGHT;
var COLUMNS = [["requests", "requests"], ["pairs", "compared"], ["worse", "worse"], ["better", "better"], ["harmed", "worse for users"]];
function render({ model, el }) {
  const line = wire(model, { join: () => null });
  const { menus } = line.numbers();
  const voice = announcer();
  const box = (name, options, read) => {
    const element = control("select", {}, ...options.map((value) => node("option", { value }, value.toLocaleString("en"))));
    element.addEventListener("change", () => line.ask({ [name]: read(element.value) }));
    return element;
  };
  const candidate = box("candidate", menus.candidate, String);
  const boxes = { candidate, shadow: box("shadow", menus.shadow, Number), live: box("live", menus.live, Number) };
  const act = (name) => () => line.ask({ act: name });
  const moves = {
    n: button("100 requests", { class: "lk-button" }, act("requests")),
    s: button("to the end of the stage", { class: "lk-button" }, act("stage")),
    e: button("to the end", { class: "lk-button lk-main" }, act("run")),
    r: button("roll back", { class: "lk-button" }, act("roll back"))
  };
  const again = button("begin again", { class: "lk-button" }, act("again"));
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "ro-drawing", role: "img" });
  const what = node("p", { class: "ro-what" });
  const verdict = node("p", { class: "ro-verdict" });
  const reading = node("p", { class: "ro-reading" });
  const guardrail = node("p", { class: "ro-guardrail" });
  const rows = node("tbody");
  const ended = node("p", { class: "ro-ended" });
  const here = node("ul", { class: "ro-here" });
  const targets = node("ul", { class: "ro-targets" });
  const key = (name) => node("kbd", {}, name);
  const root = node(
    "div",
    { class: "lk ro", role: "group", "aria-label": "Rollout" },
    node(
      "div",
      { class: "lk-controls" },
      labelled("Candidate", candidate),
      labelled("Requests in shadow", boxes.shadow),
      labelled("Requests in each live stage", boxes.live)
    ),
    what,
    node("div", { class: "lk-buttons" }, ...Object.values(moves), again),
    node(
      "p",
      { class: "lk-keys" },
      "With the focus on a button: ",
      key("n"),
      " 100 requests, ",
      key("s"),
      " to the end of the stage, ",
      key("e"),
      " to the end, ",
      key("r"),
      " roll back, ",
      key("b"),
      " begin again, ",
      key("c"),
      " next candidate."
    ),
    verdict,
    reading,
    drawing,
    guardrail,
    node("table", { class: "ro-table" }, columns("stage", ...COLUMNS.map(([, title]) => title)), rows),
    node("p", { class: "ro-caption" }, "The curve is the gate's E on a log axis, and every stage is drawn equally wide. In shadow the candidate answers a copy of each request and users see the reference's answer; in a stage of 10 % users see the candidate's answer to every tenth request, and only these are compared. A worse answer is one that the reference alone got right. The requests are 37,120 characters of the held-out text in random order, recorded on a CPU. The gate asks whether an export is worse, not by how much: given enough requests it takes INT4 by 32 back, which gets 2.3 points fewer right, even where a team would accept that for the memory it saves."),
    ended,
    here,
    targets,
    voice.element
  );
  root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.tagName === "SELECT") return;
    if (event.key === "c") {
      candidate.selectedIndex = (candidate.selectedIndex + 1) % candidate.options.length;
      candidate.dispatchEvent(new Event("change"));
    } else if (event.key === "b") again.click();
    else if (Object.hasOwn(moves, event.key)) moves[event.key].click();
    else return;
    event.preventDefault();
  });
  const x = (share) => LEFT + share * INNER;
  const y = (share) => FLOOR - share * (FLOOR - TOP);
  function stage({ name, edges: [from, to], state, sign, requests }) {
    const middle = x((from + to) / 2);
    return [
      shape("rect", { class: `ro-stage ro-${state}`, x: x(from) + 2, width: x(to) - x(from) - 4, y: LANE, height: TALL, rx: 4 }),
      shape("text", { class: `ro-label ro-middle ${state === "ahead" ? "" : "ro-strong"}`, x: middle, y: LANE + TALL / 2 + 4 }, `${sign} ${name}`.trim()),
      shape("line", { class: "ro-edge", x1: x(to), x2: x(to), y1: TOP, y2: FLOOR }),
      shape("text", { class: "ro-label ro-middle", x: middle, y: FLOOR + 17 }, `${requests} requests`)
    ];
  }
  function picture({ lane, curve: points, ticks, limit: [alarm, title] }) {
    const drawn = points.map(([across, up]) => [x(across), y(up)]), [endX, endY] = drawn.at(-1);
    return [
      ...ticks.flatMap(([at, text]) => [
        shape("line", { class: "ro-grid", x1: x(0), x2: x(1), y1: y(at), y2: y(at) }),
        shape("text", { class: "ro-label ro-end", x: LEFT - 5, y: y(at) + 4 }, text)
      ]),
      shape("text", { class: "ro-label", x: 4, y: TOP - 12 }, "E"),
      ...lane.flatMap(stage),
      shape("line", { class: "ro-limit", x1: x(0), x2: x(1), y1: y(alarm), y2: y(alarm) }),
      shape("text", { class: "ro-label ro-halo ro-end", x: x(1) - 4, y: y(alarm) - 5 }, title),
      curve(drawn, "ro-curve"),
      shape("circle", { class: "ro-point", cx: endX, cy: endY, r: 4 })
    ];
  }
  function accept(numbers) {
    if (!line.waits()) for (const [name, element] of Object.entries(boxes)) element.value = numbers[name];
    for (const element of Object.values(moves)) element.setAttribute("aria-disabled", String(numbers.over));
    what.textContent = numbers.what;
    verdict.textContent = numbers.verdict;
    verdict.dataset.over = String(numbers.over);
    verdict.dataset.right = String(numbers.right);
    reading.textContent = numbers.reading;
    guardrail.textContent = numbers.guardrail;
    guardrail.dataset.broken = String(numbers.broken);
    drawing.replaceChildren(...picture(numbers));
    drawing.setAttribute("aria-label", numbers.sentence);
    rows.replaceChildren(...numbers.rows.map((row) => node(
      "tr",
      {},
      node("th", { scope: "row" }, row.stage),
      ...COLUMNS.map(([name]) => node("td", {}, row[name]))
    )));
    ended.textContent = numbers.ended;
    here.replaceChildren(...numbers.here.map(([name, text, right]) => node("li", { "data-right": String(right) }, node("b", {}, `${name}: `), text)));
    targets.replaceChildren(...numbers.targets.map((target) => node("li", { "data-done": String(target.done) }, node("b", {}, target.done ? "Reached: " : "Goal: "), target.text)));
    voice.say(numbers.spoken);
  }
  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    voice.stop();
  };
}
var widget_rollout_default = { render };
export {
  widget_rollout_default as default
};
//# sourceMappingURL=widget_rollout.bundle.js.map
