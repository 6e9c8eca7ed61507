// Draws what Python says (`numbers`): places from 0 to 1, and texts.

const RL_WIDTH = 720, RL_HEIGHT = 300, RL_LEFT = 90, RL_RIGHT = 10, RL_TOP = 12, RL_BOTTOM = 44;
const RL_DASHES = { solid: "", dashed: "9 5", dotted: "2 5", "dash-dot": "10 4 2 4" };

function render({ model, el }) {
  const voice = announcer();
  let waiting = null; // the newest size asked for while Python is at work on an older one

  function ask(index) {
    const open = model.get("request").seq ?? 0;
    if (open > model.get("numbers").seq) { waiting = index; return; }
    model.set("request", { seq: Math.max(open, model.get("numbers").seq) + 1, index });
    model.save_changes();
  }

  const slider = control("input", { type: "range", class: "rl-slider", min: "0", step: "1",
    max: String(model.get("numbers").last) });
  slider.addEventListener("input", () => ask(Number(slider.value)));
  const size = node("span", { class: "rl-size" });
  const drawing = shape("svg", { viewBox: `0 0 ${RL_WIDTH} ${RL_HEIGHT}`, class: "rl-drawing", role: "img" });
  const body = node("tbody", {});
  const heads = ["device", "bound by", "at least", "attainable", "peak", "source"];
  const table = node("table", { class: "rl-table" },
    node("thead", {}, node("tr", {}, ...heads.map((head) => node("th", { scope: "col" }, head)))), body);
  const root = node("div", { class: "lk rl", role: "group", "aria-label": "Roofline" },
    node("div", { class: "lk-controls" }, labelled("Size of the square matrices", slider), size),
    node("p", { class: "lk-keys" }, "Drag the slider, or with the focus on it: ", node("kbd", {}, "←"),
      node("kbd", {}, "→"), " halve and double."),
    drawing, table, voice.element);

  const x = (share) => RL_LEFT + share * (RL_WIDTH - RL_LEFT - RL_RIGHT);
  const y = (share) => RL_HEIGHT - RL_BOTTOM - share * (RL_HEIGHT - RL_TOP - RL_BOTTOM);

  function picture(numbers) {
    const parts = [];
    for (const [share, text] of numbers.columns) {
      parts.push(shape("line", { class: "rl-grid", x1: x(share), x2: x(share), y1: y(0), y2: y(1) }),
        shape("text", { class: "rl-tick", x: x(share), y: y(0) + 16, "text-anchor": share > 0.97 ? "end" : "middle" }, text));
    }
    for (const [share, text] of numbers.levels) {
      parts.push(shape("line", { class: "rl-grid", x1: x(0), x2: x(1), y1: y(share), y2: y(share) }),
        shape("text", { class: "rl-tick", x: x(0) - 6, y: y(share) + 4, "text-anchor": "end" }, text));
    }
    parts.push(shape("text", { class: "rl-tick", x: x(0.5), y: RL_HEIGHT - 6, "text-anchor": "middle" },
      "arithmetic intensity, FLOP a byte"));
    numbers.lines.forEach((line, i) => {
      parts.push(shape("polyline", { class: `rl-line rl-line-${i}`, "stroke-dasharray": RL_DASHES[line.style],
        points: line.points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") }));
      parts.push(shape("circle", { class: `rl-dot rl-dot-${i}`, cx: x(line.at[0]), cy: y(line.at[1]), r: 5 }));
    });
    return parts;
  }

  function accept() {
    const numbers = model.get("numbers");
    if (numbers.seq < (model.get("request").seq ?? 0)) return; // the answer to an older request
    if (waiting === null) slider.value = numbers.index;
    slider.setAttribute("aria-valuetext", numbers.size);
    size.textContent = `${numbers.size} in ${numbers.dtype}: ${numbers.intensity}`;
    drawing.replaceChildren(...picture(numbers));
    drawing.setAttribute("aria-label", numbers.sentence);
    body.replaceChildren(...numbers.rows.map((row, i) => node("tr", {},
      node("th", { scope: "row" },
        shape("svg", { viewBox: "0 0 30 8", class: "rl-key", "aria-hidden": "true" },
          shape("line", { class: `rl-line rl-line-${i}`, x1: 0, x2: 30, y1: 4, y2: 4,
            "stroke-dasharray": RL_DASHES[row.style] })), ` ${row.device}`),
      ...["bound", "time", "rate", "peak", "source"].map((name) => node("td", {}, row[name])))));
    voice.say(numbers.sentence);
    if (waiting !== null) {
      const wanted = waiting;
      waiting = null;
      ask(wanted);
    }
  }

  model.on("change:numbers", accept);
  el.append(root);
  accept();
  return () => {
    model.off("change:numbers", accept);
    voice.stop();
  };
}

export default { render };
