// Draws what Python says (`numbers`). Every number on the screen is Python's.

import { announcer, button, columns, control, labelled, node, shape, wire } from "labkit/elements";
import "./widget_memory_tape.css";

const WIDTH = 640, LEFT = 40, RIGHT = 12, TOP = 18, FLOOR = 226, HEIGHT = 250;
const INNER = WIDTH - LEFT - RIGHT, TALL = FLOOR - TOP;
const HILLS = ["forward", "backward", "step"];
const WAIT = "Counting the new step …";

function render({ model, el }) {
  // Settings that wait are set together, and of places only the newest is of interest.
  const line = wire(model, {
    join(last, wish) {
      const both = { ...last, ...wish };
      if (wish.settings) both.settings = { ...last.settings, ...wish.settings };
      if (!("place" in wish)) delete both.place; // after a change the peak is read
      return both;
    },
  });
  const { menus, roles } = line.numbers();
  const voice = announcer();

  // Python counts a new step for a second or longer.
  function count(wish) {
    root.setAttribute("aria-busy", "true");
    voice.say(WAIT);
    line.ask(wish);
  }
  const set = (name, value) => count({ settings: { [name]: value } });

  const box = (options, act, read = Number) => {
    const element = control("select", {}, ...options.map(([value, text]) => node("option", { value }, text)));
    element.addEventListener("change", () => act(read(element.value)));
    return element;
  };
  const counts = (values) => values.map((value) => [value, String(value)]);
  const limit = box(menus.limit.map((size) => [size, `${size} GiB`]), (size) => line.ask({ limit: size }));
  const boxes = {
    batch: box(counts(menus.batch), (value) => set("batch", value)),
    micro_batches: box(counts(menus.micro_batches), (value) => set("micro_batches", value)),
    loss_chunks: box(counts(menus.loss_chunks), (value) => set("loss_chunks", value)),
    moments: box(menus.moments, (value) => set("moments", value), String),
  };
  const isOn = (element) => element.getAttribute("aria-pressed") === "true";
  const press = (element, on) => element.setAttribute("aria-pressed", String(on));
  const toggle = (name) => {
    const element = button(name, { class: "lk-button", "aria-pressed": "false" }, () => {
      press(element, !isOn(element));
      set(name, isOn(element));
    });
    return element;
  };
  const toggles = { autocast: toggle("autocast"), foreach: toggle("foreach") };

  // One stop of the tab key; arrows walk along the blocks.
  const blocks = Array.from({ length: menus.blocks }, (_, i) => button(String(i),
    { class: "lk-button", "aria-pressed": "false", "aria-label": `block ${i} checkpointed`, tabindex: i ? "-1" : "0" }, () => {
      press(blocks[i], !isOn(blocks[i]));
      sendBlocks();
    }));
  const sendBlocks = () => set("checkpointed", blocks.flatMap((element, i) => (isOn(element) ? [i] : [])));
  const everyBlock = (label, on) => button(label, { class: "lk-button", "aria-label": `${label} checkpointed` }, () => {
    for (const element of blocks) press(element, on);
    sendBlocks();
  });
  const row = node("div", { class: "lk-buttons", role: "toolbar", "aria-label": "Checkpointed blocks" }, ...blocks);
  row.addEventListener("focusin", (event) => {
    for (const element of blocks) element.tabIndex = element === event.target ? 0 : -1;
  });
  row.addEventListener("keydown", (event) => {
    const here = blocks.indexOf(event.target);
    const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: blocks.length - 1 }[event.key];
    if (to === undefined) return;
    blocks[Math.min(Math.max(to, 0), blocks.length - 1)].focus();
    event.preventDefault();
  });

  // The slider lies below the drawing, and its thumb below the column that is read.
  const slider = control("input", { type: "range", class: "mt-slider", min: "0", max: "1", step: "0.001", "aria-label": "Place in the step" });
  const middle = ([left, right]) => (left + right) / 2;
  let place = 0;
  function read(wanted) {
    const { edges } = line.numbers().drawing;
    const within = Math.min(Math.max(wanted, 0), edges.length - 1);
    slider.value = middle(edges[within]);
    if (within === place) return;
    place = within;
    line.ask({ place });
  }
  function readAt(across) {
    const { edges } = line.numbers().drawing, found = edges.findIndex(([, right]) => across < right);
    read(found < 0 ? edges.length - 1 : found);
  }
  slider.addEventListener("input", () => readAt(Number(slider.value)));
  slider.addEventListener("keydown", (event) => { // a column, however wide
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!by || event.altKey || event.ctrlKey || event.metaKey) return;
    read(place + by);
    event.preventDefault();
  });
  const toPeak = () => line.ask({ place: null });

  // The mouse reads the column below it.
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "mt-drawing", role: "img" });
  let held = false;
  const follow = (event) => {
    const area = drawing.getBoundingClientRect();
    readAt(((event.clientX - area.left) / area.width * WIDTH - LEFT) / INNER);
  };
  drawing.addEventListener("pointerdown", (event) => {
    held = true;
    drawing.setPointerCapture(event.pointerId);
    follow(event);
  });
  drawing.addEventListener("pointermove", (event) => { if (held) follow(event); });
  for (const over of ["pointerup", "pointercancel"]) drawing.addEventListener(over, () => { held = false; });

  const verdict = node("p", { class: "mt-verdict" });
  const reading = node("p", { class: "mt-reading" });
  const sizes = Object.fromEntries(roles.map(({ role }) => [role, node("span", { class: "mt-size" })]));
  const swatch = (role) => shape("svg", { class: "mt-swatch", viewBox: "0 0 12 12", "aria-hidden": "true" },
    shape("rect", { class: `mt-${role}`, width: 12, height: 12 }));
  const list = node("ul", { class: "mt-roles" }, ...roles.map(({ role, name }) => node("li", {}, swatch(role), `${name} `, sizes[role])));
  const rows = node("tbody");
  const targets = node("ul", { class: "mt-targets" });

  const key = (name) => node("kbd", {}, name);
  const root = node("div", { class: "lk mt", role: "group", "aria-label": "MemoryTape" },
    node("div", { class: "lk-controls" }, labelled("Card", limit), labelled("Batch", boxes.batch), labelled("Micro-batches", boxes.micro_batches),
      labelled("Chunks of the loss", boxes.loss_chunks), labelled("Moments", boxes.moments), node("div", { class: "lk-buttons" }, toggles.autocast, toggles.foreach)),
    node("div", { class: "mt-blocks" }, node("span", {}, "Checkpointed blocks"), row, everyBlock("none", false), everyBlock("all", true)),
    node("p", { class: "lk-keys" }, "With the focus on a block: ", key("←"), key("→"), " next block, ", key("Space"), " checkpointed or not. ",
      "Elsewhere: ", key("a"), " autocast, ", key("f"), " foreach, ", key("l"), " next card, ", key("p"), " to the peak. Click the drawing, or move the slider below it, to read a place."),
    verdict, node("p", { class: "mt-wait" }, WAIT), drawing, slider,
    node("div", { class: "mt-beside" }, reading, button("to the peak", { class: "lk-button" }, toPeak)), list,
    node("table", { class: "mt-table" }, columns("most bytes in", ...HILLS, "peak at", "extra FLOP"), rows),
    node("p", { class: "mt-caption" }, "GPT-2, 163 M parameters, 1,024 tokens a row. The bytes are counted on fake tensors, which have shapes and no memory; a GPU adds "
      + "its context, workspaces and rounding to 512 B. From left to right the operators of one step, not their times; from the bottom the roles in the "
      + "order of the list. The dashed line is the card's limit, and what lies above it is striped. The peak is the highest of three hills: lower one, and "
      + "watch which hill is the highest then. f and b are forward and backward of a micro-batch; after the step, zero_grad frees the gradients."),
    targets, voice.element);

  const acts = {
    a: () => toggles.autocast.click(),
    f: () => toggles.foreach.click(),
    p: toPeak,
    l() {
      limit.selectedIndex = (limit.selectedIndex + 1) % limit.options.length;
      limit.dispatchEvent(new Event("change"));
    },
  };
  root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.tagName === "SELECT" || !Object.hasOwn(acts, event.key)) return;
    acts[event.key]();
    event.preventDefault();
  });

  const x = (share) => LEFT + share * INNER;
  const y = (share) => FLOOR - share * TALL;

  // A band between two rows of heights, as wide as the columns.
  function band(edges, lower, upper, role) {
    const along = edges.map(([left, right], i) => `${i ? "L" : "M"}${x(left)} ${y(upper[i])}H${x(right)}`);
    const back = edges.map(([left, right], i) => `L${x(right)} ${y(lower[i])}H${x(left)}`).reverse();
    return shape("path", { class: `mt-${role}`, d: `${along.join("")}${back.join("")}Z` });
  }

  function beyond(edges, total, most) {
    return edges.flatMap(([left, right], i) => (total[i] <= most ? [] : [shape("line", {
      class: "mt-beyond", x1: x((left + right) / 2), x2: x((left + right) / 2), y1: y(most), y2: y(total[i]), "stroke-width": (right - left) * INNER })]));
  }

  // The forward's hill is named on its left and the backward's on its right: they stand side by side.
  function hill({ at: [across, up], largest, text }, i) {
    const before = across > [0.2, 0.6, 0.85][i];
    return [
      shape("path", { class: `mt-hill ${largest ? "mt-largest" : ""}`, d: `M${x(across)} ${y(up) - 1}l-5 -8h10z` }),
      shape("text", { class: `mt-label mt-halo ${largest ? "mt-strong" : ""} ${before ? "mt-end" : ""}`, x: x(across) + (before ? -8 : 8), y: y(up) - 3 }, text),
    ];
  }

  function picture({ phases, edges, stack, limit: [most, title], ticks, hills }, place) {
    const bands = Object.entries(stack), cursor = x(middle(edges[place]));
    return [
      ...ticks.flatMap(([at, text]) => [
        shape("line", { class: "mt-grid", x1: x(0), x2: x(1), y1: y(at), y2: y(at) }),
        shape("text", { class: "mt-label mt-end", x: LEFT - 6, y: y(at) + 4 }, text)]),
      shape("text", { class: "mt-label", x: 2, y: 13 }, "GiB"),
      ...bands.map(([role, upper], i) => band(edges, i ? bands[i - 1][1] : upper.map(() => 0), upper, role)),
      ...beyond(edges, bands.at(-1)[1], most),
      ...phases.flatMap(([from, to, name]) => [
        shape("line", { class: "mt-phase", x1: x(to), x2: x(to), y1: TOP, y2: FLOOR + 6 }),
        shape("text", { class: "mt-label mt-middle", x: x((from + to) / 2), y: FLOOR + 18 }, name)]),
      shape("line", { class: "mt-limit", x1: x(0), x2: x(1), y1: y(most), y2: y(most) }),
      shape("text", { class: "mt-label mt-halo mt-end", x: x(1), y: y(most) - 5 }, title),
      shape("line", { class: "mt-cursor", x1: cursor, x2: cursor, y1: TOP, y2: FLOOR + 4 }),
      ...hills.flatMap(hill),
    ];
  }

  function accept(numbers) {
    const { settings } = numbers;
    if (!line.waits()) {
      root.removeAttribute("aria-busy");
      limit.value = numbers.limit;
      for (const [name, element] of Object.entries(boxes)) element.value = settings[name];
      for (const [name, element] of Object.entries(toggles)) press(element, settings[name]);
      blocks.forEach((element, i) => press(element, settings.checkpointed.includes(i)));
      place = numbers.place;
      slider.value = middle(numbers.drawing.edges[place]);
    }
    for (const option of boxes.micro_batches.options) option.disabled = Number(option.value) > settings.batch;
    toggles.foreach.disabled = settings.moments !== "fp32"; // one kernel updates them, and asks for no copies
    slider.setAttribute("aria-valuetext", numbers.reading);
    verdict.textContent = numbers.verdict;
    verdict.dataset.fits = String(numbers.fits);
    drawing.replaceChildren(...picture(numbers.drawing, numbers.place));
    drawing.setAttribute("aria-label", numbers.sentence);
    reading.textContent = numbers.reading;
    for (const { role, bytes } of numbers.roles) sizes[role].textContent = bytes;
    rows.replaceChildren(...numbers.rows.map((each) => node("tr", {}, node("th", { scope: "row" }, each.what),
      ...HILLS.map((name) => node("td", {}, each[name], ...(name === each.largest ? [node("b", {}, " peak")] : []))),
      node("td", {}, each.at), node("td", {}, each.flop))));
    targets.replaceChildren(...numbers.targets.map((target) =>
      node("li", { "data-done": String(target.done) }, node("b", {}, target.done ? "Reached: " : "Goal: "), target.text)));
    voice.say(numbers.spoken);
  }

  el.append(root);
  const quit = line.follow(accept);
  return () => {
    quit();
    voice.stop();
  };
}

export default { render };
