// Shows the chosen one of Python's `cards`. Each fact is a button that tells its evidence. The
// recipe comes first, its row is marked, and its evidence is open from the start.

import { button, columns, control, labelled, node } from "labkit/elements";
import "./widget_device_card.css";

function render({ model, el }) {
  const cards = model.get("cards");
  const choice = control("select", { class: "dv-choice" },
    ...cards.map((card, i) => node("option", { value: String(i) }, card.name)));
  const about = node("p", { class: "dv-about" });
  const body = node("tbody", {});
  const table = node("table", { class: "dv-table" },
    node("caption", {}, "Press an answer for its evidence."),
    columns("dtype", "storable", "computable", "accelerated"), body);
  const why = node("p", { class: "dv-why", role: "status", "aria-live": "polite" });
  const recipe = node("p", { class: "dv-recipe" });
  const reasons = node("ul", { class: "lk-list" });
  const code = control("pre", { class: "dv-code", tabindex: "0", "aria-label": "Lines to paste" });
  const root = node("div", { class: "lk dv", role: "group", "aria-label": "DeviceCard" },
    node("div", { class: "lk-controls" }, labelled("Device", choice)),
    about, recipe, table, why, reasons, code);

  choice.addEventListener("change", () => {
    model.set("chosen", Number(choice.value));
    model.save_changes();
  });

  function tell(one, fact) {
    for (const other of body.querySelectorAll("button")) other.setAttribute("aria-pressed", "false");
    one.setAttribute("aria-pressed", "true");
    why.textContent = fact.why;
  }

  function answer(fact) {
    const weight = fact.fact !== "accelerated" && fact.answer === "yes" ? "dv-plain" : `dv-${fact.answer}`;
    const one = button(fact.answer, { class: `lk-button ${weight}`, "aria-pressed": "false",
      "aria-label": `${fact.fact}: ${fact.answer}` }, () => tell(one, fact));
    return node("td", {}, one);
  }

  function line(row, mark) {
    return node("tr", mark ? { class: "dv-mark" } : {},
      node("th", { scope: "row" }, row.dtype), ...row.facts.map(answer));
  }

  function show() {
    const card = cards[model.get("chosen")];
    choice.value = String(model.get("chosen"));
    about.textContent = `${card.about}. ${card.matrix} (${card.matrix_why})`;
    body.replaceChildren(...card.rows.map((row) => line(row, row.dtype === card.dtype)));
    const marked = card.rows.find((row) => row.dtype === card.dtype);
    tell(body.querySelector(".dv-mark td:last-child button"), marked.facts.at(-1));
    recipe.textContent = `Recipe: ${card.recipe}`;
    reasons.replaceChildren(...card.reasons.map((text) => node("li", {}, text)));
    code.textContent = card.code;
  }

  model.on("change:chosen", show);
  el.append(root);
  show();
  return () => model.off("change:chosen", show);
}

export default { render };
